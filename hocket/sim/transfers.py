"""Batches as they travel: one part for each server that holds some of a batch's parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.graph import Csr, StepGraph
from hocket.graph.csr import Indices


@dataclass(frozen=True, kw_only=True)
class Transfers:
    """The parts of the plan's batches in one direction, numbered in plan order.

    ``bits``, ``server`` and ``batch`` (parts,): size and where it belongs; row s of ``of_server`` and row b
    of ``of_batch`` list the parts of server s and batch b; ``part_of`` (p,) is the part that carries a
    parameter, -1 for one that does not travel.
    """

    bits: npt.NDArray[np.float64]
    server: Indices
    batch: Indices
    of_server: Csr
    of_batch: Csr
    part_of: Indices

    @property
    def num_parts(self) -> int:
        """Number of parts."""
        return len(self.bits)

    def server_bits(self) -> npt.NDArray[np.float64]:
        """Bits that one worker exchanges with each server, shape (servers,)."""
        return np.array(
            [self.bits[row].sum() for row in map(self.of_server.row, range(self.of_server.num_rows))]
        )


def parts_of_batches(
    batches: Sequence[Sequence[str]], graph: StepGraph, home: Indices, num_servers: int
) -> Transfers:
    """Cut each batch of parameter names by where its parameters live; ``home`` (p,): the server of each."""
    index = {name: i for i, name in enumerate(graph.parameter_names)}
    part_of = np.full(graph.num_parameters, -1, dtype=np.int64)
    of_server: list[list[int]] = [[] for _ in range(num_servers)]
    of_batch: list[list[int]] = []
    bits: list[float] = []
    for batch in batches:
        parts: dict[int, int] = {}
        for name in batch:
            i = index[name]
            server = int(home[i])
            if server not in parts:
                parts[server] = len(bits)
                of_server[server].append(len(bits))
                bits.append(0.0)
            part_of[i] = parts[server]
            bits[parts[server]] += 8.0 * float(graph.parameter_bytes[i])
        of_batch.append(list(parts.values()))
    by_server, by_batch = Csr.from_rows(of_server), Csr.from_rows(of_batch)
    return Transfers(
        bits=np.array(bits, dtype=np.float64),
        server=by_server.transpose(len(bits)).indices,
        batch=by_batch.transpose(len(bits)).indices,
        of_server=by_server,
        of_batch=by_batch,
        part_of=part_of,
    )
