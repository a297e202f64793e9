"""Queues of the prediction kernel's lanes: sorted arrays, cut out of one."""

from __future__ import annotations

import numpy as np

from hocket.kernel import kernel


@kernel
def enqueue(entry, lane, queue, head, tail, touched, num_touched):
    """Let an entry wait for its lane, behind all that go first; num_touched (1,), touched: lanes to look at.

    Nearly all come in the order in which they go, so a sorted array is quicker than a heap.
    """
    i = tail[lane]
    tail[lane] += 1
    while i > head[lane] and queue[i - 1] > entry:
        queue[i] = queue[i - 1]
        i -= 1
    queue[i] = entry
    if num_touched[0] == 0 or touched[num_touched[0] - 1] != lane:
        touched[num_touched[0]] = lane
        num_touched[0] += 1


@kernel
def may_start(lane, server, turns):
    """True if it is a lane's turn at a server that does one lane's work after another's; else it waits.

    turns: of each server the lane whose turn it is, or -1; the lanes that wait (M, W), a ring; where that
    begins and how many there are.
    """
    turn_of, waiting, first, count = turns
    if turn_of[server] < 0:
        turn_of[server] = lane
    if turn_of[server] == lane:
        return True
    for k in range(count[server]):
        if waiting[server, (first[server] + k) % waiting.shape[1]] == lane:
            return False
    waiting[server, (first[server] + count[server]) % waiting.shape[1]] = lane
    count[server] += 1
    return False


@kernel
def give_turn(lane, server, turns):
    """The lane that waits longest has its turn; returns it, or ``lane`` itself where none waits."""
    turn_of, waiting, first, count = turns
    turn_of[server] = -1
    if count[server] == 0:
        return lane
    turn_of[server] = waiting[server, first[server]]
    first[server] = (first[server] + 1) % waiting.shape[1]
    count[server] -= 1
    return turn_of[server]


@kernel
def cut_queues(lane_of, num_workers, num_servers, num_globals):
    """The beginning of each lane's queue in an array with room for every node twice, (lanes + 1,)."""
    lanes_each = 1 + 3 * num_servers
    first = np.zeros(num_workers * lanes_each + num_servers + 1, np.int64)
    for w in range(num_workers):
        for lane in lane_of:
            first[w * lanes_each + lane + 1] += 2
    first[num_workers * lanes_each + 1 :] = 2 * num_globals
    for lane in range(len(first) - 1):
        first[lane + 1] += first[lane]
    return first
