"""Begin training by all-reduce: a model's plan, transfers and hooks on every rank of a process group."""

from __future__ import annotations

import dataclasses
import threading
import weakref
from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
import torch
import torch.distributed as dist

from hocket.errors import HocketError
from hocket.graph import Plan, check_plan
from hocket.graph.plan import planned_for_others
from hocket.logs import logger
from hocket.network import Network
from hocket.runtime.observe.device_recorder import DeviceRecorder
from hocket.runtime.observe.exit_status import notice_exits, script_failed
from hocket.runtime.observe.liveness import LivenessWatch
from hocket.runtime.observe.recorder import SpanRecorder
from hocket.runtime.training.allreduce_handle import AllReduceHandle
from hocket.runtime.training.allreduce_training import AllReduceTraining
from hocket.runtime.training.buffers import StateBuffers
from hocket.runtime.training.choice_memory import ChoiceMemory
from hocket.runtime.training.consistency import (
    check_same_arguments,
    check_same_model,
    check_same_plan,
    wanted_plan,
)
from hocket.runtime.training.ddp_attributes import give_ddp_attributes
from hocket.runtime.training.explain import clock_offset_s, rank_record, timeline_of
from hocket.runtime.training.ignored_parameters import kept_alike
from hocket.runtime.training.join import UnevenInputs
from hocket.runtime.training.kept_choice import key_of_training
from hocket.runtime.training.module_access import update_before_access
from hocket.runtime.training.optimizer_step import attach
from hocket.runtime.training.parameter_ownership import claim
from hocket.runtime.training.plan_selection import Planner, PlanSelection
from hocket.runtime.training.plan_source import PlanSource
from hocket.runtime.training.plan_trials import Choice
from hocket.runtime.training.ranks import RankZeroValues, TrainingRanks
from hocket.runtime.training.rounds import Rounds
from hocket.runtime.training.step_settings import StepSettings
from hocket.runtime.training.trainable import Optimizers, optimizers_of, outline, trained_parameters
from hocket.runtime.transfers.allreduce_cost import ReductionMeasurement
from hocket.runtime.transfers.buffer_broadcasts import BufferBroadcasts
from hocket.runtime.transfers.channel import Channel
from hocket.runtime.transfers.channel_groups import ChannelGroups
from hocket.runtime.transfers.gloo_group import (
    GlooGroup,
    broadcast_tensors,
    broadcast_value,
    gather_values,
    new_group_name,
)
from hocket.runtime.transfers.gradient_types import check_gradient_type
from hocket.runtime.transfers.sparse_sums import declared_sparse
from hocket.runtime.transfers.training_device import PROCESSORS, device_of
from hocket.runtime.transfers.transfer_group import TransferGroup
from hocket.runtime.transfers.used_flags import FlagsInBuckets, FlagsOnHost

OWN_THREADS = "hocket-"
"""The prefix of the names of our threads."""
_ENDING = "hocket-end"


def distribute(
    model: torch.nn.Module,
    optimizer: Optimizers,
    source: PlanSource[Planner],
    members: TrainingRanks,
    values: RankZeroValues,
    settings: StepSettings,
    *,
    timeline_path: str | None = None,
) -> None:
    """Attach the training of ``model`` to it and to its optimizers; ``model.hocket`` is its handle.

    A plan that is given holds once the first steps have shown the model. Of networks rank 0's is what to plan
    for. Every one of the ``members`` calls this, and takes over rank 0's ``values``. Steps run as
    ``settings`` say.

    Raises
    ------
    HocketError
        When ranks differ in the model or the plan, or for what cannot be trained this way.
    """
    members.check()
    gradient_dtype = check_gradient_type(settings.gradient_dtype)
    plan, planner = source.plan, source.planner
    optimizers = optimizers_of(optimizer)
    parameters = trained_parameters(model, optimizers, members.timeout_s)
    device = device_of(next(iter(parameters.values())))
    ranks, name = members.numbers, new_group_name(members.process_group)
    # A collective that waits for its turn on one may be what the next one on the other waits for.
    control, *others = (GlooGroup(ranks, f"{name}/{use}", members.timeout) for use in range(4))
    # Ranks that go different ways from here would wait for each other, without a word.
    arguments = {
        "plan (--plan, HOCKET_PLAN or plan=)": wanted_plan(plan, planner.policy),
        "compile": str(settings.compile),
        "init_sync": str(values.parameters),
        "broadcast_buffers": str(values.buffers_in_forward),
    }
    check_same_arguments(arguments, control)
    alike, buffers = kept_alike(model)
    buffers = buffers if values.buffers or values.buffers_in_forward else {}
    check_same_model(alike, buffers, control)
    baseline = broadcast_value(planner.baseline(outline(model, parameters)), control, Plan)
    baseline = msgspec.structs.replace(baseline, workers=len(ranks))
    if plan is not None:
        check_same_plan(plan, control)
        # Operations are known only once the step is; the rest of the rules can be checked now.
        check_plan(msgspec.structs.replace(plan, compute_order=None), outline(model, parameters))
        if control.rank == 0 and (remark := planned_for_others(plan, len(ranks))):
            logger.warning("%s", remark)
    elif len(ranks) == 1 or (device is not PROCESSORS and not planner.needs_times):
        plan = baseline  # nothing travels, or it is what was asked for
    elif settings.compile and device is not PROCESSORS:
        raise HocketError(
            "a compiled step is timed by the host, which only asks the GPU for it, and a plan was to be made"
            " by its times; leave compile=True out, or give plan='ddp' or a plan file"
        )
    if values.parameters:
        with torch.no_grad():
            first = [b for b in buffers.values() if b.numel()] if values.buffers else []
            broadcast_tensors([*alike.values(), *first], control)
    of_device = device.transfer_group(ranks, f"{name}/device", members.timeout, members.process_group)
    transfers: list[TransferGroup] = (
        [GlooGroup(ranks, f"{name}/transfers {k}", members.timeout) for k in range(2)]
        if of_device is None
        else [of_device]
    )
    sending = BufferBroadcasts(others[1], device)
    used: list[TransferGroup | BufferBroadcasts] = [control, others[0], sending, others[2], *transfers]

    def make_norms() -> GlooGroup:
        made = GlooGroup(ranks, f"{name}/norms", members.timeout)
        made.loss_reason = lambda: watch.loss_reason
        used.append(made)
        return made

    urgent = None if of_device else transfers[1]
    groups = ChannelGroups(transfers[0], urgent, others[0], make_norms=make_norms)

    rank, offset_s = control.rank, clock_offset_s(control)
    recorder = SpanRecorder(parameters) if device is PROCESSORS else DeviceRecorder(parameters, device)
    with ExitStack() as unless_refused:
        store = dist.distributed_c10d._get_default_store()
        watch = LivenessWatch(store, name, rank, ranks, lambda: rank_record(recorder, rank, offset_s))
        unless_refused.callback(watch.stop, finished=False)
        # Also for threads that transfer: one that torch still has when the interpreter ends aborts it.
        for each in (control, *transfers, *others[1:]):
            if isinstance(each, GlooGroup):
                each.loss_reason = lambda: watch.loss_reason
        state = StateBuffers(model, sending, others[2]) if values.buffers_in_forward else None
        flags = FlagsInBuckets() if device is PROCESSORS else FlagsOnHost(control)
        rounds = Rounds(parameters, groups, flags, recorder, watch, members.timeout_s)
        training = AllReduceTraining(
            model, parameters, rounds, state, watch, recorder, compile=settings.compile
        )
        training.gradient_dtype = gradient_dtype
        training.of_all_ranks = lambda names: gather_values(names, control, list[str])
        training.learn_sparse(declared_sparse(model))
        training.enforce(baseline)
        unless_refused.pop_all()
    # One rank that measures waits for all: whether to, and what holds instead, is for the first to say.
    known = broadcast_value([] if source.network is None else [source.network], control, list[Network])
    choice = Choice(plan=baseline, ranks=len(ranks), network_given=bool(known))
    choice.network_grade = source.network_grade if known else ""
    choice.one_machine = len(ranks) > 1 and members.on_one_machine()
    if known:
        choice.network = dataclasses.replace(known[0], num_workers=len(ranks))
    if rank == 0:
        choice.report = rounds.barriers.report = logger.info

    def key(clips: bool) -> str:
        # A communication hook may have asked for another type since.
        as_run = settings._replace(gradient_dtype=training.gradient_dtype)
        return key_of_training(type(model).__name__, parameters, choice, control, as_run, clips)

    memory = ChoiceMemory(choice, outline(model, parameters), source.choices, control, key)
    if plan is None and not memory.expects() and rank == 0:
        planner.prepare()
    like = next(iter(parameters.values())).detach().new_zeros(1)
    measurement = ReductionMeasurement(transfers[0], control, like)
    course = PlanSelection(training, choice, planner, measurement, control, memory, given_plan=plan).run()
    group, in_forward = members.group, values.buffers_in_forward
    uneven = training.uneven = UnevenInputs(training, control, group, in_forward)
    # Times of steps in which some ranks compute nothing would say nothing.
    training.between_steps = rounds.channel.at_its_turn(
        lambda: next(course, None) if uneven.num_training == len(ranks) else None
    )
    # At the latest with the process, if nobody detaches the model.
    notice_exits()
    path = timeline_path if rank == 0 else None
    title = f"{type(model).__name__}, measured"
    ended = weakref.finalize(model, _end, rounds.channel, watch, used, title, path)
    undo = [attach(each, training) for each in optimizers] + [
        update_before_access(model, training),
        training.detach,
        course.close,
        ended,
    ]
    undo.append(claim(model, parameters))
    handle = vars(model)["hocket"] = AllReduceHandle(training, choice, memory, undo)
    give_ddp_attributes(model, handle, group, in_forward, uneven, training.shorten_gradients)


def _end(
    channel: Channel,
    watch: LivenessWatch,
    groups: Sequence[TransferGroup | BufferBroadcasts],
    title: str,
    timeline_path: str | None,
) -> None:
    if threading.current_thread().name.startswith(OWN_THREADS) and threading.current_thread().name != _ENDING:
        # Garbage is collected wherever something is made, and ours would wait for themselves.
        given = [channel, watch, groups, title, timeline_path]
        threading.Thread(target=_end, args=given, name=_ENDING).start()
        return
    channel.stop()
    watch.reply_at_end()
    try:
        if timeline_path is not None:
            timeline_of(watch.replies(0), title).save(timeline_path)
    finally:
        # Signs that go on would be those of a rank that trains.
        watch.stop(finished=channel.error is None and not script_failed())
        if channel.quiet:  # else a group may be in what others never join
            for group in groups:
                group.close()
        else:
            for group in groups:
                group.abandon()
