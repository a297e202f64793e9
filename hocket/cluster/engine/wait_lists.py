"""A wait list per link: releasing a link re-examines only the transfers it was blocking.

A transfer that waits is in the list of one of its servers, the first at which it was refused: as long as
nobody lets go of that one it cannot start, whatever happens at the others.
"""

from __future__ import annotations

from hocket.cluster.engine.records import NONE, READY
from hocket.kernel import lean_kernel


@lean_kernel
def wait_at(jobs, links, j, link):
    """Let job j's transfer wait for what ``link`` carries, or, if that is NONE, for nothing."""
    at = jobs[j].waits_at
    if at == link:
        return
    if at != NONE:
        following, previous = jobs[j].next_waiting, jobs[j].previous_waiting
        if previous == NONE:
            links[at].waiting = following
        else:
            jobs[previous].next_waiting = following
        if following != NONE:
            jobs[following].previous_waiting = previous
    jobs[j].waits_at = link
    if link != NONE:
        first = links[link].waiting
        jobs[j].next_waiting, jobs[j].previous_waiting = first, NONE
        if first != NONE:
            jobs[first].previous_waiting = j
        links[link].waiting = j


@lean_kernel
def list_waiting(jobs, links, changed_links, ready, counts, candidates):
    """Fill ``candidates`` with jobs that are ready now, and those that waited for freed links; how many."""
    n = 0
    for i in range(counts[0].ready):
        jobs[ready[i]].listed = 1
        candidates[n] = ready[i]
        n += 1
    counts[0].ready = 0
    for i in range(counts[0].changed):
        link = changed_links[i]
        if links[link].freed == 0:
            continue
        j = links[link].waiting
        while j != NONE:
            waits, blocker = jobs[j].listed == 0 and jobs[j].stage == READY, jobs[j].blocker
            if waits and (blocker == NONE or jobs[blocker].claims == 0):
                jobs[j].listed = 1
                candidates[n] = j
                n += 1
            j = jobs[j].next_waiting
    return n
