"""A model in training: gradients leave as they are completed, parameters are updated before they are read.

Buckets with window "backward" are settled before the next forward pass begins, others when their first
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
from hocket.runtime.training.unnoticed_readers import Unnoticed
from hocket.runtime.transfers.buckets import Bucket, Layout, lay_out

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
        self._called = False
        # Learned in the first steps, before gradients may leave in the middle of a backward pass.
        self.learning = True
        self.often: set[Parameter] = set()
        self.late: frozenset[Parameter] = frozenset()
        # Parameters whose gradients may be sparse, the same on all ranks.
        self.sparse: set[Parameter] = set()
        self.wanted_order: Sequence[Parameter] | None = None
        self._round_open = False
        # A forward pass whose gradients travel has been since the last round: then passes under no_sync
        # beside it leave that as it is, as with DistributedDataParallel.
        self._expecting = False
        self._last_wanted = True
        self._anywhere: tuple[Parameter, ...] = tuple(self.parameters.values())
        # Reads of these are not heard of: what a user compiled, and parameters of classes of their own.
        self._unnoticed = Unnoticed(
            self._traced | {p for p in self._anywhere if type(p) is not torch.nn.Parameter}
        )
        self.compiled: CompiledStep | None = _compiled(model, self) if compile else None
        self._hook(self._anywhere)
        prepare_for_forks(self)
        prepare_for_compilations(self)
        guard_escapes()

    # Requests of others.

    def enforce(self, layout: Layout) -> None:
        """Send along ``layout`` from the next round on; all ranks do so at the same step."""
        self.settle_all()
        self.rounds.enforce(layout)
        self._plan = layout.plan
        self.recorder.forget()

    def learn_sparse(self, found: Iterable[torch.Tensor]) -> bool:
        """Agree with all ranks, which call this, on whose gradients may be sparse.

        ``found``: parameters whose gradients are sparse here. Returns whether there are new ones.
        """
        held = set(found)
        mine = [name for name, p in self.parameters.items() if p in held]
        theirs = {name for names in self.of_all_ranks(mine) for name in names}
        new = {p for name, p in self.parameters.items() if name in theirs} - self.sparse
        self.sparse |= new
        if new:
            why = "gradients that may be sparse are waited for when the backward pass ends"
            self.rounds.barriers.stand(why, [self._names[p] for p in self.sparse])
        return bool(new)

    def learned(self) -> None:
        """The first steps have shown enough: gradients may leave from now on."""
        self.learning = False
        self._traced = compiled_by_user(self.model)
        self._unnoticed.blind |= self._traced
        announced = self._readers.seen - self._traced
        self._anywhere = tuple(p for p in self.parameters.values() if p not in announced)
        self._readers.keep_needed_hooks()

    def settle_all(self) -> None:
        """Wait for every transfer and run what waits for it."""
        self._check_round()
        self.rounds.settle_all()

    def update_parameters(self) -> None:
        """Bring every parameter up to date; transfers that no update waits for go on."""
        self.rounds.settle_all(only_updates=True)

    def before_loading(self) -> None:
        """Nothing that is on its way is to arrive behind what is going to be loaded."""
        self.update_parameters()
        if self.buffers is not None:
            with self.rounds.blamed(for_next=False):
                self.buffers.receive()

    def before_fork(self) -> None:
        """A child is to find everything that this thread would, without waiting."""
        ours = self.rounds.thread == threading.get_ident() and not self.rounds.forked
        if ours and torch._C._current_graph_task_id() == -1:
            self.before_loading()

    def before_compilation(self) -> None:
        """Dynamo compiles for what it finds, and what it has compiled reads past us."""
        if self.rounds.forked or torch._C._current_graph_task_id() != -1:
            return
        if not self._depth:
            self._unnoticed.compiles = True
        if self.rounds.unsettled and self.rounds.thread == threading.get_ident():
            self.update_parameters()

    def wait_for_gradients(self, why: str) -> None:
        """Have all gradients reduced and in their parameters, for something that needs them all (``why``)."""
        self.rounds.barriers.meet(why)
        self.settle_all()

    def accept(self, optimizer: torch.optim.Optimizer) -> None:
        """``optimizer`` is going to step."""
        self._members.accept(optimizer)

    def stepping(self, optimizer: torch.optim.Optimizer, barrier: str) -> Sequence[Bucket]:
        """A step of ``optimizer`` begins: its buckets that may still travel, none after a ``barrier``."""
        self._check_round()
        self._members.refuse_untrained(optimizer)
        mine = {p for group in optimizer.param_groups for p in group["params"]}
        travelling = []
        barrier = barrier or self._unnoticed.of_everything()
        if barrier:
            whole = mine.issuperset(self.parameters.values())
            names = () if whole else [name for name, p in self.parameters.items() if p in mine]
            self.rounds.barriers.meet(barrier, names)
        for bucket in list(self.rounds.unsettled):
            if mine.isdisjoint(bucket.parameters):
                continue
            # A gradient that was dropped or replaced since is what the step is to see.
            why, names = self._unnoticed.of_bucket(bucket, optimizer)
            if why:
                self.rounds.barriers.meet(why, names)
            if barrier or why or not bucket.untouched:
                self.rounds.settle(bucket)
            else:
                travelling.append(bucket)
        return travelling

    def defer(self, bucket: Bucket, step: PartialStep) -> None:
        """``step`` is to run when ``bucket`` has arrived; who touches its parameters waits for that."""
        bucket.pending.append(step)
        settle = functools.partial(self.rounds.settle, bucket)
        waiting = [await_update(p, settle) for p in bucket.parameters]
        if not all(waiting):
            self.rounds.barriers.meet("parameters that something below Python refers to", bucket.names)
            settle()
        if bucket not in self.rounds.unsettled and bucket.pending:
            # A signal's handler settled it since the step began.
            bucket.pending.clear()
            for p in bucket.parameters:
                give_back(p)
            step.run()

    def updated(self, parameters: Iterable[Parameter], started: float) -> None:
        """A step of ``parameters`` ran from ``started`` until now."""
        names = [self._names[p] for p in parameters if self._names.get(p) in self.parameters]
        if names:
            self.recorder.spent("update", names, started)

    def detach(self) -> None:
        """Settle everything and leave the model as it was before."""
        self.settle_all()
        self.rounds.channel.stop()
        self._unhook()
        if self.compiled is not None:
            self.compiled.undo()

    # Ranks that have fewer batches than others.

    @property
    def _joins(self) -> bool:
        return self.uneven is not None and self.uneven.enabled

    def step_of_zeros(self) -> None:
        """Have a step, or end the one that has begun, with zeros for this rank's gradients, which stay."""
        self._check_round()
        if not self._in_step:
            with self.rounds.blamed(), outside_torch_modes():
                self.between_steps()
        self.steps += 1
        self._in_step = self._expecting = False
        self.watch.steps, self.watch.stepping = self.steps, False
        self._learn_sparse([])
        self.rounds.send_zeros()

    # The forward pass.

    @property
    def _trains(self) -> bool:
        return super()._trains and not self.rounds.forked

    def _enter_forward(self, model: torch.nn.Module, arguments: object) -> None:
        self._check_round()
        super()._enter_forward(model, arguments)

    def _forward_begins(self) -> None:
        self.watch.passes += 1
        if not self._trains:
            self.rounds.settle_all()
            if self.buffers is not None:
                with self.rounds.blamed(for_next=False):
                    self.buffers.evaluation_begins()
            return
        self._called = True
        self.rounds.thread = self.watch.thread = threading.get_ident()
        if self.uneven is not None:
            self.uneven.step_begins()
        if not self._in_step:
            self._in_step = self.watch.stepping = True
            self.recorder.begin_step(self.steps + 1)
            with self.rounds.blamed(), outside_torch_modes():
                self.between_steps()
            self.recorder.resume()
        self._last_wanted = self._wanted
        self._synchronising = self._wanted or self._expecting
        self.rounds.settle_all(only_backward=True)
        if self.buffers is not None and not self._joins:
            with self.rounds.blamed():
                changed = self.buffers.forward_begins()
            if changed:
                self.rounds.barriers.meet("buffers were changed between steps, and were sent again", changed)
        if self.compiled is None:
            self._root_reads()
        else:
            for p in self.parameters.values():
                if p not in self.compiled.waited:
                    self.rounds.need(p)
                give_back(p)  # Dynamo compiles for classes, and its graphs wait for what they read
        if self.learning and self.compiled is None:
            self._note_reads()

    def _forward_ended(self, output: object) -> None:
        super()._forward_ended(output)
        self._expecting |= self._wanted and output is not None  # there is none where it raised
        if self.buffers is not None and not self._joins:
            self.buffers.forward_ended(self._wanted, raised=self._raised(output))

    def _about_to_read(self, parameters: Sequence[Parameter]) -> None:
        if self.rounds.unsettled:
            for p in parameters:
                self.rounds.need(p)

    def first_read(self, parameters: tuple[Parameter, ...]) -> None:
        """A compiled graph is about to read ``parameters``."""
        trained = [p for p in parameters if self._names[p] in self.parameters]
        if trained:
            self._module_reads(self._names[trained[0]].rpartition(".")[0], trained)

    def _root_reads(self) -> None:
        """Make ready the parameters that no module announces, which user-compiled code may read anywhere."""
        if self._anywhere:
            self._module_reads("", self._anywhere)

    # The backward pass.

    def gradient(self, parameter: Parameter, gradient: torch.Tensor) -> None:
        """A compiled graph has completed ``gradient``, which autograd is going to accumulate."""
        if not self._synchronising or self._names[parameter] not in self.parameters:
            return
        self._produced(parameter, gradient)
        if not self.learning and parameter not in self.late:
            before = parameter.grad
            self.rounds.fill(parameter, gradient if before is None else before + gradient)

    def gradient_order(self) -> Sequence[Parameter] | None:
        """The plan's order of gradients."""
        return self.wanted_order

    def _accumulated(self, p: Parameter, before: object, gradients: Sequence[torch.Tensor | None]) -> None:
        if self.compiled is None or not self.compiled.reported(p):
            super()._accumulated(p, before, gradients)

    def _gradient_missing(self) -> None:
        self._round_open = True
        self._queue_end()

    def _produced(self, p: Parameter, gradient: torch.Tensor) -> None:
        super()._produced(p, gradient)
        if self._fired[p] > 1:
            self.often.add(p)
        self._round_open = True

    def _gradient_completed(self, p: Parameter) -> None:
        if not self.learning and p not in self.late:
            assert p.grad is not None
            self.rounds.fill(p, p.grad)

    def _backward_ended(self) -> None:
        if self._round_open:
            self._finish_round()

    def _check_round(self) -> None:
        if self.rounds.broken:
            raise HocketError(self.rounds.broken)
        if self._round_open and torch._C._current_graph_task_id() == -1:
            raise HocketError(
                "an exception ended the last backward pass after gradients had left; other ranks have them:"
                " start all of them again from a checkpoint"
            )

    def _finish_round(self) -> None:
        self._members.refuse_thawed()
        self._round_open = self._callback_queued = self._in_step = self._expecting = False
        self._synchronising = self._last_wanted
        self._fired.clear()
        self.steps += 1
        self.rounds.barriers.steps = self.steps
        if not self._called:
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
        self.rounds.settle_sparse()
        self.rounds.settle_unused(unused)
        self.rounds.settle_held()
        if why := self._unnoticed.of_everything():
            self.rounds.barriers.meet(why)
            self.settle_all()

    def _learn_sparse(self, found: Iterable[torch.Tensor]) -> None:
        """In the first steps: agree on whose gradients may be sparse; ``found``: whose are, here."""
        if not self.learning:
            return
        with self.rounds.blamed(for_next=False):
            new = self.learn_sparse(found)
        if new:
            self.enforce(lay_out(self._plan, self.parameters, self.sparse))


def _is_sparse(gradient: torch.Tensor | None) -> bool:
    return gradient is not None and gradient.layout is torch.sparse_coo


def _compiled(model: torch.nn.Module, training: AllReduceTraining) -> CompiledStep:
    try:
        from hocket.runtime.compiled.compiled_model import compile_model
    except ImportError as error:
        raise HocketError(
            f"compile=True does not know torch {torch.__version__} ({error}); use 2.13 or leave it out"
        ) from None
    return compile_model(model, training)
