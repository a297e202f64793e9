"""Forked processes, such as workers that load data, begin with what the last step made of the model.

Transfers go on in threads, and a child has none: what was on its way when it began never arrives there.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Protocol


class ForkableTraining(Protocol):
    """One that a fork may come upon."""

    def before_fork(self) -> None:
        """Have nothing on its way that a child may read."""


_TRAININGS: weakref.WeakSet[ForkableTraining] = weakref.WeakSet()


def prepare_for_forks(training: ForkableTraining) -> None:
    """From now on call ``training.before_fork`` before this process forks, as long as there is one."""
    _TRAININGS.add(training)


def _before() -> None:
    for training in list(_TRAININGS):
        # The script wants a child, and is told of what failed by its next step.
        with contextlib.suppress(Exception):
            training.before_fork()


os.register_at_fork(before=_before)
