"""Ranks that sum up gradients on GPUs over NCCL, on one communicator of their own.

Collectives of two communicators that run at once need one order on all ranks. So there is no second one for
what is urgent, which is chosen next instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import AllgatherOptions, PrefixStore, ReduceOp, ReduceScatterOptions

from hocket.runtime.transfers.transfer_group import StartedCollective, share_of


class NcclGroup:
    """Some ranks of the job, each with ``device``, a GPU; ``name`` is this group's alone.

    A collective that takes longer than ``timeout`` is ended by torch's watchdog, as those of the script's own
    groups are. Once a rank is known to be lost, :meth:`abandon` ends what is under way.
    """

    def __init__(self, ranks: Sequence[int], name: str, timeout: timedelta, device: torch.device) -> None:
        from torch._C._distributed_c10d import ProcessGroupNCCL  # not where torch was built without CUDA

        options: Any = ProcessGroupNCCL.Options(is_high_priority_stream=True)
        options._timeout = timeout
        store = PrefixStore(name, dist.distributed_c10d._get_default_store())
        self.rank, self.size = ranks.index(dist.get_rank()), len(ranks)
        self._nccl: Any = ProcessGroupNCCL(store, self.rank, self.size, options)
        self._nccl.eager_connect_single_device(device)

    def reduce(self, tensor: torch.Tensor) -> StartedCollective:
        """Start an AllReduce of ``tensor``, in place, behind what this thread's stream was asked for."""
        work: StartedCollective = self._nccl.allreduce([tensor], ReduceOp.SUM)
        return work

    def sum_shares(self, tensor: torch.Tensor) -> StartedCollective:
        """Start a reduce-scatter of ``tensor``, in place."""
        options: Any = ReduceScatterOptions()
        share = share_of(tensor, self.rank, self.size)
        work: StartedCollective = self._nccl._reduce_scatter_base(share, tensor, options)
        return work

    def gather_shares(self, tensor: torch.Tensor) -> StartedCollective:
        """Start an all-gather into ``tensor``, where this rank's share is."""
        options: Any = AllgatherOptions()
        share = share_of(tensor, self.rank, self.size)
        work: StartedCollective = self._nccl._allgather_base(tensor, share, options)
        return work

    def abandon(self) -> None:
        """End what is under way, which other ranks may never join."""
        self._nccl.abort()

    def close(self) -> None:
        """End it, once what is under way has ended."""
        self._nccl.shutdown()


def has_nccl(process_group: dist.ProcessGroup | None) -> bool:
    """Tell whether ``process_group``, the default one for None, sums up GPUs' tensors over NCCL."""
    group = process_group or dist.distributed_c10d._get_default_group()
    kinds = {str(device.type): group._get_backend(device).name() for device in group._device_types}
    return kinds.get("cuda", "").lower() == "nccl"
