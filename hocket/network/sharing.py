"""Shares of the network: an interface divided equally, and parameters spread over servers."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from hocket.errors import HocketError
from hocket.network.link import Network


def assign_servers(parameter_bytes: Sequence[int], num_servers: int) -> npt.NDArray[np.int64]:
    """Place each parameter, in order, on the server with the fewest bytes so far; shape (parameters,).

    Source: Li et al. (ICPE 2020), section 5. Ties go to the first server.

    Raises
    ------
    HocketError
        When there are more servers than parameters: one of them would hold nothing.
    """
    if num_servers > max(1, len(parameter_bytes)):
        raise HocketError(
            f"{num_servers} servers cannot share {len(parameter_bytes)} parameters; use no more servers"
        )
    loads = [(0, server) for server in range(num_servers)]
    placed = np.empty(len(parameter_bytes), dtype=np.int64)
    for i, size in enumerate(parameter_bytes):
        load, server = heapq.heappop(loads)
        placed[i] = server
        heapq.heappush(loads, (load + int(size), server))
    return placed


def fair_share_bps(network: Network) -> float:
    """Bits per second of one worker-server pair when all pairs are busy: what a planner counts on.

    A server divides its interface by the workers, a worker divides its own by the servers.
    """
    return network.bandwidth_bps / max(network.num_workers, network.num_servers)


def window_cuts(parameter_bytes: Sequence[int], network: Network) -> bool:
    """True if some batch of these parameters, all on one server, is larger than the network's window."""
    if not network.window_bits:
        return False
    home = assign_servers(parameter_bytes, network.num_servers)
    loads = np.bincount(home, weights=np.asarray(parameter_bytes, np.float64))
    return bool(8.0 * loads.max(initial=0.0) > network.window_bits)
