"""Links, how they are shared, their file, and quantities with units."""

from hocket.network.cluster_file import ClusterFile, load_cluster, save_cluster
from hocket.network.collectives import (
    choose_pattern,
    collective_cost,
    gather_s,
    half_costs,
    halves_s,
    number_s,
    patterns_of,
    reduction_s,
    scatter_s,
)
from hocket.network.file import NetworkFile, load_network, save_network
from hocket.network.gpu_nodes import Nodes
from hocket.network.link import (
    PATTERNS,
    USUAL_STARTUP_S,
    Network,
    Pattern,
    PatternChoice,
    check_exchange,
    check_window,
)
from hocket.network.measured_reduction import MeasuredHalves, MeasuredLine, MeasuredReduction
from hocket.network.reduction_cost import CollectiveCost, pipelined_s
from hocket.network.shard_groups import ShardGroups
from hocket.network.sharing import assign_servers, fair_share_bps, window_cuts
from hocket.network.topology import Topology
from hocket.network.units import parse_bandwidth, parse_bytes, parse_duration, parse_seconds_per_byte

__all__ = [
    "PATTERNS",
    "USUAL_STARTUP_S",
    "ClusterFile",
    "CollectiveCost",
    "MeasuredHalves",
    "MeasuredLine",
    "MeasuredReduction",
    "Network",
    "NetworkFile",
    "Nodes",
    "Pattern",
    "PatternChoice",
    "ShardGroups",
    "Topology",
    "assign_servers",
    "check_exchange",
    "check_window",
    "choose_pattern",
    "collective_cost",
    "fair_share_bps",
    "gather_s",
    "half_costs",
    "halves_s",
    "load_cluster",
    "load_network",
    "number_s",
    "parse_bandwidth",
    "parse_bytes",
    "parse_duration",
    "parse_seconds_per_byte",
    "patterns_of",
    "pipelined_s",
    "reduction_s",
    "save_cluster",
    "save_network",
    "scatter_s",
    "window_cuts",
]
