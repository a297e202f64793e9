"""Checks of what a worker says: it knows the job's token, and its client may be faulty all the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hocket.errors import HocketError
from hocket.graph import Plan
from hocket.runtime.ps.wire.model_spec import Spec
from hocket.runtime.ps.wire.training_messages import Settings
from hocket.runtime.ps.wire.transport import TransportError


def real(text: str) -> float:
    """The number that a message holds as text; TransportError where it is none."""
    try:
        return float(text)
    except ValueError:
        raise TransportError(f"'{text}' is no number") from None


def check_settings(spec: Spec, settings: Settings) -> None:
    """Refuse an optimizer's settings that are not of the kind of the spec's; TransportError."""
    if len(settings) != len(spec.settings):
        raise TransportError(f"settings of {len(settings)} groups; the optimizer has {len(spec.settings)}")
    for theirs, ours in zip(settings, spec.settings, strict=True):
        for name, value in theirs.items():
            known = ours.get(name)
            if None not in (known, value) and _kind(known) is not _kind(value):
                raise TransportError(f"the optimizer's '{name}' is {value!r}, and was {known!r}")


def check_plan(spec: Spec, plan: Plan) -> None:
    """Refuse a plan that does not pull and push each of the spec's parameters; TransportError."""
    names = sorted(tensor.name for tensor in spec.parameters)
    for batches in (plan.pulls, plan.pushes):
        if sorted(name for batch in batches for name in batch.parameters) != names:
            raise TransportError("a plan that does not cover every parameter once")


@contextlib.contextmanager
def servable(worker: int) -> Iterator[None]:
    """Refuse, with HocketError, a model or an optimizer that torch does not make."""
    try:
        yield
    except (TypeError, ValueError, RuntimeError, OverflowError, MemoryError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise HocketError(f"the model of worker {worker} cannot be served: {reason}") from None


def _kind(value: Any) -> type:
    return float if isinstance(value, int) and not isinstance(value, bool) else type(value)
