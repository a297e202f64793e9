"""Begin training with parameter servers: what turns a process into a server, or a worker of them."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Mapping

import msgspec
import torch

from hocket.errors import HocketError
from hocket.graph import check_plan
from hocket.graph.plan import planned_for_others
from hocket.launch import ServedJob, heartbeats
from hocket.logs import logger
from hocket.network import Network
from hocket.runtime.observe.exit_status import notice_exits, script_failed
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.ps.server.shard import state_of
from hocket.runtime.ps.wire.layout import Frame
from hocket.runtime.ps.wire.model_spec import spec_of
from hocket.runtime.ps.wire.order_statistics import Direction
from hocket.runtime.ps.wire.packing import PackedValues, overwrite
from hocket.runtime.ps.worker.client import Client
from hocket.runtime.ps.worker.plan_switch import PlanSwitch, PullTimes, ServerPlanner
from hocket.runtime.ps.worker.served_optimizer import attach
from hocket.runtime.ps.worker.served_training import ServedTraining
from hocket.runtime.ps.worker.server_handle import ServedHandle
from hocket.runtime.training.ddp_attributes import give_ddp_attributes
from hocket.runtime.training.explain import rank_record, timeline_of
from hocket.runtime.training.module_access import update_before_access
from hocket.runtime.training.parameter_ownership import claim
from hocket.runtime.training.plan_source import PlanSource
from hocket.runtime.training.trainable import Optimizers, optimizers_of, outline, trained_parameters


def serve(
    model: torch.nn.Module,
    optimizer: Optimizers,
    source: PlanSource[ServerPlanner],
    *,
    job: ServedJob,
    worker: int,
    broadcast_buffers: bool = True,
    timeline_path: str | None = None,
) -> None:
    """Attach the training of ``model`` on worker ``worker`` of ``job``; ``model.hocket`` is its handle.

    A plan that is given holds from the first step on. All workers call this; parameters, buffers and the
    optimizer's state become worker 0's, or, for one that comes again, what the servers have by now. With
    ``broadcast_buffers`` those of worker 0 hold in each step, without they are this worker's own from then
    on.

    Raises
    ------
    HocketError
        For what cannot be trained this way, and when servers cannot be reached or refuse this worker.
    """
    plan, planner = source.plan, source.planner
    optimizers = optimizers_of(optimizer)
    if len(optimizers) != 1:
        raise HocketError(f"{len(optimizers)} optimizers: servers run one; put all parameters in its groups")
    (only,) = optimizers
    trained = trained_parameters(model, optimizers, job.timeout_s)
    mine = {p for group in only.param_groups for p in group["params"]}
    parameters = {name: p for name, p in trained.items() if p in mine}
    if not parameters or not mine.issubset(set(model.parameters())):
        raise HocketError(
            "the optimizer has parameters that are not the model's, or none of them; give it those"
        )
    buffers = {name: b for name, b in model.named_buffers() if b.numel()}
    frozen = {name: p for name, p in model.named_parameters() if name not in parameters and p.numel()}
    spec = spec_of(parameters, only, buffers, frozen)
    recorder, times = SpanRecorder(parameters), PullTimes()

    def values() -> PackedValues:
        tensors, others = state_of(only, parameters)
        everything = {**parameters, **buffers, **frozen}
        return {name: t.detach() for name, t in everything.items()} | tensors, others

    def note_transfer(
        direction: Direction, server: int, frame: Frame, started_s: float, ended_s: float
    ) -> None:
        recorder.record_transfer(direction, f"{direction} {frame.name}", started_s, ended_s)
        if direction == "pull":
            times.add(client.connections[server].label, server, frame, ended_s)

    step = outline(model, parameters)
    if plan is not None:
        # Operations are known only once the step is; the rest of the rules can be checked now.
        check_plan(msgspec.structs.replace(plan, compute_order=None), step)
        if plan.barrier != job.rule.barrier:
            raise HocketError(
                f"plan '{plan.policy}' has barrier '{plan.barrier}', but servers were started with"
                f" '{job.rule.barrier}'; start them with --barrier {plan.barrier}"
            )
    client = Client(job, worker, spec, values, note_transfer)
    _load({**parameters, **buffers, **frozen}, client.initial)
    client.initial = {}
    training = ServedTraining(model, only, parameters, list(buffers), client, recorder, broadcast_buffers)
    first = (
        msgspec.structs.replace(planner.first_plan(step), workers=job.rule.workers) if plan is None else plan
    )
    if worker == 0 and (remark := planned_for_others(first, job.rule.workers)):
        logger.warning("%s", remark)

    def known_network() -> Network | None:
        return source.network if source.network is not None else times.network(job.rule.workers, job.servers)

    plan_switch = PlanSwitch(training, client, planner, first, known_network, plan_given=plan is not None)
    client.use_plan(first, drawn_anew=planner.drawn_anew)
    training.between_steps = plan_switch
    training.begin()
    if heartbeats.signer is not None:
        heartbeats.signer.progress = training.progress
    # At the latest with the process, if nobody detaches the model.
    notice_exits()
    path = timeline_path if worker == 0 else None
    ended = weakref.finalize(model, _end, client, recorder, f"{type(model).__name__}, measured", path)
    undo: list[Callable[[], object]] = [
        *(attach(only, training, parameters), update_before_access(model, training), training.detach),
        *(claim(model, parameters), ended),
    ]
    handle = vars(model)["hocket"] = ServedHandle(training, plan_switch, undo)
    give_ddp_attributes(model, handle, None, broadcast_buffers)


@torch.no_grad()
def _load(into: Mapping[str, torch.Tensor], values: Mapping[str, torch.Tensor]) -> None:
    for name, tensor in into.items():
        overwrite(tensor, values[name])


def _end(client: Client, recorder: SpanRecorder, title: str, timeline_path: str | None) -> None:
    if client.owns(threading.current_thread()):
        # Garbage is collected wherever something is made, and what this waits for has to be received here.
        given = [client, recorder, title, timeline_path]
        threading.Thread(target=_end, args=given, name="hocket-end").start()
        return
    try:
        if timeline_path is not None:
            timeline_of([rank_record(recorder, client.worker, 0.0)], title).save(timeline_path)
    finally:
        # A worker whose script has failed has not finished: it is lost.
        if script_failed():
            client.close()
        else:
            _finish(client)


def _finish(client: Client) -> None:
    try:
        client.finish()
    except HocketError as error:
        # Nobody is left to catch it where the interpreter ends.
        print(f"hocket: worker {client.worker}: {error}", file=sys.stderr, flush=True)
