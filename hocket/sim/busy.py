"""For how long something runs in a window of time, where steps reach into each other's windows."""

from __future__ import annotations

import numpy as np

from hocket.kernel import kernel


@kernel
def busy_s(start, end, edges):
    """Seconds that items run between consecutive edges, summed over items, (windows,).

    start, end (steps, items): seconds, steps in the order in which they run; edges (windows + 1,): ascending.
    """
    num_windows = len(edges) - 1
    found = np.zeros(num_windows)
    at = 0
    for k in range(start.shape[0]):
        for i in range(start.shape[1]):
            # The window in which an item starts is near its predecessor's.
            while at > 0 and edges[at] > start[k, i]:
                at -= 1
            while at < num_windows - 1 and edges[at + 1] <= start[k, i]:
                at += 1
            w = at
            while w < num_windows and edges[w] < end[k, i]:
                found[w] += max(0.0, min(end[k, i], edges[w + 1]) - max(start[k, i], edges[w]))
                w += 1
    return found
