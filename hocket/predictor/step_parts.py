"""Steps of the prediction kernel's workers begin and end in parts: the worker's own and each server's.

Where servers are apart, each begins its part of a worker's next step by itself. Otherwise a step is one part,
here server 0's.
"""

from __future__ import annotations

import numpy as np

from hocket.kernel import kernel


@kernel
def count_parts(server_of, num_servers):
    """The number of nodes of each server's part of a step, and of the worker's own, last: (M + 1,)."""
    count = np.zeros(num_servers + 1, np.int64)
    for server in server_of:
        count[server] += 1
    return count


@kernel
def begin_all(w, each, begins, num_begins):
    """All parts of worker ``w``'s next step, ``each`` a worker, are to begin; returns how many now are."""
    for s in range(each - 1, -1, -1):
        begins[num_begins] = w * each + s
        num_begins += 1
    return num_begins


@kernel
def end_node(w, s, left, begun, served, begins, num_begins):
    """A node of server ``s``'s part has ended, or of the worker's own, -1; returns how many parts now begin.

    left (W, M + 1): what parts still have to do, the worker's own last; begun (W,), served (W, M): how many
    steps the worker and each server have begun. A server begins when its part and the worker's are over.
    """
    left[w, s] -= 1
    if left[w, s] > 0:
        return num_begins
    for each in range(left.shape[1] - 1):
        if (s >= 0 and each != s) or left[w, each] > 0:
            continue
        behind = served[w, each] < begun[w]
        if (behind and s >= 0) or (not behind and left[w, -1] == 0):
            begins[num_begins] = w * (left.shape[1] - 1) + each
            num_begins += 1
    return num_begins
