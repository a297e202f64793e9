"""An optimizer's state while steps are still to run: they are run before it is read or replaced.

As with parameters that await an update (:mod:`hocket.runtime.lazy.parameter`): the optimizer is of a class of
its own, whose ``state`` runs what is pending. Its steps run in the class that it was made of, and pay
nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

_PLAIN = "_hocket_plain"


def watch_state(optimizer: torch.optim.Optimizer, update: Callable[[], None]) -> Callable[[], None]:
    """Call ``update`` before the state of ``optimizer`` is read or replaced; returns what undoes it."""
    plain: Any = type(optimizer)
    watched: Any = optimizer

    # It is ``optimizer`` that counts: frameworks derive wrappers of theirs from its class.
    def read(_: object) -> Any:
        update()
        return vars(optimizer)["state"]

    def replace(_: object, state: Any) -> None:
        update()
        vars(optimizer)["state"] = state

    def reduced(_: object, protocol: Any) -> Any:
        with in_its_class(optimizer):  # copies and pickles are of what the user made
            parts: Any = optimizer.__reduce_ex__(protocol)
        # Pickle refuses its own way of making an object that is of another class.
        return object.__new__, *parts[1:]

    # A class of one instance: calling it, as it is the optimizer's, means the one that the user made.
    def new(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if cls is waiting:
            return plain(*args, **kwargs)
        made = plain.__new__
        return made(cls) if made is object.__new__ else made(cls, *args, **kwargs)

    members = {"__module__": plain.__module__, "__qualname__": plain.__qualname__, _PLAIN: plain}
    members |= {"state": property(read, replace), "__reduce_ex__": reduced, "__new__": new}
    waiting: Any = type(plain.__name__, (plain,), members)
    watched.__class__ = waiting

    def undo() -> None:
        watched.__class__ = plain

    return undo


@contextlib.contextmanager
def in_its_class(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Within, ``optimizer`` is of the class that it was made of."""
    given: Any = optimizer
    watched = type(optimizer)
    given.__class__ = getattr(watched, _PLAIN, watched)
    try:
        yield
    finally:
        given.__class__ = watched
