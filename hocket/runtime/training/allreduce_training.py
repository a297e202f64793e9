"""A model in training with AllReduce: what others ask of it, between and beside its passes.

Optimizers leave it what has not arrived; forks, compilations and what loads a state wait for updates.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

import torch

from hocket.errors import HocketError
from hocket.graph import Plan
from hocket.runtime.compiled.user_compilations import prepare_for_compilations
from hocket.runtime.lazy.forks import prepare_for_forks
from hocket.runtime.lazy.neutral_mode import outside_torch_modes
from hocket.runtime.lazy.parameter import await_updates, give_back
from hocket.runtime.lazy.tensor_escapes import guard_escapes
from hocket.runtime.observe.liveness import LivenessWatch
from hocket.runtime.observe.recorder import Moment, SpanRecorder
from hocket.runtime.training.allreduce_passes import AllReducePasses
from hocket.runtime.training.buffers import StateBuffers
from hocket.runtime.training.culprit import naming_culprit
from hocket.runtime.training.first_readers import compiled_by_user
from hocket.runtime.training.optimizer_step import PartialStep
from hocket.runtime.training.rounds import Parameter, Rounds
from hocket.runtime.transfers.buckets import Bucket
from hocket.runtime.transfers.norms import USUAL_ORDERS
from hocket.runtime.transfers.plan_layout import lay_out
from hocket.text import counted

# Of so many parameters it counts what putting off their updates costs: each as long as so many bytes travel.
_MANY, _SMALL_BYTES = 100, 2048


class AllReduceTraining(AllReducePasses):
    """One model's training on this rank; arguments are those of its passes.

    ``of_all_ranks``: each rank's names, given this one's. ``gradient_dtype``: the type in which longer
    gradients travel from the next :meth:`enforce` on; None: all as they are.
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
        super().__init__(model, parameters, rounds, buffers, watch, recorder, compile=compile)
        self.of_all_ranks: Callable[[list[str]], list[list[str]]] = lambda names: [names]
        # Parameters whose gradients may be sparse, the same on all ranks.
        self.sparse_parameters: set[Parameter] = set()
        self._trained_names = {p: name for name, p in self.parameters.items()}
        self.gradient_dtype: torch.dtype | None = None
        # Of norms that steps take, the same on all ranks.
        self.norm_orders: Sequence[float] = USUAL_ORDERS
        prepare_for_forks(self)
        prepare_for_compilations(self)
        guard_escapes()

    # Requests of others.

    def enforce(self, plan: Plan) -> None:
        """Send by ``plan`` from the next round on; all ranks do so at the same step."""
        self.finish_transfers()
        layout = lay_out(
            plan, self.parameters, self.sparse_parameters, self.gradient_dtype, self.rounds.num_ranks
        )
        self.rounds.enforce(layout, self.norm_orders)
        self._plan = plan
        self.recorder.gradient_dtype = self.gradient_dtype
        self.recorder.forget()

    def shorten_gradients(self, dtype: torch.dtype) -> None:
        """Have longer gradients travel as ``dtype``, before the first step, which all ranks are to agree on.

        Raises
        ------
        HocketError
            Where it is too late, where it was asked to be another one, or for gradients that may be sparse.
        """
        if self.gradient_dtype is dtype:
            return
        if self.gradient_dtype is not None:
            raise HocketError(f"gradients travel as {self.gradient_dtype} already; ask for one of both")
        if self.steps or self._in_step:
            raise HocketError(
                f"gradients have travelled for {counted(self.steps, 'step')} as they are; have them travel as"
                f" {dtype} before the first forward pass"
            )
        self._refuse_short_sparse(self.sparse_parameters, dtype)
        self.gradient_dtype = dtype
        self.enforce(self._plan)

    def _refuse_short_sparse(self, sparse: Iterable[Parameter], dtype: torch.dtype | None) -> None:
        name = min((self._names[p] for p in sparse), default=None)
        if name is not None and dtype is not None:
            raise HocketError(
                f"'{name}' has sparse gradients, which travel as they are and not as {dtype}; give its layer"
                " sparse=False, or leave the shorter type out"
            )

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
        self._refuse_short_sparse(new, self.gradient_dtype)
        if new:
            why = "gradients that may be sparse are waited for when the backward pass ends"
            self.rounds.barriers.stand(why, [self._names[p] for p in self.sparse_parameters])
        return bool(new)

    def _learn_sparse(self, sparse_here: Iterable[torch.Tensor]) -> None:
        """In the first steps: agree on whose gradients may be sparse; ``sparse_here``: whose are here."""
        if not self.learning:
            return
        with naming_culprit(self.watch, for_next=False):
            new = self.learn_sparse(sparse_here)
        if new:
            self.enforce(self._plan)

    def end_learning(self) -> None:
        """The first steps have shown enough: gradients may leave from now on."""
        self.learning = self._counts_gradients = False
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
            with naming_culprit(self.watch, for_next=False):
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
        self._finish_small(mine)
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

    def _finish_small(self, mine: Set[Parameter]) -> None:
        """Finish buckets with parameters of ``mine`` whose updates take longer to put off than to wait for.

        Each parameter that waits for its update costs the processor some ten microseconds.
        """
        buckets = [bucket for bucket in self.rounds.unfinished if not mine.isdisjoint(bucket.parameters)]
        if not self.rounds.steps_together or sum(len(b.parameters) for b in buckets) < _MANY:
            return
        for bucket in buckets:
            is_small = bucket.num_bytes < _SMALL_BYTES * len(bucket.parameters)
            # The next forward pass would wait for those of window "backward" before anything else.
            if self.rounds.channel.has_arrived(bucket) or (is_small and not bucket.forward):
                self.rounds.finish(bucket)

    def defer(self, bucket: Bucket, step: PartialStep) -> None:
        """``step`` is to run when ``bucket`` has arrived; who touches its parameters waits for that."""
        bucket.pending_steps.append(step)
        finish = functools.partial(self.rounds.finish, bucket)
        if not await_updates(bucket.parameters, finish):
            self.rounds.barriers.meet("parameters that something below Python refers to", bucket.names)
            finish()
        if bucket not in self.rounds.unfinished and bucket.pending_steps:
            # A signal's handler finished it since the step began.
            bucket.pending_steps.clear()
            for p in bucket.parameters:
                give_back(p)
            step.run()

    def record_update(self, parameters: Iterable[Parameter], start: Moment) -> None:
        """A step of ``parameters`` ran from ``start`` until now."""
        names = [name for p in parameters if (name := self._trained_names.get(p)) is not None]
        if names:
            self.recorder.record_updates([names], start)

    def detach(self) -> None:
        """Finish everything and leave the model as it was before."""
        self.finish_transfers()
        self.rounds.channel.stop()
        self._unhook()
        if self.compiled_step is not None:
            self.compiled_step.undo()

    # Ranks that have fewer batches than others.

    def step_of_zeros(self) -> None:
        """Have a step, or end the one that has begun, with zeros for this rank's gradients, which stay."""
        self._check_round()
        if not self._in_step:
            with naming_culprit(self.watch), outside_torch_modes():
                self.between_steps()
        self.steps += 1
        self._in_step = self._expecting = False
        self.watch.steps, self.watch.stepping = self.steps, False
        self._learn_sparse([])
        self.rounds.send_zeros()
