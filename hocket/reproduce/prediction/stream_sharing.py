"""Figs. 12, 23 and 24: how streams, parameters and links are shared, without any training.

The paper's Fig. 12 does not come with its sizes in text; those here are ours.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from hocket import models
from hocket.graph import OperationRow, ParameterRow, StepRows, step_from_rows
from hocket.network import Network, assign_servers
from hocket.network.max_min import max_min_bps
from hocket.predictor.synthetic_trace import trace

STREAMS = {"A": 2, "B": 4, "C": 7, "D": 1, "E": 5}
"""Streams of Fig. 12 and how many units they hold."""
WINDOW = 3
UNIT_BYTES = 1_000_000
PARTITIONED = "vgg11"


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """A piece that a link sends without a break: of which stream, from when to when, in units of size."""

    stream: str
    begin: float
    end: float

    @property
    def units(self) -> float:
        """The size of the piece, in units."""
        return self.end - self.begin


def multiplexed() -> tuple[Chunk, ...]:
    """The streams in one downlink with the window, in the order in which they are sent (Fig. 12)."""
    names = list(STREAMS)
    graph = step_from_rows(
        StepRows(
            model="streams",
            batch_size=1,
            device="synthetic",
            parameters=[
                ParameterRow(name=name, shape=[units * UNIT_BYTES], dtype="uint8", bytes=units * UNIT_BYTES)
                for name, units in STREAMS.items()
            ],
            operations=[OperationRow("compute", "forward", 1.0, [], names, [])],
        )
    )
    # A unit takes a second.
    network = Network(bandwidth_bps=8.0 * UNIT_BYTES)
    timeline = trace(
        graph,
        network,
        workers=1,
        servers=1,
        policy="fifo",
        window_bytes=float(WINDOW * UNIT_BYTES),
        steps=2,
        skip=0,
    )
    whole = float(sum(STREAMS.values()))
    return tuple(
        Chunk(stream=span.name, begin=span.start_s, end=span.end_s)
        for span in timeline.spans
        if timeline.lanes[span.lane].name == "pull" and span.end_s <= whole + 1e-9
    )


def partition(num_servers: int = 2) -> tuple[float, ...]:
    """MiB of VGG-11 on each server, whole parameters in order to the one with the fewest bytes (Fig. 23)."""
    sizes = [row.num_bytes for row in models.parameter_table(PARTITIONED)]
    placed = assign_servers(sizes, num_servers)
    loads = np.bincount(placed, weights=sizes, minlength=num_servers) / 2**20
    return tuple(loads.tolist())


def agreements(num_workers: int) -> list[bool]:
    """Of all states of downlinks with 2 servers on which section 5 says something: whether max-min agrees."""
    return [
        bool(np.allclose(_max_min(state), rule))
        for state in product((False, True), repeat=2 * num_workers)
        if (rule := _section_5(np.array(state).reshape(num_workers, 2))) is not None
    ]


def _section_5(active: np.ndarray) -> np.ndarray | None:
    """Each link's share by the paper's rule, (W, 2); None where a worker would get more than its own link.

    Active connections share their server equally; who is alone on one server and contends with n - 1 others
    on the other gets 1/n there and 1 - 1/n on the first.
    """
    count = active.sum(axis=0)
    rate = np.where(active, 1 / np.maximum(count, 1), 0.0)
    for worker in range(len(active)):
        for alone, shared in ((0, 1), (1, 0)):
            if active[worker].all() and count[alone] == 1 and count[shared] > 1:
                rate[worker, alone] = 1 - 1 / count[shared]
    return rate if (rate.sum(axis=1) <= 1 + 1e-9).all() else None


def _max_min(state: tuple[bool, ...]) -> np.ndarray:
    """The rate of each link by progressive filling; transfers cross a server's and a worker's interface."""
    active = np.array(state).reshape(-1, 2)
    rate = np.zeros(active.shape)
    workers, servers = np.nonzero(active)
    if len(workers):
        routes = np.stack([servers, 2 + workers], axis=1).astype(np.int64)
        rate[workers, servers] = max_min_bps(routes, np.ones(2 + len(active)))
    return rate
