"""What waits for the prediction kernel's lanes: sorted arrays, cut out of one."""

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
def cut_queues(lane_of, num_workers, num_servers, num_globals):
    """Where each lane's queue begins in an array with room for every node twice, (lanes + 1,)."""
    lanes_each = 1 + 3 * num_servers
    first = np.zeros(num_workers * lanes_each + num_servers + 1, np.int64)
    for w in range(num_workers):
        for lane in lane_of:
            first[w * lanes_each + lane + 1] += 2
    first[num_workers * lanes_each + 1 :] = 2 * num_globals
    for lane in range(len(first) - 1):
        first[lane + 1] += first[lane]
    return first
