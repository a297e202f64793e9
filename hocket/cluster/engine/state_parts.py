"""Parts of the engine's state: what its kernels take, so that each is passed no more than it may need.

An array costs a call seven words. Kernels that run at every event take a part of the state, or the few arrays
that they look at; those that run once in a job's life, or seldom, take all of it.
"""

from __future__ import annotations

from typing import NamedTuple

from hocket.cluster.engine.records import Floats, Ints, Records
from hocket.cluster.engine.state import EngineState


class ComputeState(NamedTuple):
    """Jobs on GPUs, and the lists that the end of a segment adds to."""

    jobs: Records  # (J,) JOB
    workers: Records  # JOB.gpus for each job
    gpus: Records  # (G,) GPU
    segments: Records  # SEGMENT
    batch_bytes: Floats  # of each job's batches, in their order
    touched_gpus: Ints  # (G,) GPUs that may have something new to compute
    ready: Ints  # (J,) jobs that are ready to transfer
    ended_jobs: Ints  # (J,) jobs with no iteration left
    counts: Records  # (1,) COUNTS


class NetworkState(NamedTuple):
    """Jobs on links, and the lists that a transfer's start and end add to."""

    jobs: Records  # (J,) JOB
    ports: Records  # JOB.num_hops for each job
    links: Records  # (links,) LINK
    changed_links: Ints  # (links,) links on which a transfer started or ended
    flows: Ints  # (J,) jobs that transfer, in no order
    moved_jobs: Ints  # (J,) jobs whose transfer started or stopped, or has another rate
    counts: Records  # (1,) COUNTS


class TransferLists(NamedTuple):
    """Jobs whose transfers are to be decided on, and room to put them in order."""

    ready: Ints  # (J,) jobs that are ready to transfer
    candidates: Ints  # (J,) room to work in
    altered_jobs: Ints  # (J,) room to work in
    bytes_left: Floats  # (J,) room to work in


class FlowShares(NamedTuple):
    """Links as max-min sharing fills them; read only where the rules say so."""

    capacity: Floats  # (links,) bytes a tick
    route: Ints  # (J, hops) links of each job
    rate: Floats  # (J,) bytes a tick
    room: Floats  # (links,) room to work in
    load: Ints  # (links,) room to work in


def compute_state(state: EngineState) -> ComputeState:
    """The part of the state that computing changes."""
    return ComputeState(
        state.jobs,
        state.workers,
        state.gpus,
        state.segments,
        state.batch_bytes,
        state.touched_gpus,
        state.ready,
        state.ended_jobs,
        state.counts,
    )


def network_state(state: EngineState) -> NetworkState:
    """The part of the state that transfers change."""
    return NetworkState(
        state.jobs,
        state.ports,
        state.links,
        state.changed_links,
        state.flows,
        state.moved_jobs,
        state.counts,
    )


def transfer_lists(state: EngineState) -> TransferLists:
    """The part of the state that decisions about transfers read and fill."""
    return TransferLists(state.ready, state.candidates, state.altered_jobs, state.bytes_left)


def flow_shares(state: EngineState) -> FlowShares:
    """The part of the state that max-min sharing needs."""
    return FlowShares(state.sites.capacity, state.sites.route, state.rate, state.room, state.load)
