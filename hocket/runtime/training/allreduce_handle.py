"""``model.hocket`` of a model that trains with AllReduce."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch

from hocket.runtime.training.allreduce_training import AllReduceTraining
from hocket.runtime.training.choice_memory import ChoiceMemory
from hocket.runtime.training.explain import MeasuredTimeline, explanation, timeline_of
from hocket.runtime.training.handle import TrainingHandle
from hocket.runtime.training.plan_trials import Choice
from hocket.runtime.transfers.norms import EARLY_ORDERS


class AllReduceHandle(TrainingHandle[AllReduceTraining, Choice]):
    """The training of one model on this rank: ``model.hocket`` after :func:`hocket.distribute`.

    Raises
    ------
    HocketError
        From :meth:`flush`, :meth:`detach` and within :meth:`join`, where another rank is lost, or late for
        longer than ``timeout_s``.

    Examples
    --------
    >>> import hocket, torch
    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.Linear(4, 2)
    >>> model, optimizer = hocket.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1))
    >>> for _ in range(3):
    ...     model(torch.ones(3, 4)).sum().backward()
    ...     optimizer.step()
    >>> model.hocket.timeline.save("measured.json")
    >>> model.hocket.detach()
    >>> dist.destroy_process_group()
    """

    def __init__(
        self,
        training: AllReduceTraining,
        decision: Choice,
        memory: ChoiceMemory,
        undo: Sequence[Callable[[], object]],
    ) -> None:
        super().__init__(training, decision, undo)
        self._memory = memory

    def state_dict(self) -> dict[str, Any]:
        """The choice of a plan as plain data, for a checkpoint: :meth:`load_state_dict` takes it.

        Without a plan in it before :attr:`settled`, and where the plan was given.
        """
        return self._memory.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin with the plan of ``state``, which :meth:`state_dict` returned; rank 0's counts.

        It is checked beside DistributedDataParallel's for some steps. One for another model, network or
        number of ranks is left out, and a plan chosen.

        Raises
        ------
        HocketError
            For another kind of state, and from the third step on: the plan is being chosen then.
        """
        self._memory.load(state)

    @property
    def timeline(self) -> MeasuredTimeline:
        """The last 8 steps of all ranks that answer within 5 seconds each; any rank may ask, at any time.

        A :class:`hocket.runtime.training.explain.MeasuredTimeline`: its ``save(path)`` writes it.
        """
        title = f"{type(self._training.model).__name__}, {self.plan.policy}, measured"
        return timeline_of(self._training.watch.ask(), title)

    def explain(self) -> str:
        """A report: the plan in force and why, what limits this rank's steps, and what forces a barrier."""
        training = self._training
        training.recorder.flush()
        report = explanation(training.recorder, self._decision, training.rounds.barriers)
        clock = training.rounds.clock
        return f"whose clock: {clock}\n{report}" if clock else report

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> AbstractContextManager[Any]:
        """Within, ranks may have different numbers of batches, as with ``DistributedDataParallel.join``.

        A rank that leaves takes part in the steps of the others, with zeros for gradients, until all have
        left; then every rank has the model of the one that was last. Plans are not tried meanwhile. The
        parameters are DistributedDataParallel's.
        """
        uneven = self._training.uneven
        assert uneven is not None
        block: AbstractContextManager[Any] = uneven.join(
            divide_by_initial_world_size, enable, throw_on_early_termination
        )
        return block

    def clip_grad_norm(
        self, max_norm: float, norm_type: float, error_if_nonfinite: bool, foreach: bool | None
    ) -> torch.Tensor:
        """As :func:`hocket.clip_grad_norm_`."""
        training = self._training
        order = float(norm_type)  # torch takes "inf", too
        if order in EARLY_ORDERS:
            training.rounds.early_answers.note(order)
        if order not in training.rounds.channel.norm_orders:
            training.wait_for_gradients("clipping by norm needs every gradient")
        parameters = [p for p in training.model.parameters() if p.requires_grad]
        return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)
