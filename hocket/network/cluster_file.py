"""``hocket.cluster/1``: the machines of a cluster as a file, their GPUs, what connects them, and racks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from hocket.document import convert_document, read_document, write_json
from hocket.errors import FormatError, HocketError
from hocket.network.file import Bandwidth, Seconds
from hocket.network.gpu_nodes import MOST_GPUS, MOST_IN_A_RACK, MOST_NICS, MOST_OVERSUBSCRIPTION, Nodes
from hocket.network.link import Network
from hocket.network.unknown_keys import say_ignored
from hocket.notebook import ObjectSummary, Summarized

CLUSTER_FORMAT = "hocket.cluster/1"

# The ranges are those of Nodes; here they let a refusal name the field.
Gpus = Annotated[int, msgspec.Meta(ge=1, le=MOST_GPUS)]
Nics = Annotated[int, msgspec.Meta(ge=1, le=MOST_NICS)]
InARack = Annotated[int, msgspec.Meta(ge=1, le=MOST_IN_A_RACK)]
Oversubscription = Annotated[float, msgspec.Meta(ge=1, le=MOST_OVERSUBSCRIPTION)]


class ClusterFile(Summarized, msgspec.Struct, frozen=True, kw_only=True):
    """The content of a cluster's file; only the GPUs a node and the bandwidth have to be known.

    Attributes
    ----------
    gpus_per_node, nics_per_node, nodes_per_rack
        As ``gpus``, ``nics`` and ``per_rack`` in :class:`hocket.Nodes`.
    intra_bandwidth_bps, intra_startup_s, in_switch, oversubscription
        As ``intra_bps`` and, by the same names, the others there.
    bandwidth_bps, startup_s
        Of one NIC, as in :class:`hocket.Network`.

    Examples
    --------
    >>> import hocket
    >>> file = hocket.ClusterFile(gpus_per_node=8, intra_bandwidth_bps=3.6e12, bandwidth_bps=4e11)
    >>> file.network(num_workers=16).nodes.gpus
    8
    """

    gpus_per_node: Gpus
    bandwidth_bps: Bandwidth
    intra_bandwidth_bps: Bandwidth | None = None
    nics_per_node: Nics = 1
    startup_s: Seconds = 0.0
    intra_startup_s: Seconds = Nodes.intra_startup_s
    in_switch: bool = False
    nodes_per_rack: InARack | None = None
    oversubscription: Oversubscription = 1.0

    @property
    def nodes(self) -> Nodes:
        """The nodes of the cluster.

        Raises
        ------
        HocketError
            When a figure is out of its range, or one excludes another.
        """
        return Nodes(
            gpus=self.gpus_per_node,
            intra_bps=self.intra_bandwidth_bps,
            nics=self.nics_per_node,
            intra_startup_s=self.intra_startup_s,
            in_switch=self.in_switch,
            per_rack=self.nodes_per_rack,
            oversubscription=self.oversubscription,
        )

    def network(self, num_workers: int = 1) -> Network:
        """The network of a job with these workers, one a GPU.

        Raises
        ------
        HocketError
            When a number or a figure is out of its range.
        """
        return Network(
            bandwidth_bps=self.bandwidth_bps,
            startup_s=self.startup_s,
            num_workers=num_workers,
            nodes=self.nodes,
        )

    def _summary(self) -> ObjectSummary:
        shown = ("bandwidth", "startup", "machines")
        lines = [line for line in self.network()._summary().lines if line[0] in shown]
        return ObjectSummary("ClusterFile; network(num_workers) is the network of a job", lines)


class _ClusterDocument(ClusterFile, frozen=True, kw_only=True):
    format: Literal["hocket.cluster/1"]


def load_cluster(path: str | Path, note: Callable[[str], None] | None = None) -> ClusterFile:
    """Read a ``hocket.cluster/1`` file.

    Keys that the format has not are ignored.

    Parameters
    ----------
    path
        The file; compressed where its name ends in ``.zst`` or ``.gz``, "-" for standard input.
    note
        Called with a line that names ignored keys; None: a warning says so.

    Returns
    -------
    The file's content, a :class:`hocket.ClusterFile`; its ``network(num_workers=64)`` is the
    :class:`hocket.Network` of a job.

    Raises
    ------
    FormatError
        Naming the file, the field and the rule.

    Examples
    --------
    >>> import hocket
    >>> file = hocket.ClusterFile(gpus_per_node=8, intra_bandwidth_bps=3.6e12, bandwidth_bps=4e11)
    >>> hocket.save_cluster(file, "cluster.json")
    >>> hocket.load_cluster("cluster.json").network(num_workers=64).nodes.count(64)
    8
    """
    plain = read_document(path)
    document = convert_document(plain, _ClusterDocument, str(path), CLUSTER_FORMAT)
    say_ignored(plain, _ClusterDocument, str(path), CLUSTER_FORMAT, note)
    file = ClusterFile(**{name: getattr(document, name) for name in ClusterFile.__struct_fields__})
    try:
        file.network()
    except HocketError as error:
        raise FormatError(str(path), "", str(error)) from None
    return file


def save_cluster(file: ClusterFile, path: str | Path) -> None:
    """Write a cluster as ``hocket.cluster/1``, whole or not at all.

    Parameters
    ----------
    file
        The content of the file.
    path
        The file to write; compressed where its name ends in ``.zst`` or ``.gz``, "-" for standard output.

    Raises
    ------
    HocketError
        When the file cannot be written.

    Examples
    --------
    >>> import hocket
    >>> hocket.save_cluster(hocket.ClusterFile(gpus_per_node=1, bandwidth_bps=10e9), "cards.json")
    """
    fields: dict[str, Any] = msgspec.to_builtins(file)
    known = {key: value for key, value in fields.items() if value is not None}
    write_json({"format": CLUSTER_FORMAT, **known}, path)
