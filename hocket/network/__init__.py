"""Links, how they are shared, and quantities with units. Imports nothing else of Hocket's but its errors."""

from hocket.network.collectives import choose_pattern, collective_cost, patterns_of, pipelined_s, reduction_s
from hocket.network.link import PATTERNS, Network, Pattern
from hocket.network.sharing import assign_servers, fair_share_bps
from hocket.network.units import parse_bandwidth, parse_bytes, parse_duration

__all__ = [
    "PATTERNS",
    "Network",
    "Pattern",
    "assign_servers",
    "choose_pattern",
    "collective_cost",
    "fair_share_bps",
    "parse_bandwidth",
    "parse_bytes",
    "parse_duration",
    "patterns_of",
    "pipelined_s",
    "reduction_s",
]
