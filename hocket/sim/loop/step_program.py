"""The input of the event loop: a step's program, durations and links, and arrays for what it finds out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

NEXT_STEP = 1 << 40  # added to a target: the same node one step later
NO_LANE = -1


class StepProgram(NamedTuple):
    """One step's u global nodes and then L local ones (N in all), and what waits for what.

    A local node waits for local nodes of its own worker; a global one for those of every worker; where a
    global node ends, its local successors on every worker go on.
    """

    num_globals: int  # u
    num_global_lanes: int  # G
    num_receivers: int  # of all worker-server pairs, or 0
    num_servers: int  # M, whose channels there are; 0: none
    next_ptr: Ints  # (N + 1,) cuts next_idx: the nodes that wait for each node
    next_idx: Ints
    lane: Ints  # (N,) worker 0's lane; worker w's is lane + w * lane_step
    lane_step: Ints  # (N,)
    work: Floats  # (N,) bits of a transfer, seconds of parsing a message, 0 for everything else


class StepDurations(NamedTuple):
    """Seconds of operations, and the measured steps that workers and servers repeat in each step."""

    local_s: Floats  # (measured steps, n) of the first n local nodes
    samples: Ints  # (steps, W) the measured step that each worker repeats
    global_s: Floats  # (rows, d) of the first d global nodes, those with a lane
    global_samples: Ints  # (steps,) the row of each step
    speeds: Floats  # (W,) what divides the seconds of each worker's processor


class ChannelLinks(NamedTuple):
    """Links that channels share, and what transfers over them cost beside their bits.

    With a window a channel takes first what came first, of what came at one instant the least key; a transfer
    larger than the window sends that much, lines up again behind all that have come, and then runs to its end
    without a second startup. Without one keys decide, and transfers run whole.
    """

    route: Ints  # (2 W M, hops) links of each channel, as Topology has them, or as alike_links returns them
    capacity_bps: Floats  # (links,)
    startup_s: float  # of each transfer
    window_bits: float  # the HTTP/2 window, 0 without
    alike: int  # how many workers each simulated one stands for, all in lockstep; 1 unless links are alike


class ItemTimes(NamedTuple):
    """Seconds at which items started and ended; arrays filled in place."""

    start_s: Floats  # (steps * S,)
    end_s: Floats  # (steps * S,)
    stopped_s: Floats  # (steps * S,) when a transfer stopped, -1 if never; empty without a window
    went_on_s: Floats  # (steps * S,) when it went on; empty without a window
