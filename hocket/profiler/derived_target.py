"""Steps of a zoo's model or of a function in a file, derived for a device that is not here."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from hocket.errors import HocketError
from hocket.graph import StepGraph
from hocket.profiler._batch import first_extent
from hocket.profiler._fake import fake
from hocket.profiler._step import make_step
from hocket.profiler.device import Target, derive
from hocket.profiler.factory import StepSetup, load

USUAL_BATCH = 32
"""Examples of a batch that a model is given where nobody says."""


def derive_target(
    target: str,
    batch_size: int | None,
    way: Target,
    *,
    inference: bool = False,
    jitter: tuple[float, int, int] = (0.0, 1, 0),
    told: Callable[[str], object] = lambda _: None,
) -> StepGraph:
    """Derive one worker's step of ``target``, a name of the zoo or ``FILE.py:FACTORY``; nothing is run.

    ``batch_size``: None for :data:`USUAL_BATCH`, or what the function makes; ``jitter``: by how much sampled
    steps vary, how many there are, and the seed; ``told`` gets remarks on the batch.

    Raises
    ------
    HocketError
        As :func:`hocket.profiler.load` and :func:`hocket.profiler.derive` do.
    """
    asked = USUAL_BATCH if batch_size is None else batch_size
    with ExitStack() as built:
        built.enter_context(fake())
        try:
            setup = load(target, asked, training=not inference)
        except HocketError:
            built.close()  # a function may need values, as some initializations do: then it gets memory
            setup = load(target, asked, training=not inference)
        scale, samples, seed = jitter
        return derive(
            make_step(*setup[:4], inference=inference),
            device=way,
            name=setup.name,
            batch_size=num_examples(setup, target, batch_size, told),
            samples=samples,
            jitter=scale,
            seed=seed,
        )


def num_examples(
    setup: StepSetup, target: str, asked: int | None, told: Callable[[str], object] = lambda _: None
) -> int:
    """The examples of a step: of a function that makes one size only, those in its batch."""
    if setup.takes_batch_size:
        return USUAL_BATCH if asked is None else asked
    held = first_extent(setup.batch)
    if asked is None:
        if held is None:
            raise HocketError(f"{target} takes no batch_size, and its batch shows none; give --batch-size")
        return held
    if held not in (None, asked):
        told(f"{target} takes no batch_size: its first input holds {held}, counted as {asked} as you say")
    return asked
