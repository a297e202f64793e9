"""The job of several ranks that a step was recorded from: what an answer can be checked against."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded job's workers, and what its steps took.

    Attributes
    ----------
    workers
        How many trained together.
    step_s, exposed_s
        Seconds from a step to the next, and of these what the device waited for all-reduces; medians.
    reductions
        The parameters of each all-reduce, in the order of their launch; empty where that is not known.
    network
        What all-reduces took, as ``hocket.network/1`` writes it; None where it was not recorded.

    Examples
    --------
    >>> import hocket
    >>> hocket.load_step("step.json").recorded is None
    True
    """

    workers: Annotated[int, msgspec.Meta(ge=2, le=1_000_000)]
    step_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)]
    exposed_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)]
    reductions: tuple[tuple[str, ...], ...] = ()
    network: dict[str, Any] | None = None
