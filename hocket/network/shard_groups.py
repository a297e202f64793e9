"""Groups of workers that share one copy of a model, and what their collectives cost.

A group gathers parameters and reduces and scatters gradients between its own workers. Where there are several
groups (HSDP), each worker's shard of the gradients is then all-reduced with those that hold the same shard in
the other groups. On nodes of several GPUs a group fills whole nodes or a part of one, and all workers of a
node all-reduce at once: each has its part of the node's NICs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hocket.errors import HocketError
from hocket.network.collectives import gather_s, measured_half, reduction_s, scatter_s
from hocket.network.link import Network


@dataclass(frozen=True, kw_only=True)
class ShardGroups:
    """The groups of one network.

    ``group``: the network between the workers of one group; ``replicas``: the one between those that hold the
    same shard, None with a single group; ``apart``: these two share no link, so that they are used at once;
    ``exchanged``: gradients are scattered by an exchange of shares, which workers add up themselves.
    """

    group: Network
    replicas: Network | None
    apart: bool
    exchanged: bool = False

    @classmethod
    def of(cls, network: Network, *, exchanged: bool = False) -> ShardGroups:
        """The groups that ``network.shards`` asks for.

        Raises
        ------
        HocketError
            When workers do not make whole groups, or groups cut nodes.
        """
        workers = network.num_workers
        shards = workers if network.shards is None else network.shards
        if workers % shards:
            raise HocketError(
                f"{shards} shards do not divide {workers} workers into whole groups; give a divisor of them"
            )
        group = replace(network, num_workers=shards, shards=None)
        if shards == workers:
            return cls(group=group, replicas=None, apart=False, exchanged=exchanged)
        count, nodes = workers // shards, network.nodes
        replicas = replace(network, num_workers=count, shards=None)
        if nodes is None or nodes.gpus == 1:
            return cls(group=group, replicas=replicas, apart=False, exchanged=exchanged)
        if shards % nodes.gpus and nodes.gpus % shards:
            raise HocketError(
                f"{shards} shards on {nodes.text}: groups that cut nodes are not modelled; give whole nodes,"
                f" or a divisor of {nodes.gpus}"
            )
        if workers <= nodes.gpus:
            return cls(group=group, replicas=replicas, apart=False, exchanged=exchanged)
        each_bps = nodes.out_bps(network.bandwidth_bps, workers) / min(nodes.gpus, workers)
        replicas = replace(replicas, nodes=None, bandwidth_bps=each_bps)
        return cls(group=group, replicas=replicas, apart=shards <= nodes.gpus, exchanged=exchanged)

    @property
    def shards(self) -> int:
        """The number of workers that share one copy."""
        return self.group.num_workers

    def gather_s(self, size_bytes: float) -> float:
        """Seconds of the all-gather of parameters of ``size_bytes``."""
        return gather_s(self.group, size_bytes)

    def scatter_s(self, size_bytes: float) -> float:
        """Seconds of the reduce-scatter of gradients of ``size_bytes``."""
        return scatter_s(self.group, size_bytes, "exchange" if self.exchanged else "scatter")

    def whole_scatter_s(self, size_bytes: float) -> float:
        """Seconds of a reduce-scatter that is an all-reduce of which all but a share is thrown away."""
        if measured_half(self.group, "scatter") is not None:
            return scatter_s(self.group, size_bytes)
        return reduction_s(self.group, size_bytes)

    def reduce_s(self, size_bytes: float) -> float:
        """Seconds of the all-reduce between groups of one shard of gradients of ``size_bytes``; 0 for one."""
        return 0.0 if self.replicas is None else reduction_s(self.replicas, size_bytes / self.shards)
