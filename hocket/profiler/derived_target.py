"""Steps of a zoo's model or of a function in a file, derived for a device that is not here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import NamedTuple

from hocket.errors import HocketError
from hocket.profiler._batch import first_extent
from hocket.profiler._fake import fake
from hocket.profiler._step import make_step
from hocket.profiler.device import Recordings
from hocket.profiler.factory import StepSetup, load


class LoadedTarget(NamedTuple):
    """A target's step for the devices that it is derived for, its name, and the examples of its batch."""

    step: Recordings
    name: str
    batch_size: int


def load_target(
    target: str,
    batch_size: int | None,
    *,
    inference: bool = False,
    told: Callable[[str], object] = lambda _: None,
) -> LoadedTarget:
    """Build ``target``, a name of the zoo or ``FILE.py:FACTORY``, of fake tensors where that can be.

    ``batch_size``: None as :func:`hocket.profiler.load` takes it; ``told`` gets remarks on it.

    Raises
    ------
    HocketError
        As :func:`hocket.profiler.load` does.
    """
    with ExitStack() as built:
        built.enter_context(fake())
        try:
            setup = load(target, batch_size, training=not inference)
        except HocketError as error:
            if error.__cause__ is None:  # what the function returned is refused, whatever it is made of
                raise
            built.close()  # a function may need values, as some initializations do: then it gets memory
            setup = load(target, batch_size, training=not inference)
        step = make_step(*setup[:4], inference=inference)
        return LoadedTarget(Recordings(step), setup.name, num_examples(setup, target, batch_size, told))


def num_examples(
    setup: StepSetup, target: str, asked: int | None, told: Callable[[str], object] = lambda _: None
) -> int:
    """The examples of a step: of a function that makes one size only, those in its batch."""
    if setup.batch_size is not None:
        return setup.batch_size
    held = first_extent(setup.batch)
    if asked is None:
        if held is None:
            raise HocketError(f"{target} takes no batch_size, and its batch shows none; give --batch-size")
        return held
    if held not in (None, asked):
        told(f"{target} takes no batch_size: its first input holds {held}, counted as {asked} as you say")
    return asked
