"""A model in training: gradients leave as they are completed, parameters are updated before they are read.

Buckets with window "backward" are finished before the next forward pass begins, others when their first
parameter is about to be read, or whenever it is looked at. Hooks say when that is, or, where the step is
compiled, its graphs.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from hocket.errors import HocketError
from hocket.runtime.compiled.user_compilations import prepare_for_compilations
from hocket.runtime.lazy.forks import prepare_for_forks
from hocket.runtime.lazy.neutral_mode import outside_torch_modes
from hocket.runtime.lazy.parameter import await_update, give_back
from hocket.runtime.lazy.tensor_escapes import guard_escapes
from hocket.runtime.observe.liveness import LivenessWatch
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.training.buffers import StateBuffers
from hocket.runtime.training.first_readers import compiled_by_user
from hocket.runtime.training.hooks import ModelHooks
from hocket.runtime.training.optimizer_step import PartialStep
from hocket.runtime.training.rounds import Parameter, Rounds
from hocket.runtime.training.unnoticed_readers import UnnoticedReaders
from hocket.runtime.transfers.buckets import Bucket
from hocket.runtime.transfers.plan_layout import Layout, lay_out

if TYPE_CHECKING:
    from hocket.runtime.compiled.compiled_model import CompiledStep
    from hocket.runtime.training.join import UnevenInputs


class AllReduceTraining(ModelHooks):
    """One model's training on this rank.

    ``parameters``: the trained ones by name; ``buffers``: None where they are not kept equal; ``compile``:
    run the step through torch.compile. ``steps``: how many rounds were closed. ``between_steps`` is called
    before the forward pass that opens a step, when everything else is as the last step left it.
    ``of_all_ranks``: each rank's names, given this one's.
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
        self.of_all_ranks: Callable[[list[str]], list[list[str]]] = lambda names: [names]
        # Ranks with fewer batches than others; set where there are others.
        self.uneven: UnevenInputs | None = None
        self._forward_seen = False
        # Learned in the first steps, before gradients may leave in the middle of a backward pass.
        self.learning = True
        self.repeated_parameters: set[Parameter] = set()
        self.late_parameters: frozenset[Parameter] = frozenset()
        # Parameters whose gradients may be sparse, the same on all ranks.
        self.sparse_parameters: set[Parameter] = set()
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
        prepare_for_forks(self)
        prepare_for_compilations(self)
        guard_escapes()

    # Requests of others.

    def enforce(self, layout: Layout) -> None:
        """Send along ``layout`` from the next round on; all ranks do so at the same step."""
        self.finish_transfers()
        self.rounds.enforce(layout)
        self._plan = layout.plan
        self.recorder.forget()

    def learn_sparse(self, sparse_here: Iterable[torch.Tensor]) -> bool:
        """Agree with all ranks, which call this, on whose gradients may be sparse.

        ``sparse_here``: parameters whose gradients are sparse on this rank. Returns whether there are new
        ones.
        """
        held = set(sparse_here)
        mine = [name for name, p in self.parameters.items() if p in held]
        theirs = {name for names in self.of_all_ranks(mine) for name in names}
        new = {p for name, p in self.parameters.items() if name in theirs} - self.sparse_parameters
        self.sparse_parameters |= new
        if new and not self.rounds.sums_sparse:
            raise HocketError(
                f"'{min(self._names[p] for p in new)}' has sparse gradients, which are not summed up over"
                " NCCL; give its layer sparse=False"
            )
        if new:
            why = "gradients that may be sparse are waited for when the backward pass ends"
            self.rounds.barriers.stand(why, [self._names[p] for p in self.sparse_parameters])
        return bool(new)

    def end_learning(self) -> None:
        """The first steps have shown enough: gradients may leave from now on."""
        self.learning = False
        self._user_compiled = compiled_by_user(self.model)
        self._unnoticed_readers.blind_parameters |= self._user_compiled
        announced = self._readers.announced_parameters - self._user_compiled
        self._unannounced = tuple(p for p in self.parameters.values() if p not in announced)
        self._readers.keep_needed_hooks()

    def finish_transfers(self) -> None:
        """Wait for every transfer and run what waits for it."""
        self._check_round()
        self.rounds.finish_all()

    def update_parameters(self) -> None:
        """Bring every parameter up to date; transfers that no update waits for go on."""
        self.rounds.finish_all(only_updates=True)

    def before_loading(self) -> None:
        """Nothing that is on its way is to arrive behind what is going to be loaded."""
        self.update_parameters()
        if self.buffers is not None:
            with self.rounds.naming_culprit(for_next=False):
                self.buffers.receive()

    def before_fork(self) -> None:
        """A child is to find everything that this thread would, without waiting."""
        ours = self.rounds.thread == threading.get_ident() and not self.rounds.is_forked
        if ours and torch._C._current_graph_task_id() == -1:
            self.before_loading()

    def before_compilation(self) -> None:
        """Dynamo compiles for what it finds, and what it has compiled reads past us."""
        if self.rounds.is_forked or torch._C._current_graph_task_id() != -1:
            return
        if not self._depth:
            self._unnoticed_readers.user_compiles = True
        if self.rounds.unfinished and self.rounds.thread == threading.get_ident():
            self.update_parameters()

    def wait_for_gradients(self, why: str) -> None:
        """Have all gradients reduced and in their parameters, for something that needs them all (``why``)."""
        self.rounds.barriers.meet(why)
        self.finish_transfers()

    def accept(self, optimizer: torch.optim.Optimizer) -> None:
        """``optimizer`` is going to step."""
        self._members.accept(optimizer)

    def stepping(self, optimizer: torch.optim.Optimizer, barrier: str) -> Sequence[Bucket]:
        """A step of ``optimizer`` begins: its buckets that may still travel, none after a ``barrier``."""
        self._check_round()
        self._members.refuse_untrained(optimizer)
        mine = {p for group in optimizer.param_groups for p in group["params"]}
        travelling = []
        barrier = barrier or self._unnoticed_readers.of_everything()
        if barrier:
            whole = mine.issuperset(self.parameters.values())
            names = () if whole else [name for name, p in self.parameters.items() if p in mine]
            self.rounds.barriers.meet(barrier, names)
        for bucket in list(self.rounds.unfinished):
            if mine.isdisjoint(bucket.parameters):
                continue
            # A gradient that was dropped or replaced since is what the step is to see.
            why, names = self._unnoticed_readers.of_bucket(bucket, optimizer)
            if why:
                self.rounds.barriers.meet(why, names)
            if barrier or why or not bucket.has_stand_ins:
                self.rounds.finish(bucket)
            else:
                travelling.append(bucket)
        return travelling

    def defer(self, bucket: Bucket, step: PartialStep) -> None:
        """``step`` is to run when ``bucket`` has arrived; who touches its parameters waits for that."""
        bucket.pending_steps.append(step)
        finish = functools.partial(self.rounds.finish, bucket)
        waiting = [await_update(p, finish) for p in bucket.parameters]
        if not all(waiting):
            self.rounds.barriers.meet("parameters that something below Python refers to", bucket.names)
            finish()
        if bucket not in self.rounds.unfinished and bucket.pending_steps:
            # A signal's handler finished it since the step began.
            bucket.pending_steps.clear()
            for p in bucket.parameters:
                give_back(p)
            step.run()

    def record_update(self, parameters: Iterable[Parameter], start_s: float) -> None:
        """A step of ``parameters`` ran from ``start_s`` until now."""
        names = [self._names[p] for p in parameters if self._names.get(p) in self.parameters]
        if names:
            self.recorder.record_span("update", names, start_s)

    def detach(self) -> None:
        """Finish everything and leave the model as it was before."""
        self.finish_transfers()
        self.rounds.channel.stop()
        self._unhook()
        if self.compiled_step is not None:
            self.compiled_step.undo()

    # Ranks that have fewer batches than others.

    @property
    def _joins(self) -> bool:
        return self.uneven is not None and self.uneven.enabled

    def step_of_zeros(self) -> None:
        """Have a step, or end the one that has begun, with zeros for this rank's gradients, which stay."""
        self._check_round()
        if not self._in_step:
            with self.rounds.naming_culprit(), outside_torch_modes():
                self.between_steps()
        self.steps += 1
        self._in_step = self._expecting = False
        self.watch.steps, self.watch.stepping = self.steps, False
        self._learn_sparse([])
        self.rounds.send_zeros()

    # The forward pass.

    @property
    def _trains(self) -> bool:
        return super()._trains and not self.rounds.is_forked

    def _enter_forward(self, model: torch.nn.Module, arguments: object) -> None:
        self._check_round()
        super()._enter_forward(model, arguments)

    def _forward_begins(self) -> None:
        self.watch.passes += 1
        if not self._trains:
            self.rounds.finish_all()
            if self.buffers is not None:
                with self.rounds.naming_culprit(for_next=False):
                    self.buffers.evaluation_begins()
            return
        self._forward_seen = True
        self.rounds.thread = self.watch.thread = threading.get_ident()
        if self.uneven is not None:
            self.uneven.step_begins()
        if not self._in_step:
            self._in_step = self.watch.stepping = True
            self.recorder.begin_step(self.steps + 1)
            with self.rounds.naming_culprit(), outside_torch_modes():
                self.between_steps()
            self.recorder.resume()
        self._last_travels = self._travels
        self._synchronising = self._travels or self._expecting
        self.rounds.finish_all(only_backward=True)
        if self.buffers is not None and not self._joins:
            with self.rounds.naming_culprit():
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
        if not self.learning and parameter not in self.late_parameters:
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
            if self.learning or p in self.late_parameters:
                self.rounds.keep(p, gradients[0])
            else:
                self.rounds.hand_over(p, gradients[0])

    def _gradient_missing(self) -> None:
        self._round_open = True
        self._queue_end()

    def _note_gradient(self, p: Parameter, gradient: torch.Tensor) -> None:
        super()._note_gradient(p, gradient)
        if self._gradient_counts[p] > 1:
            self.repeated_parameters.add(p)
        self._round_open = True

    def _gradient_completed(self, p: Parameter) -> None:
        if not self.learning and p not in self.late_parameters:
            self.rounds.fill(p)

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

    def _learn_sparse(self, sparse_here: Iterable[torch.Tensor]) -> None:
        """In the first steps: agree on whose gradients may be sparse; ``sparse_here``: whose are here."""
        if not self.learning:
            return
        with self.rounds.naming_culprit(for_next=False):
            new = self.learn_sparse(sparse_here)
        if new:
            self.enforce(lay_out(self._plan, self.parameters, self.sparse_parameters))


def _is_sparse(gradient: torch.Tensor | None) -> bool:
    return gradient is not None and gradient.layout is torch.sparse_coo


def _compile(model: torch.nn.Module, training: AllReduceTraining) -> CompiledStep:
    try:
        from hocket.runtime.compiled.compiled_model import compile_model
    except ImportError as error:
        raise HocketError(
            f"compile=True does not know torch {torch.__version__} ({error}); use 2.13 or leave it out"
        ) from None
    return compile_model(model, training)
