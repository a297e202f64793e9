"""``model.hocket`` of a model that is fully sharded."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from hocket.graph import Plan, StepGraph
from hocket.graph.plan import transfers_text
from hocket.network import Network
from hocket.notebook import ObjectSummary, Summarized
from hocket.runtime.sharding.shard_choice import ShardChoice
from hocket.runtime.sharding.shard_report import explanation, measured_timeline
from hocket.runtime.sharding.sharded_model import ShardedModel
from hocket.runtime.training.explain import MeasuredTimeline
from hocket.runtime.training.first_readers import no_hook


class ShardedHandle(Summarized):
    """The sharding of one model on this rank: ``model.hocket`` after :func:`hocket.shard`.

    The model is torch's (``torch.distributed.fsdp.FSDPModule``); its own methods stay as they are.

    Examples
    --------
    >>> import hocket, torch
    >>> import torch.distributed as dist
    >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    >>> model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))
    >>> model, optimizer = hocket.shard(model, lambda p: torch.optim.SGD(p, lr=0.1), plan="fsdp")
    >>> model.hocket.plan.units
    (('0.weight', '0.bias'), ('1.weight', '1.bias'))
    >>> model.hocket.settled
    True
    >>> dist.destroy_process_group()
    """

    def __init__(self, sharded: ShardedModel, choice: ShardChoice) -> None:
        self._sharded, self._choice = sharded, choice

    def _summary(self) -> ObjectSummary:
        name, choice = type(self._sharded.model).__name__, self._choice
        following = choice.next_plan
        lines = [("plan", transfers_text(choice.plan)), ("stays", "yes" if choice.settled else "not yet")]
        if following is not None:
            lines.append(("next run", f"'{following.policy}': {transfers_text(following)}"))
        lines.append(("more", "explain() says what runs beside what, timeline what ran when"))
        where = f"plan '{choice.plan.policy}', {choice.phase}, step {self._sharded.events.steps}"
        return ObjectSummary(f"Handle of {name}, sharded: {where}", lines)

    @property
    def plan(self) -> Plan:
        """The plan in force, a :class:`hocket.Plan` of architecture "fsdp"."""
        return self._choice.plan

    @property
    def next_plan(self) -> Plan | None:
        """The plan that the next run of this training begins with, where it has other units; else None.

        Units cannot be changed once a model is sharded.
        """
        return self._choice.next_plan

    @property
    def settled(self) -> bool:
        """True if the plan in force stays in this run."""
        return self._choice.settled

    @property
    def phase(self) -> str:
        """The purpose of the present steps: "settled", or "profiling"."""
        return self._choice.phase

    @property
    def profile(self) -> StepGraph | None:
        """The step that the plan was made for, a :class:`hocket.StepGraph`; None where none was recorded."""
        return self._choice.graph

    @property
    def network(self) -> Network | None:
        """The network that was given, else as it was measured to plan for it; None where neither has been."""
        return self._choice.network

    @property
    def largest_unit_bytes(self) -> int:
        """Bytes of the full parameters of the largest unit."""
        return self._sharded.largest_unit_bytes

    @property
    def timeline(self) -> MeasuredTimeline:
        """The last steps of this rank, up to 8: computing, waiting, all-gathers and reduce-scatters.

        A :class:`hocket.runtime.training.explain.MeasuredTimeline`. Of a GPU there is none: its transfers are
        torch's own, and torch.profiler shows them.
        """
        title = f"{type(self._sharded.model).__name__}, {self.plan.policy}, measured"
        return measured_timeline(self._sharded.events, self.plan, title)

    def explain(self) -> str:
        """A report: the plan in force and why, what runs beside what, and what this rank waits for."""
        return explanation(self._sharded, self._choice)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within, gradients accumulate on this rank: torch's ``set_requires_gradient_sync(False)``."""
        self._sharded.require_sync(False)
        try:
            yield
        finally:
            self._sharded.require_sync(True)

    def clip_grad_norm(
        self, max_norm: float, norm_type: float, error_if_nonfinite: bool, foreach: bool | None
    ) -> torch.Tensor:
        """As :func:`hocket.clip_grad_norm_`: torch's own, whose norm is that of all shards."""
        parameters = [p for p in self._sharded.model.parameters() if p.requires_grad]
        norm: Any = torch.nn.utils.clip_grad_norm_(
            parameters, max_norm, norm_type, error_if_nonfinite, foreach
        )
        whole: torch.Tensor = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        return whole

    def __reduce__(self) -> Any:
        return no_hook, ()
