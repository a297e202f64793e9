"""An emulated cluster on one Linux machine: network namespaces with rate-limited links on a bridge."""

from hocket.lab.lab import Lab, labs, names, remove
from hocket.lab.links import LabNode
from hocket.lab.node_processes import RankResult
from hocket.lab.traffic_shaping import TSO_BYTES

__all__ = ["TSO_BYTES", "Lab", "LabNode", "RankResult", "labs", "names", "remove"]
