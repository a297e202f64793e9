"""Links, how they are shared, and quantities with units. Imports nothing else of Hocket's but its errors."""

from hocket.network.link import Network
from hocket.network.sharing import assign_servers, fair_share_bps
from hocket.network.units import parse_bandwidth, parse_bytes, parse_duration

__all__ = ["Network", "assign_servers", "fair_share_bps", "parse_bandwidth", "parse_bytes", "parse_duration"]
