"""The progress of a transfer: startup, bytes, and the chunks it is cut into.

A transfer is a run of chunks, one after the other, each ``rules.startup`` ticks and then its bytes at
``per_byte`` ticks each; one that is not preempted is a single chunk. A job's record holds for
``moving_since``; it is brought up to date when the rate changes or the transfer stops, and not otherwise, so
that a transfer which nothing disturbs ends exactly when it should.
"""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.records import NEVER, TRANSFERRING
from hocket.kernel import lean_kernel

_NO_TICKS = 2.0**61


@lean_kernel
def ticks(amount):
    """The nearest whole number of ticks; one that no run comes to if there are too many to count.

    Beside many others a transfer would end later than anything does; its rate changes before.
    """
    return np.int64(min(np.rint(amount), _NO_TICKS))


@lean_kernel
def reset(jobs, j, size, chunk):
    """Let job j have all of ``size`` bytes to send."""
    jobs[j].chunk_left = min(chunk, size)
    jobs[j].later = size - jobs[j].chunk_left


@lean_kernel
def _chunk_at(jobs, rules, j, now):
    """Of job j's transfer at ``now``: the chunk under way as it was when it began, or as the record has it.

    Its bytes, bytes after it, its startup, ticks since then, and whether it began after the record's time.
    """
    chunk_left, later, startup_left = jobs[j].chunk_left, jobs[j].later, jobs[j].startup_left
    per_byte = jobs[j].per_byte
    elapsed = now - jobs[j].moving_since
    first = startup_left + ticks(chunk_left * per_byte)
    if not (later > 0.0 and 0 < elapsed >= first):
        return chunk_left, later, startup_left, elapsed, False
    elapsed -= first
    whole = rules.startup + ticks(rules.chunk * per_byte)
    passed = np.int64(np.ceil(later / rules.chunk)) - 1
    if whole > 0:
        passed = min(passed, elapsed // whole)
    elapsed -= passed * whole
    later -= passed * rules.chunk
    chunk_left = min(rules.chunk, later)
    return chunk_left, later - chunk_left, rules.startup, elapsed, True


@lean_kernel
def progress(jobs, rules, j, now):
    """The rest at ``now`` of job j's transfer: bytes of the chunk under way, bytes after it, startup."""
    chunk_left, later, startup_left, elapsed, _ = _chunk_at(jobs, rules, j, now)
    begun = min(elapsed, startup_left)
    startup_left -= begun
    elapsed -= begun
    if elapsed > 0:
        chunk_left = max(0.0, chunk_left - elapsed / jobs[j].per_byte)
    return chunk_left, later, startup_left


@lean_kernel
def bytes_left(jobs, rules, j, now):
    """Bytes that job j's transfer has yet to send."""
    chunk_left, later, _ = progress(jobs, rules, j, now)
    return chunk_left + later


@lean_kernel
def update_progress(jobs, rules, j, now):
    """Bring the record of job j's transfer up to date."""
    before = jobs[j].chunk_left + jobs[j].later
    chunk_left, later, startup_left = progress(jobs, rules, j, now)
    jobs[j].chunk_left, jobs[j].later, jobs[j].startup_left = chunk_left, later, startup_left
    jobs[j].moving_since = now
    jobs[j].bytes_sent += before - (chunk_left + later)


@lean_kernel
def chunks_ticks(size, per_byte, rules):
    """Ticks that so many bytes take, cut into chunks."""
    if size <= 0.0:
        return 0
    chunks = np.int64(np.floor(size / rules.chunk))
    time = chunks * (rules.startup + ticks(rules.chunk * per_byte)) if chunks > 0 else 0
    rest = size - chunks * rules.chunk if chunks > 0 else size
    if rest > 0.0:
        time += rules.startup + ticks(rest * per_byte)
    return time


@lean_kernel
def alone_ticks(jobs, rules, j):
    """Ticks that a transfer of job j takes with all its links for itself."""
    first = min(rules.chunk, jobs[j].size)
    alone = jobs[j].alone_per_byte
    return rules.startup + ticks(first * alone) + chunks_ticks(jobs[j].size - first, alone, rules)


@lean_kernel
def transfer_end(jobs, rules, j):
    """The tick at which job j's transfer ends if nothing changes."""
    per_byte = jobs[j].per_byte
    first = jobs[j].startup_left + ticks(jobs[j].chunk_left * per_byte)
    return jobs[j].moving_since + first + chunks_ticks(jobs[j].later, per_byte, rules)


@lean_kernel
def chunk_end(jobs, rules, j, now):
    """The tick at which the chunk under way at ``now`` ends, which may be now."""
    first = jobs[j].moving_since + jobs[j].startup_left + ticks(jobs[j].chunk_left * jobs[j].per_byte)
    if now <= first or jobs[j].later == 0.0:
        return first
    whole = max(1, rules.startup + ticks(rules.chunk * jobs[j].per_byte))
    return min(first + (now - first + whole - 1) // whole * whole, transfer_end(jobs, rules, j))


@lean_kernel
def _goes_on(jobs, j, now):
    """True if job j's transfer, at the end of a chunk, was preempted and goes on at this same instant."""
    return jobs[j].stopped_at == now and jobs[j].moving_since == now


@lean_kernel
def at_chunk_end(jobs, rules, j, now):
    """True if a chunk of job j's transfer ends now, and another would follow."""
    if _goes_on(jobs, j, now):
        return True
    if now == jobs[j].moving_since or now == transfer_end(jobs, rules, j):
        return False
    return now == chunk_end(jobs, rules, j, now)


@lean_kernel
def bytes_after_chunk(jobs, rules, j, now):
    """Bytes that will be left when job j's transfer can be preempted: at the end of its chunk, if it runs."""
    if jobs[j].ranked_at == now or jobs[j].ranked_at == NEVER:
        return jobs[j].after_chunk
    if jobs[j].stage != TRANSFERRING:
        jobs[j].ranked_at, jobs[j].after_chunk = NEVER, jobs[j].chunk_left + jobs[j].later
    else:
        chunk_left, later, startup_left, elapsed, began = _chunk_at(jobs, rules, j, now)
        # At its very end the next one has yet to begin.
        over = began and elapsed == 0 and startup_left + ticks(chunk_left * jobs[j].per_byte) > 0
        if over or _goes_on(jobs, j, now):
            later += chunk_left
        jobs[j].ranked_at, jobs[j].after_chunk = now, later
    return jobs[j].after_chunk
