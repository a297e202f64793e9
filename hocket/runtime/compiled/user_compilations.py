"""Functions that a user has Dynamo compile: what they read of a model shows to nobody while they run.

Dynamo compiles for the class that a parameter has: those that wait are brought up to date before it begins.
"""

from __future__ import annotations

import weakref
from typing import Protocol

from torch._dynamo.callback import callback_handler


class CompilableTraining(Protocol):
    """One whose parameters a function may read."""

    def before_compilation(self) -> None:
        """Have nothing waiting that is about to be compiled."""


_TRAININGS: weakref.WeakSet[CompilableTraining] = weakref.WeakSet()


def prepare_for_compilations(training: CompilableTraining) -> None:
    """From now on call ``training.before_compilation`` before Dynamo compiles, as long as there is one."""
    _TRAININGS.add(training)
    if _begins not in callback_handler.start_callbacks:  # torch._dynamo.reset forgets it
        callback_handler.register_start_callback(_begins)


def _begins(*_: object) -> None:
    for training in list(_TRAININGS):
        training.before_compilation()
