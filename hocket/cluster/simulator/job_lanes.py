"""Lanes of jobs in the clock's tree: jobs that have GPUs have one each, behind those of the GPUs.

A job that is over leaves its lane to the next one, so that the tree is no larger than what goes on, however
many jobs there are: what an event costs is mostly how much of memory it looks at.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hocket.cluster.engine.records import NEVER, NONE, Ints
from hocket.kernel import lean_kernel


class JobLanes(NamedTuple):
    """The lane of each job, and the job of each lane."""

    lane: Ints  # (J,) NONE of a job without GPUs
    job: Ints  # (J,) by lane, from the first one behind the GPUs' on
    spare: Ints  # (J,) lanes that no job has any more


LANE_COUNTS = ("leaves", "lanes", "spare")
"""Fields of the clock's hands: leaves of the tree, lanes that jobs have had, and those without a job."""


def make_lanes(num_gpus: int, num_jobs: int) -> tuple[JobLanes, Ints, int]:
    """Lanes without a job, room for the largest tree that may be needed, and the leaves of the first one."""
    leaves = 1
    while leaves <= num_gpus:
        leaves *= 2
    most = leaves
    while most < num_gpus + num_jobs:
        most *= 2
    lanes = JobLanes(
        lane=np.full(num_jobs, NONE, np.int64),
        job=np.full(num_jobs, NONE, np.int64),
        spare=np.zeros(num_jobs, np.int64),
    )
    return lanes, np.full(2 * most, NEVER, np.int64), leaves


@lean_kernel
def _double(tree, leaves):
    """Make a tree of ``leaves`` twice as large; the lanes it has keep their times."""
    for lane in range(leaves):
        tree[2 * leaves + lane] = tree[leaves + lane]
        tree[3 * leaves + lane] = NEVER
    for i in range(2 * leaves - 1, 0, -1):
        tree[i] = min(tree[2 * i], tree[2 * i + 1])


@lean_kernel
def give_lane(clock, num_gpus, j):
    """Give job j, which has just been placed, a lane."""
    hands, lanes = clock.hands, clock.lanes
    if hands[0].spare > 0:
        hands[0].spare -= 1
        lane = lanes.spare[hands[0].spare]
    else:
        lane = num_gpus + hands[0].lanes
        hands[0].lanes += 1
        if lane == hands[0].leaves:
            _double(clock.tree, lane)
            hands[0].leaves *= 2
    lanes.lane[j], lanes.job[lane - num_gpus] = lane, j


@lean_kernel
def take_lane(clock, j):
    """Take the lane of job j, which is over: nothing of it is to come."""
    clock.lanes.spare[clock.hands[0].spare] = clock.lanes.lane[j]
    clock.hands[0].spare += 1
    clock.lanes.lane[j] = NONE
