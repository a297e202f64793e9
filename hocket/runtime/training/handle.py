"""The base of ``model.hocket``: the answers that all handles give, whatever gradients travel by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Generic, Protocol, TypeVar

import torch

from hocket.graph import Plan, StepGraph
from hocket.graph.plan import transfers_text
from hocket.network import Network
from hocket.notebook import ObjectSummary, Summarized
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.training.first_readers import no_hook
from hocket.text import scaled_text


class HookedTraining(Protocol):
    """A training whose hooks are on ``model``."""

    model: torch.nn.Module
    recorder: SpanRecorder
    steps: int

    def finish_transfers(self) -> None:
        """Bring every parameter up to date."""

    def no_sync(self) -> AbstractContextManager[None]:
        """Within, gradients accumulate here."""


class PlanDecision(Protocol):
    """The plan in force, whether it stays, what the steps until then are for, and the plan's network."""

    @property
    def plan(self) -> Plan:
        """The plan in force."""

    @property
    def settled(self) -> bool:
        """True if it stays."""

    @property
    def phase(self) -> str:
        """The purpose of the present steps; "settled" where the plan stays."""

    @property
    def network(self) -> Network | None:
        """The network that the plan was made for; None where there is none."""


T = TypeVar("T", bound=HookedTraining)
D = TypeVar("D", bound=PlanDecision)


class TrainingHandle(Summarized, ABC, Generic[T, D]):
    """The training of one model on this process; :meth:`detach` takes it off again."""

    def __init__(self, training: T, decision: D, undo: Sequence[Callable[[], object]]) -> None:
        self._training = training
        self._decision = decision
        self._undo = undo

    def _summary(self) -> ObjectSummary:
        name, steps, network = type(self._training.model).__name__, self._training.steps, self.network
        measured = "not known yet"
        if network is not None:
            measured = f"{scaled_text(network.bandwidth_bps, 'bit/s')}, {network.num_workers} workers"
        where = f"plan '{self.plan.policy}', {self._decision.phase}, step {steps}"
        return ObjectSummary(
            f"Handle of {name}: {where}",
            [
                ("plan", transfers_text(self.plan)),
                ("stays", "yes" if self.settled else "not yet: the first steps learn, profile and try plans"),
                ("network", measured),
                ("more", "explain() says what limits the step, timeline what ran when"),
            ],
        )

    @property
    def plan(self) -> Plan:
        """The plan in force, a :class:`hocket.Plan`."""
        return self._decision.plan

    @property
    def settled(self) -> bool:
        """True if the plan in force stays: the first steps learn, profile and may try plans.

        Also where the plan was given. Where steps drift, a plan is chosen again, and it is False meanwhile.
        """
        return self._decision.settled

    @property
    def phase(self) -> str:
        """The purpose of the present steps: "settled" where the plan in force stays, else "learning",
        "profiling", "planning" or the plan that is tried.
        """
        return self._decision.phase

    @property
    def profile(self) -> StepGraph | None:
        """The step as this process runs it, a :class:`hocket.StepGraph`, measured beside a busy network.

        Bytes are those that travel. None before the first whole steps.
        """
        return self._training.recorder.graph(type(self._training.model).__name__, 1)

    @property
    def network(self) -> Network | None:
        """The network that was given, else as it was measured to plan for it; None where neither has been."""
        return self._decision.network

    @property
    def first_step(self) -> int:
        """The number of steps that count already, where a job goes on; a process's data begin after them."""
        return 0

    def flush(self) -> None:
        """Wait for every transfer and bring all parameters up to date; other processes need not take part.

        Gradients of a backward pass that has not ended go on travelling.

        Raises
        ------
        HocketError
            When another process is lost or late: nothing is waited for longer than ``timeout_s``.
        """
        self._training.finish_transfers()

    def no_sync(self) -> AbstractContextManager[None]:
        """Within, gradients accumulate on this process, as with ``DistributedDataParallel.no_sync``."""
        return self._training.no_sync()

    @abstractmethod
    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> AbstractContextManager[Any]:
        """Within, ranks may have different numbers of batches, as with ``DistributedDataParallel.join``."""

    def detach(self) -> None:
        """Bring everything up to date, and leave model and optimizers as they were given to us.

        Raises
        ------
        HocketError
            As :meth:`flush`.
        """
        self._training.finish_transfers()
        for undo in self._undo:
            undo()

    def __deepcopy__(self, memo: Any) -> None:
        """A copy of the model trains nothing."""

    def __reduce__(self) -> Any:
        return no_hook, ()
