"""Planning on rank 0 while all ranks train: they hear in the same step that it is over."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import NoReturn, Protocol

from hocket.errors import HocketError
from hocket.graph import Plan
from hocket.runtime.transfers.gloo_group import GlooGroup, broadcast_number, broadcast_value

_MOMENT_S = 0.2  # as long as measuring the network takes, which steps wait for, too


class Planning(Protocol):
    """The making of plans, which has begun."""

    def is_over(self) -> bool:
        """True once :meth:`plans` waits for nothing."""

    def wait(self, limit_s: float) -> None:
        """Wait until it is over, for ``limit_s`` seconds at most."""

    def plans(self) -> Sequence[Plan]:
        """The plans, the most promising first, once they are made.

        Raises
        ------
        HocketError
            Where there are none.
        """

    def end(self) -> object:
        """End it: nobody wants its plans."""


class _Refused:
    """Planning that could not begin, for this ``reason``."""

    def __init__(self, reason: HocketError) -> None:
        self._reason = reason

    def is_over(self) -> bool:
        return True

    def wait(self, limit_s: float) -> None:
        """There is nothing to wait for."""

    def plans(self) -> NoReturn:
        raise self._reason

    def end(self) -> None:
        """Nothing runs."""


def made_plans(
    begin: Callable[[], Planning] | None, control: GlooGroup, *, train_on: bool
) -> Generator[None, None, tuple[Sequence[Plan], str]]:
    """The plans of what ``begin`` begins on rank 0, and on others none; resumed before each step.

    ``train_on``: train until they are made, and where planning fails, return why on all ranks: plans that may
    be faster are no reason to end a training.

    Raises
    ------
    HocketError
        Where planning fails, on rank 0, unless trained on.
    """
    planning, plans, failure = None if begin is None else _begun(begin), list[Plan](), ""
    try:
        if train_on:
            yield from _train_until_over(planning, control)
        if planning is not None:
            plans.extend(planning.plans())
    except HocketError as error:
        if not train_on:
            raise
        failure = str(error)
    finally:
        if planning is not None:
            planning.end()
    return plans, broadcast_value(failure, control, str)


def _begun(begin: Callable[[], Planning]) -> Planning:
    try:
        return begin()
    except HocketError as error:
        return _Refused(error)


def _train_until_over(planning: Planning | None, control: GlooGroup) -> Generator[None, None, None]:
    """Train until ``planning`` is over, which rank 0 alone has; resumed before each step.

    Planning of a moment is waited for: a few short steps would take longer beside it. At the begin of each
    step rank 0 tells whether it is over, and at the begin of the next one all have heard it: none waits for
    another rank, or has heard of it in another step.
    """
    if planning is not None:
        planning.wait(_MOMENT_S)
    if broadcast_number(_over(planning), control):
        return
    while True:
        told = control.start_number(_over(planning))
        yield
        if told.wait():
            return


def _over(planning: Planning | None) -> float:
    return float(planning is None or planning.is_over())
