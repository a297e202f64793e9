"""The job of several ranks that a step was recorded from: what an answer can be checked against."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

Lists = tuple[tuple[Annotated[int, msgspec.Meta(ge=0)], ...], ...]


class RecordedUnits(msgspec.Struct, frozen=True, kw_only=True):
    """The units of a recorded job that FSDP2 sharded.

    Attributes
    ----------
    units, forward_prefetch, backward_prefetch, reshard_after_forward
        As in a :class:`hocket.Plan` of architecture "fsdp".
    scattered_per_gathered
        Bytes of gradients that are scattered for each byte of parameters that is gathered: 2 where these
        travel as bfloat16 and gradients as float32.

    Examples
    --------
    >>> from hocket.graph.recorded_run import RecordedUnits
    >>> RecordedUnits(units=(("0.weight", "0.bias"),), reshard_after_forward=(True,)).scattered_per_gathered
    1.0
    """

    units: tuple[tuple[str, ...], ...]
    forward_prefetch: Lists | None = None
    backward_prefetch: Lists | None = None
    reshard_after_forward: tuple[bool, ...]
    scattered_per_gathered: Annotated[float, msgspec.Meta(gt=0, le=64)] = 1.0


class RecordedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded job's workers, and what its steps took.

    Attributes
    ----------
    workers
        The number that trained together.
    step_s, exposed_s
        Seconds from a step to the next, and of these what the device waited for collectives; medians.
    reductions
        The parameters of each all-reduce, in the order of their launch; empty where that is not known.
    network
        Times of collectives, as ``hocket.network/1`` writes them; None where it was not recorded.
    sharded
        The units of a job that FSDP2 sharded, a :class:`RecordedUnits`; None for data-parallel training.

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
    sharded: RecordedUnits | None = None
