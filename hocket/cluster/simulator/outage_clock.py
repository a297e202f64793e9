"""Outages as the virtual clock has them: servers go down, their jobs queue again, and servers come back.

A task or transfer that ends at the instant at which a server goes down has ended; then jobs queue, and are
placed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hocket.cluster.engine.interruptions import close_server, interrupt
from hocket.cluster.engine.records import NEVER, NONE, Ints, Records
from hocket.cluster.engine.state_parts import compute_state, network_state
from hocket.cluster.simulator.fast_forward.uninterrupted import resume
from hocket.cluster.simulator.job_lanes import take_lane
from hocket.cluster.simulator.simulation_log import write_transfer
from hocket.kernel import lean_kernel
from hocket.sim.loop.lanes import set_time

_compute_state, _network_state = lean_kernel(compute_state), lean_kernel(network_state)

ATTEMPT = np.dtype(
    [
        ("keeps_every", np.int64),  # iterations after which the job keeps its work, or 0
        ("launch", np.int64),  # ticks that it takes to launch, every time
        ("first_start", np.int64),  # when it was placed first, once it has been interrupted
        ("computed", np.int64),  # ticks that the iterations took which it has kept, on each of its GPUs
        ("computed_gpus", np.int64),  # the same of all its GPUs
        ("waited", np.int64),  # ticks that it waited or transferred until it was interrupted
        ("lost_gpus", np.int64),  # ticks that it had GPUs for nothing, of all of them
        ("held", np.int64),  # ticks that it had GPUs until it was interrupted, added up
        ("interruptions", np.int64),
    ],
    align=True,
)
# Columns of ``OutageClock.events``.
TICK, SERVER, BEGINS = range(3)
NO_EVENT = (NEVER, 0, 0)


class OutageClock(NamedTuple):
    """Outages to come; arrays that the clock's kernel modifies in place.

    The last of ``events`` is not taken: the kernel looks at it to see how long nothing happens, and comes
    back for more when it would be next.
    """

    events: Ints  # (n, 3): tick, server, whether it goes down
    down: Ints  # (servers,) outages under way
    attempts: Records  # (J,) ATTEMPT
    failures: Ints  # (1,) times that a server went down that was not


def no_outages(num_servers: int, num_jobs: int) -> OutageClock:
    """The outages of a cluster that has none."""
    return OutageClock(
        events=np.array([NO_EVENT], np.int64),
        down=np.zeros(num_servers, np.int64),
        attempts=np.zeros(num_jobs, ATTEMPT),
        failures=np.zeros(1, np.int64),
    )


@lean_kernel
def end_attempt(state, rules, clock, log, j, every, now):
    """Let nothing of job j, which leaves its GPUs, be to come in the clock; the iterations that it keeps.

    every: iterations after which it keeps its work, or 0.
    """
    jobs, workers, gpus, attempts = state.jobs, state.workers, state.gpus, clock.outages.attempts
    tree = clock.tree[: 2 * clock.hands[0].leaves]
    if clock.stretches[j].passing == 1:
        resume(_compute_state(state), _network_state(state), rules, clock, j, now)
    clock.jumps[j].known = 0
    clock.forward_until[j] = NONE
    set_time(tree, clock.lanes.lane[j], NEVER)
    take_lane(clock, j)
    for w in range(jobs[j].first_worker, jobs[j].first_worker + jobs[j].gpus):
        if gpus[workers[w].gpu].running == w:
            set_time(tree, workers[w].gpu, NEVER)
    if log.enabled and log.transfer_starts[j] != NONE:
        write_transfer(log, clock.hands, jobs, state.ports, j, now)
    if attempts[j].interruptions + jobs[j].preemptions + jobs[j].shrunk + jobs[j].grown == 0:
        attempts[j].first_start = jobs[j].start
    attempts[j].held += now - jobs[j].start
    kept = jobs[j].kept
    if every == 0:
        kept = 0
    else:
        kept += (jobs[j].iterations - jobs[j].remaining - kept) // every * every
    computed = (kept - jobs[j].kept) * (jobs[j].forward + jobs[j].backward)
    attempts[j].computed += computed
    attempts[j].computed_gpus += computed * jobs[j].gpus
    attempts[j].lost_gpus += (now - jobs[j].start - computed + attempts[j].waited) * jobs[j].gpus
    return kept


@lean_kernel
def count_waits(jobs, attempts, j, num):
    """Take off what came to nothing on job j's ``num`` GPUs, which it has left, what it waited there."""
    attempts[j].waited = jobs[j].gpu_wait + jobs[j].transferring + jobs[j].network_wait
    attempts[j].lost_gpus -= attempts[j].waited * num


@lean_kernel
def _interrupt(state, rules, clock, log, j, now):
    """Let job j be interrupted: its server goes down."""
    attempts, num = clock.outages.attempts, state.jobs[j].gpus
    kept = end_attempt(state, rules, clock, log, j, attempts[j].keeps_every, now)
    attempts[j].interruptions += 1
    interrupt(state, rules, j, kept, attempts[j].launch, now)
    count_waits(state.jobs, attempts, j, num)


@lean_kernel
def pass_outages(state, rules, clock, log, now):
    """Let servers go down and come back whose time it is."""
    events, down, hands = clock.outages.events, clock.outages.down, clock.hands
    while events[hands[0].outage, TICK] == now:
        server = events[hands[0].outage, SERVER]
        begins = events[hands[0].outage, BEGINS] == 1
        hands[0].outage += 1
        hands[0].events += 1
        down[server] += 1 if begins else -1
        if begins and down[server] == 1:
            clock.outages.failures[0] += 1
            for g in range(server * rules.gpus_per_server, (server + 1) * rules.gpus_per_server):
                while state.gpus[g].resident != NONE:
                    _interrupt(state, rules, clock, log, state.workers[state.gpus[g].resident].job, now)
            close_server(state, rules, server, True)
        elif not begins and down[server] == 0:
            close_server(state, rules, server, False)
