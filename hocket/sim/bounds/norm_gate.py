"""The norm of a clipped step as a gate: all gradients are there before any update behind it runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from hocket.graph import StepGraph
from hocket.graph.clipped_step import behind, norm_operations

Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class NormGate:
    """The norm's own seconds, and parameters (p,) whose updates wait for it.

    ``gated``: which parameters those are; ``after_s``: seconds of their updates behind the norm.
    """

    norm_s: float
    gated: Mask
    after_s: Floats

    def rest_s(self, awaited: Mask, tail: Floats) -> float:
        """Seconds from the last gradient to an operation that needs the parameters ``awaited`` (p,); 0: none.

        ``tail`` (p,): seconds from the first read of each parameter to that operation.
        """
        here = self.gated & awaited
        return self.norm_s + float((self.after_s + tail)[here].max()) if here.any() else 0.0


def norm_gate(graph: StepGraph, update: Mask) -> NormGate | None:
    """The gate of ``graph``; None where no norm of all gradients is waited for."""
    work = graph.oracle_s
    reader, read = graph.reads.row_of_entry(), graph.reads.indices
    for norm in norm_operations(graph).tolist():
        later = behind(graph, norm) & update
        of_later = later[reader]
        if not of_later.any():
            continue
        gated, after_s = np.zeros(graph.num_parameters, bool), np.zeros(graph.num_parameters)
        gated[read[of_later]] = True
        np.add.at(after_s, read[of_later], work[reader[of_later]])
        return NormGate(float(work[norm]), gated, after_s)
    return None
