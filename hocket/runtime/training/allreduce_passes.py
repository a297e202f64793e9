"""Passes of a model that trains with AllReduce: gradients leave as they are completed, in rounds.

Buckets with window "backward" are finished before the next forward pass begins, others when their first
parameter is about to be read, or whenever it is looked at. Hooks say when that is, or, where the step is
compiled, its graphs.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from hocket.errors import HocketError
from hocket.runtime.lazy.neutral_mode import outside_torch_modes
from hocket.runtime.lazy.parameter import give_back
from hocket.runtime.observe.liveness import LivenessWatch
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.training.buffers import StateBuffers
from hocket.runtime.training.culprit import naming_culprit
from hocket.runtime.training.hooks import ModelHooks
from hocket.runtime.training.rounds import Parameter, Rounds
from hocket.runtime.training.unnoticed_readers import UnnoticedReaders

if TYPE_CHECKING:
    from hocket.runtime.compiled.compiled_model import CompiledStep
    from hocket.runtime.training.join import UnevenInputs


class AllReducePasses(ModelHooks):
    """The forward and backward passes of ``model`` on this rank, which begin and end ``rounds``.

    ``parameters``: the trained ones by name; ``buffers``: None where they are not kept equal; ``compile``:
    run the step through torch.compile. ``steps``: how many rounds were closed. ``between_steps`` is called
    before the forward pass that opens a step, when everything else is as the last step left it.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        parameters: Mapping[str, Parameter],
        rounds: Rounds,
        buffers: StateBuffers | None,
        watch: LivenessWatch,
        recorder: SpanRecorder,
        *,
        compile: bool,  # noqa: A002
    ) -> None:
        super().__init__(model, recorder)
        self.parameters = dict(parameters)
        self.rounds = rounds
        self.buffers = buffers
        self.watch = watch
        self.steps = 0
        self.between_steps: Callable[[], None] = lambda: None
        # Ranks with fewer batches than others; set where there are others.
        self.uneven: UnevenInputs | None = None
        self._forward_seen = False
        # Learned in the first steps, before gradients may leave in the middle of a backward pass.
        self.learning = True
        self.repeated_parameters: set[Parameter] = set()
        self.late_parameters: frozenset[Parameter] = frozenset()
        self.planned_gradients: Sequence[Parameter] | None = None
        self._round_open = False
        # A forward pass whose gradients travel has been since the last round: then passes under no_sync
        # beside it leave that as it is, as with DistributedDataParallel.
        self._expecting = False
        self._last_travels = True
        self._unannounced: tuple[Parameter, ...] = tuple(self.parameters.values())
        # Reads of these are not heard of: what a user compiled, and parameters of classes of their own.
        self._unnoticed_readers = UnnoticedReaders(
            self._user_compiled | {p for p in self._unannounced if type(p) is not torch.nn.Parameter}
        )
        self.compiled_step: CompiledStep | None = _compile(model, self) if compile else None
        self._hook(self._unannounced)

    # Requests of passes.

    @abstractmethod
    def finish_transfers(self) -> None:
        """Wait for every transfer and run what waits for it."""

    @abstractmethod
    def _learn_sparse(self, sparse_here: Iterable[torch.Tensor]) -> None:
        """In the first steps: agree on whose gradients may be sparse; ``sparse_here``: whose are here."""

    # The forward pass.

    @property
    def _trains(self) -> bool:
        return super()._trains and not self.rounds.is_forked

    @property
    def _joins(self) -> bool:
        return self.uneven is not None and self.uneven.enabled

    def _enter_forward(self, model: torch.nn.Module, arguments: object) -> None:
        self._check_round()
        super()._enter_forward(model, arguments)

    def _forward_begins(self) -> None:
        self.watch.passes += 1
        if not self._trains:
            self.rounds.finish_all()
            if self.buffers is not None:
                with naming_culprit(self.watch, for_next=False):
                    self.buffers.evaluation_begins()
            return
        self._forward_seen = True
        self.rounds.thread = self.watch.thread = threading.get_ident()
        if self.uneven is not None:
            self.uneven.step_begins()
        if not self._in_step:
            self._in_step = self.watch.stepping = True
            self.recorder.begin_step(self.steps + 1)
            with naming_culprit(self.watch), outside_torch_modes():
                self.between_steps()
            self.recorder.resume()
        self._last_travels = self._travels
        self._synchronising = self._travels or self._expecting
        self.rounds.finish_all(only_backward=True)
        if self.buffers is not None and not self._joins:
            with naming_culprit(self.watch):
                changed = self.buffers.forward_begins()
            if changed:
                self.rounds.barriers.meet("buffers were changed between steps, and were sent again", changed)
        if self.compiled_step is None:
            self._root_reads()
        else:
            for p in self.parameters.values():
                if p not in self.compiled_step.awaited_parameters:
                    self.rounds.finish_before_read(p)
                give_back(p)  # Dynamo compiles for classes, and its graphs wait for what they read
        if self.learning and self.compiled_step is None:
            self._note_reads()

    def _forward_ended(self, output: object) -> None:
        super()._forward_ended(output)
        self._expecting |= self._travels and output is not None  # there is none where it raised
        if self.buffers is not None and not self._joins:
            self.buffers.forward_ended(self._travels, raised=self._has_raised(output))

    def _about_to_read(self, parameters: Sequence[Parameter]) -> None:
        if self.rounds.unfinished:
            for p in parameters:
                self.rounds.finish_before_read(p)

    def first_read(self, parameters: tuple[Parameter, ...]) -> None:
        """A compiled graph is about to read ``parameters``."""
        trained = [p for p in parameters if self._names[p] in self.parameters]
        if trained:
            self._module_reads(self._names[trained[0]].rpartition(".")[0], trained)

    def _root_reads(self) -> None:
        """Make ready the parameters that no module announces, which user-compiled code may read anywhere."""
        if self._unannounced:
            self._module_reads("", self._unannounced)

    # The backward pass.

    def gradient(self, parameter: Parameter, gradient: torch.Tensor) -> None:
        """A compiled graph has completed ``gradient``, which autograd is going to accumulate."""
        if not self._synchronising or self._names[parameter] not in self.parameters:
            return
        self._note_gradient(parameter, gradient)
        if not self.learning and not self._is_late(parameter):
            before = self.rounds.move_out(parameter)
            self.rounds.fill(parameter, gradient if before is None else before + gradient)

    def gradient_order(self) -> Sequence[Parameter] | None:
        """The plan's order of gradients."""
        return self.planned_gradients

    def _after_accumulation(
        self, p: Parameter, before: object, gradients: Sequence[torch.Tensor | None]
    ) -> None:
        if self.compiled_step is None or not self.compiled_step.is_reported(p):
            super()._after_accumulation(p, before, gradients)
            if not self._synchronising or gradients[0] is None:
                return
            if self.learning or self._is_late(p):
                self.rounds.keep(p, gradients[0])
            else:
                self.rounds.hand_over(p, gradients[0])

    def _gradient_missing(self) -> None:
        self._round_open = True
        self._queue_end()

    def _note_gradient(self, p: Parameter, gradient: torch.Tensor) -> None:
        super()._note_gradient(p, gradient)
        if self.learning and self._gradient_counts[p] > 1:
            self.repeated_parameters.add(p)
        self._round_open = True

    def _gradient_completed(self, p: Parameter) -> None:
        if not self.learning and not self._is_late(p):
            self.rounds.fill(p)

    def _is_late(self, p: Parameter) -> bool:
        # Hardly any model has such. A parameter's hash is Python's, and each look costs one a gradient.
        return bool(self.late_parameters) and p in self.late_parameters

    def _backward_ended(self) -> None:
        if self._round_open:
            self._finish_round()

    def _check_round(self) -> None:
        if self.rounds.failure:
            raise HocketError(self.rounds.failure)
        if self._round_open and torch._C._current_graph_task_id() == -1:
            raise HocketError(
                "an exception ended the last backward pass after gradients had left; other ranks have them:"
                " start all of them again from a checkpoint"
            )

    def _finish_round(self) -> None:
        self._members.refuse_thawed()
        self._round_open = self._callback_queued = self._in_step = self._expecting = False
        self._synchronising = self._last_travels
        self._gradient_counts.clear()
        self.steps += 1
        self.rounds.barriers.steps = self.steps
        if not self._forward_seen:
            # A loop may call parts of the model alone, and be right but for its buffers.
            why = (
                "no forward pass is seen: call the model, not its forward or its parts; until then no plan is"
            )
            self.rounds.barriers.meet(f"{why} made and buffers are each rank's own")
        self.watch.steps, self.watch.stepping = self.steps, False
        if self.learning:  # a look at each gradient costs
            self._learn_sparse([p for p in self.parameters.values() if _is_sparse(p.grad)])
        unused = self.rounds.close()
        if self.buffers is not None and not self._joins:
            self.buffers.round_ended()
        if self.uneven is not None:
            self.uneven.step_ended()
        self.recorder.backward_ended()
        self.rounds.finish_sparse()
        self.rounds.finish_unused(unused)
        self.rounds.finish_aliased()
        if why := self._unnoticed_readers.of_everything():
            self.rounds.barriers.meet(why)
            self.finish_transfers()


def _is_sparse(gradient: torch.Tensor | None) -> bool:
    return gradient is not None and gradient.layout is torch.sparse_coo


def _compile(model: torch.nn.Module, training: AllReducePasses) -> CompiledStep:
    try:
        from hocket.runtime.compiled.compiled_model import compile_model
    except ImportError as error:
        raise HocketError(
            f"compile=True does not know torch {torch.__version__} ({error}); use 2.13 or leave it out"
        ) from None
    return compile_model(model, training)
