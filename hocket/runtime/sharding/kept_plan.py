"""A plan as it is kept for the next run, ``hocket.sharded/1``: units hold from its start."""

from __future__ import annotations

import hashlib
import os
import socket
import time
from typing import Literal

import msgspec
import torch
from torch.distributed.device_mesh import DeviceMesh

import hocket
from hocket.document import convert_document
from hocket.errors import HocketError
from hocket.graph import Plan
from hocket.graph.io import plan_document, plan_from_document
from hocket.network import Network
from hocket.runtime.sharding.shard_choice import ShardChoice
from hocket.runtime.training.choice_folder import ChoiceFolder
from hocket.runtime.transfers.gloo_group import GlooGroup, broadcast_value, gather_values

KEPT_FORMAT = "hocket.sharded/1"


class KeptPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A plan, and the step and network that it was made for.

    ``key``: of all that it holds for but the batch, which nobody knows when a model is sharded; ``chosen``:
    the day; ``compute_s``: what the step computed, ``network``: as it was measured, None where it was given.
    """

    key: str
    model: str
    ranks: int
    torch: str
    hocket: str
    chosen: str
    plan: dict[str, object]
    compute_s: float
    network: Network | None = None
    format: Literal["hocket.sharded/1"] = "hocket.sharded/1"


class PlanMemory:
    """The kept plan of one training; ``folder``: None where nothing is kept. Rank 0 reads and writes."""

    def __init__(
        self, folder: ChoiceFolder | None, control: GlooGroup, key: str, choice: ShardChoice
    ) -> None:
        self._folder, self._control, self._key, self._choice = folder, control, key, choice

    def recall(self) -> tuple[Plan, str] | None:
        """The plan that was kept, and of which step in words; the same on all ranks."""
        found = self._found() if self._control.rank == 0 else None
        told = broadcast_value([] if found is None else [found], self._control, list[KeptPlan])
        if not told:
            return None
        kept = told[0]
        of_step = f"a step that computes {kept.compute_s * 1e3:.3g} ms"
        why = f"it was planned on {kept.chosen} for {of_step} (HOCKET_FORGET=1 plans anew)"
        self._choice.planned_compute_s = kept.compute_s
        return plan_from_document(kept.plan, "the kept plan"), why

    def keep(self, plan: Plan, compute_s: float) -> None:
        """Keep ``plan`` for the next run."""
        if self._folder is None or self._control.rank != 0:
            return
        choice = self._choice
        kept = KeptPlan(
            key=self._key,
            model=plan.model,
            ranks=choice.ranks,
            torch=str(torch.__version__),
            hocket=hocket.__version__,
            chosen=time.strftime("%Y-%m-%d"),
            plan=plan_document(plan),
            compute_s=compute_s,
            network=None if choice.network_given else choice.network,
        )
        try:
            self._folder.save(self._key, msgspec.to_builtins(kept))
        except HocketError as error:
            choice.remark(f"the plan is not kept: {error}")

    def _found(self) -> KeptPlan | None:
        """The plan that is kept; one that is none, or of something else, is said to be so and left out."""
        if self._folder is None:
            return None
        source = str(self._folder.file(self._key))
        try:
            document = self._folder.load(self._key)
            if document is None:
                return None
            kept = convert_document(document, KeptPlan, source, KEPT_FORMAT)
            if kept.key != self._key:
                raise HocketError(f"{source}: was planned for another model, mesh, or version")
            plan_from_document(kept.plan, source)
        except HocketError as error:
            self._choice.remark(f"what was kept is not taken: {error}")
            return None
        return kept


def key_of(
    policy: str, model: torch.nn.Module, mesh: DeviceMesh, control: GlooGroup, network: Network | None
) -> str:
    """The key of a policy's plans for this model on this mesh, all of whose ranks ask; rank 0's counts.

    Of hosts it has which ranks share one, as hosts may be others in each run.
    """
    here = [socket.gethostname(), os.environ.get("GLOO_SOCKET_IFNAME", "")]
    places = gather_values(here, control, list[str])
    hosts = list(dict.fromkeys(host for host, _ in places))
    facts = [
        f"sharded by {policy}",
        type(model).__name__,
        [(name, tuple(p.shape), str(p.dtype), p.requires_grad) for name, p in model.named_parameters()],
        [(hosts.index(host), interface) for host, interface in places],
        [mesh.device_type, tuple(mesh.shape)],
        [str(torch.__version__), hocket.__version__],
        "measured" if network is None else repr(network),
    ]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]
