"""``model.hocket``: what a user can ask of a model in training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from hocket.graph import Plan, StepGraph
from hocket.network import Network
from hocket.runtime.measured import MeasuredTimeline, explanation, timeline_of
from hocket.runtime.reads import no_hook
from hocket.runtime.selection import Choice
from hocket.runtime.training import Training


class Handle:
    """The training of one model on this rank."""

    def __init__(self, training: Training, choice: Choice, undo: Sequence[Callable[[], None]]) -> None:
        self._training = training
        self._choice = choice
        self._undo = undo

    @property
    def plan(self) -> Plan:
        """The plan in force."""
        return self._choice.plan

    @property
    def settled(self) -> bool:
        """Whether the plan in force stays: the first steps learn, profile and try plans."""
        return self._choice.settled

    @property
    def profile(self) -> StepGraph | None:
        """The step as this rank runs it now, beside a busy network; None before the first whole steps."""
        return self._training.recorder.graph(type(self._training.model).__name__, 1)

    @property
    def network(self) -> Network | None:
        """The network that was planned for, its AllReduce as measured; None until then."""
        return self._choice.network

    @property
    def timeline(self) -> MeasuredTimeline:
        """The last steps of all ranks that answer within some seconds; any rank may ask, at any time."""
        title = f"{type(self._training.model).__name__}, {self.plan.policy}, measured"
        return timeline_of(self._training.watch.ask(), title)

    def explain(self) -> str:
        """Which plan is in force and why, what limits this rank's steps, and what forces a barrier."""
        training = self._training
        return explanation(training.recorder, self._choice, list(training.rounds.barriers), training.steps)

    def flush(self) -> None:
        """Wait for every transfer and bring all parameters up to date; other ranks need not take part.

        Gradients of a backward pass that has not ended go on travelling.
        """
        self._training.settle_all()

    def clip_grad_norm(
        self, max_norm: float, norm_type: float, error_if_nonfinite: bool, foreach: bool | None
    ) -> torch.Tensor:
        """As :func:`hocket.clip_grad_norm_`."""
        training = self._training
        training.wait_for_gradients("clipping by norm needs every gradient")
        parameters = [p for p in training.model.parameters() if p.requires_grad]
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)

    def no_sync(self) -> AbstractContextManager[None]:
        """Within, gradients accumulate on this rank, as with ``DistributedDataParallel.no_sync``."""
        return self._training.no_sync()

    def detach(self) -> None:
        """Bring everything up to date and leave model and optimizers as they were given to us."""
        self._training.settle_all()
        for undo in self._undo:
            undo()

    def __deepcopy__(self, memo: Any) -> None:
        """A copy of the model trains nothing."""

    def __reduce__(self) -> Any:
        return no_hook, ()
