"""Needs of jobs that queue, counted: whether any of them fits is known without a look at each.

Jobs have one need where they want as much memory of as many GPUs, and run on the same types of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from hocket.cluster.engine.records import Ints, Records
from hocket.kernel import lean_kernel


class QueuedNeeds(NamedTuple):
    """The need of each job, and how many jobs queue with each."""

    of_job: Ints  # (J,)
    memory_class: Ints  # (needs,)
    gpus: Ints  # (needs,) the fewest
    types: Ints  # (needs,) of GPUs, a bit each
    queued: Ints  # (needs,) jobs that queue
    fits: Ints  # (needs,) room to work in


def make_needs(jobs: Records) -> QueuedNeeds:
    """The needs of jobs none of which queues."""
    rows = np.stack([jobs[name] for name in ("memory_class", "fewest", "types")], axis=1)
    needs, of_job = np.unique(rows, axis=0, return_inverse=True)
    memory_class, gpus, types = needs.T.copy()
    return QueuedNeeds(
        of_job=of_job.reshape(-1),
        memory_class=memory_class,
        gpus=gpus,
        types=types,
        queued=np.zeros(len(needs), np.int64),
        fits=np.zeros(len(needs), np.int64),
    )


def count_queued(needs: QueuedNeeds, queue: Ints) -> None:
    """Count anew how many jobs of ``queue`` have each need."""
    needs.queued[:] = np.bincount(needs.of_job[queue], minlength=len(needs.queued))


@lean_kernel
def note_fits(needs, class_fits):
    """Note in ``fits`` the needs of queued jobs for which GPUs enough are open to all; True if one is.

    class_fits: (types, classes) GPUs that have room.
    """
    found = False
    for n in range(len(needs.queued)):
        needs.fits[n] = 0
        if needs.queued[n] == 0:
            continue
        for kind in range(len(class_fits)):
            if (needs.types[n] >> kind) & 1 and class_fits[kind, needs.memory_class[n]] >= needs.gpus[n]:
                needs.fits[n] = 1
                found = True
    return found
