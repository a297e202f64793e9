"""``model.hocket`` of a model that trains with parameter servers."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager

import torch

from hocket.errors import HocketError
from hocket.graph.plan import planned_for_others
from hocket.runtime.ps.wire.order_statistics import OrderStatistics
from hocket.runtime.ps.worker.plan_switch import PlanSwitch
from hocket.runtime.ps.worker.served_training import ServedTraining
from hocket.runtime.training.explain import (
    TIMELINE_STEPS,
    MeasuredTimeline,
    mean_of,
    rank_record,
    timeline_of,
)
from hocket.runtime.training.handle import TrainingHandle


class ServedHandle(TrainingHandle[ServedTraining, PlanSwitch]):
    """The training of one model on this worker: ``model.hocket`` with parameter servers.

    :meth:`detach` also leaves the job. There is one only within ``hocket train --architecture ps``.

    Raises
    ------
    HocketError
        From :meth:`flush` and :meth:`detach`, where a server is lost, or late for longer than the job's
        timeout.
    """

    @property
    def first_step(self) -> int:
        """The number of this worker's steps that servers' values hold already; its data begin after them."""
        return self._training.client.first_step

    @property
    def order(self) -> OrderStatistics:
        """The number of transfers, and of those that were overtaken."""
        return self._training.client.order

    @property
    def timeline(self) -> MeasuredTimeline:
        """This worker's last 8 steps, a :class:`hocket.runtime.training.explain.MeasuredTimeline`."""
        title = f"{type(self._training.model).__name__}, {self.plan.policy}, measured"
        record = rank_record(self._training.recorder, self._training.client.worker, 0.0)
        return timeline_of([record], title)

    def explain(self) -> str:
        """A report: the plan in force, whether transfers keep its order, and the parts of a step's time."""
        training, order = self._training, self.order
        rule = training.client.job.rule
        when = f"when the optimizer steps: {training.late}" if training.late else "as they are completed"
        lines = [
            f"plan '{self.plan.policy}', {'in force' if self.settled else 'for now'}: {len(self.plan.pulls)}"
            f" pulls, {len(self.plan.pushes)} pushes; {rule.mode}, {training.steps} steps",
            f"out of order: {order.out_of_order('pull'):.2%} of {order.transfers['pull']} pulls,"
            f" {order.out_of_order('push'):.2%} of {order.transfers['push']} pushes",
            f"gradients leave {when}",
        ]
        if remark := planned_for_others(self.plan, rule.workers):
            lines.append(remark)
        count, first_s, spans = training.recorder.last_steps(TIMELINE_STEPS)
        if count:
            step_s = (list(training.recorder.begins)[-1] - first_s) / count
            waits_s = sum(end - start for kind, _, start, end in spans if kind == "wait") / count
            lines.append(
                f"a step: {step_s * 1e3:.1f} ms ({mean_of(training.recorder, count)} on this worker),"
                f" of which {waits_s * 1e3:.1f} ms wait for parameters"
            )
        return "\n".join(lines)

    def join(
        self,
        divide_by_initial_world_size: bool = True,
        enable: bool = True,
        throw_on_early_termination: bool = False,
    ) -> AbstractContextManager[None]:
        """Nothing is to be done where workers do not wait for each other.

        Raises
        ------
        HocketError
            Where they do.
        """
        if enable and self._training.client.job.rule.mode == "sync":
            raise HocketError(
                "servers of a synchronous job wait for every worker in each step, so no worker may join with"
                " fewer batches; give every worker the same number (drop_last, or an even sampler), or train"
                " with --mode async"
            )
        return contextlib.nullcontext()

    def clip_grad_norm(
        self, max_norm: float, norm_type: float, error_if_nonfinite: bool, foreach: bool | None
    ) -> torch.Tensor:
        """As :func:`hocket.clip_grad_norm_`, of the mean gradients; asynchronous, of this worker's own."""
        training = self._training
        if training.client.job.rule.mode == "sync":
            return training.clip_grad_norm(max_norm, norm_type, error_if_nonfinite)
        parameters = [p for p in training.model.parameters() if p.requires_grad]
        clip = torch.nn.utils.clip_grad_norm_
        return training.clip_own_grad_norm(
            lambda: clip(parameters, max_norm, norm_type, error_if_nonfinite, foreach), max_norm
        )
