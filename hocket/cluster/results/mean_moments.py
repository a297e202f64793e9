"""Mean moments of use on one machine that gives all it has to one job at a time, and changes it at will."""

from __future__ import annotations

import heapq

import numpy as np

from hocket.kernel import kernel


@kernel
def mean_moments(use, from_s, capacity):
    """The mean moment of each job's use, (J,), where the job that uses least in all has all of it.

    use : above 0. from_s : when each job comes.
    """
    mean_s, left = np.zeros(len(use)), use.copy()
    coming = np.argsort(from_s, kind="mergesort")
    here = [(use[0], 0) for _ in range(0)]
    now, i = 0.0, 0
    while i < len(use) or len(here) > 0:
        if len(here) == 0:
            now = max(now, from_s[coming[i]])
        while i < len(use) and from_s[coming[i]] <= now:
            heapq.heappush(here, (use[coming[i]], coming[i]))
            i += 1
        j = here[0][1]
        end = now + left[j] / capacity
        if i < len(use) and from_s[coming[i]] < end:
            end = from_s[coming[i]]
            done = min(left[j], (end - now) * capacity)
        else:
            done = left[j]
            heapq.heappop(here)
        mean_s[j] += done / use[j] * (now + end) / 2
        left[j] -= done
        now = end
    return mean_s
