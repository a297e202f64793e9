"""The log of a simulation that is asked for one: tasks and transfers as spans, and how busy links are."""

from __future__ import annotations

from typing import NamedTuple

from hocket.cluster.engine.records import NONE, Ints
from hocket.kernel import lean_kernel

# Kinds of spans.
SHOWN_FORWARD, SHOWN_BACKWARD, SHOWN_REDUCE = range(3)


class SimulationLog(NamedTuple):
    """The log of a simulation; empty if ``enabled`` is False."""

    enabled: bool
    from_tick: int
    transfer_starts: Ints  # (J,) when the transfer under way started that is not yet written down, or NONE
    spans: Ints  # (most, 5): what is shown, GPU or server, job, start, end
    levels: Ints  # (most, 2): instant, transfers on the busiest server from then on


@lean_kernel
def _write(log, hands, shown, where, j, start, end):
    spans = log.spans
    if start >= log.from_tick and hands[0].spans < len(spans):
        i = hands[0].spans
        spans[i, 0], spans[i, 1], spans[i, 2], spans[i, 3], spans[i, 4] = shown, where, j, start, end
        hands[0].spans += 1


@lean_kernel
def unwritten(log, hands, jobs, j, now):
    """True if nothing of the iterations that job j has left is to be written down."""
    if not log.enabled:
        return True
    # Transfers are, to the end: how many there are at a time is.
    end = now + jobs[j].remaining * (jobs[j].forward + jobs[j].backward)
    return jobs[j].num_servers == 0 and (hands[0].spans == len(log.spans) or end <= log.from_tick)


@lean_kernel
def write_group(log, hands, compute, mate, lane, now):
    """Write down the segment that the group of GPU ``lane`` has computed."""
    workers, segments = compute.workers, compute.segments
    w = compute.gpus[lane].running
    j = workers[w].job
    segment = compute.jobs[j].first_segment + workers[w].phase // 2
    shown = SHOWN_BACKWARD if segments[segment].backward == 1 else SHOWN_FORWARD
    g = lane
    while g != NONE:
        _write(log, hands, shown, g, j, now - segments[segment].ticks, now)
        g = mate[g]


@lean_kernel
def write_transfer(log, hands, jobs, ports, j, end):
    """Write down job j's transfer since it started, or went on."""
    for p in range(jobs[j].first_port, jobs[j].first_port + jobs[j].num_servers):
        _write(log, hands, SHOWN_REDUCE, ports[p].link, j, log.transfer_starts[j], end)
    log.transfer_starts[j] = NONE


@lean_kernel
def write_level(log, hands, links, num_servers, now):
    """Write down how many transfers the busiest server carries, if that is another number than before."""
    level = 0
    for server in range(num_servers):
        level = max(level, links[server].count)
    if level != hands[0].level:
        log.levels[hands[0].levels, 0], log.levels[hands[0].levels, 1] = now, level
        hands[0].levels += 1
        hands[0].level = level
