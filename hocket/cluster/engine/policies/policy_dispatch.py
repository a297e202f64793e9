"""Dispatch to the policy's function that decides: the compiled engine asks here."""

from __future__ import annotations

from hocket.cluster.engine.policies.ada_srsf import adadual
from hocket.cluster.engine.policies.kway import kway
from hocket.cluster.engine.policies.scheduling_policy import (
    ADADUAL,
    ARRIVAL,
    BY_BYTES,
    KWAY,
    SERVICE_ATTAINED,
)
from hocket.cluster.engine.policies.srpt import fewer_bytes
from hocket.cluster.engine.policies.srsf import full_link, remaining_service
from hocket.cluster.engine.policies.tiresias import attained_service
from hocket.kernel import lean_kernel


@lean_kernel
def key_of(jobs, j, remaining, order):
    """The key of job j with ``remaining`` iterations; the least goes first, the lower rank of equal ones."""
    if order == ARRIVAL:
        return 0
    if order == SERVICE_ATTAINED:
        return attained_service(jobs[j].iterations - remaining, jobs[j].per_iteration, jobs[j].gpus)
    return remaining_service(remaining, jobs[j].per_iteration, jobs[j].gpus)


@lean_kernel
def before(jobs, a, b):
    """True if job a goes before job b."""
    return jobs[a].key < jobs[b].key or (jobs[a].key == jobs[b].key and jobs[a].rank < jobs[b].rank)


@lean_kernel
def queues_before(jobs, a, b):
    """True if job a queues before job b: by priority, the highest first; of one priority as all else goes."""
    if jobs[a].priority != jobs[b].priority:
        return jobs[a].priority > jobs[b].priority
    return before(jobs, a, b)


@lean_kernel
def list_last_first(jobs, listed, num, j):
    """Put job j among so many that are ``listed``, the last in order first."""
    place = num
    while place > 0 and queues_before(jobs, listed[place - 1], j):
        listed[place] = listed[place - 1]
        place -= 1
    listed[place] = j


@lean_kernel
def transfers_before(jobs, rules, a, b, now):
    """True if job a's transfer goes before job b's where transfers are preempted."""
    if rules.admission == BY_BYTES:
        return fewer_bytes(jobs, rules, a, b, now)
    return before(jobs, a, b)


@lean_kernel
def refusing_link(jobs, ports, links, rules, left, j, now):
    """The first server of job j on which its transfer may not start now beside those that run, or NONE.

    left (J,): room to work in. Whatever keeps it out there does so until a transfer of that server has ended.
    """
    if rules.admission == ADADUAL:
        return adadual(jobs, ports, links, rules, j, now)
    if rules.admission == KWAY:
        return kway(jobs, ports, links, rules, left, j, now)
    return full_link(jobs, ports, links, j, rules.limit)
