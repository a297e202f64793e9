"""The engine's state, when jobs are added to it: made anew, without those that are over."""

from __future__ import annotations

import numpy as np

from hocket.cluster.engine.queued_needs import count_queued
from hocket.cluster.engine.records import NONE, Ints
from hocket.cluster.engine.state import EngineState, count_room


def carry(old: EngineState, kept: Ints, new: EngineState) -> None:
    """Write what ``old`` holds of its jobs ``kept`` (n,) into the first n jobs of ``new``.

    Between decisions: the lists that a decision fills are not looked at any more.
    """
    n = len(kept)
    rows, fresh = new.jobs[:n], new.jobs[:n].copy()
    workers = _places(old.jobs["first_worker"][kept], fresh["most"])  # whatever it has of them
    ports = _places(old.jobs["first_port"][kept], np.diff(new.jobs["first_port"], append=len(new.ports))[:n])
    job_of, worker_of = _lookup(len(old.jobs), kept), _lookup(len(old.workers), workers)
    port_of = _lookup(len(old.ports), ports)

    rows[:] = old.jobs[kept]
    for name in ("first_worker", "first_port", "first_batch", "memory_class"):
        rows[name] = fresh[name]
    rows["first_segment"] = new.sites.pace["first_segment"][np.arange(n), rows["type"]]
    for name in ("blocker", "next_waiting", "previous_waiting"):
        rows[name] = job_of[rows[name]]
    for mine, theirs, places in ((new.workers, old.workers, workers), (new.ports, old.ports, ports)):
        mine[: len(places)] = theirs[places]
        mine["job"][: len(places)] = job_of[theirs["job"][places]]
    new.workers["next"][: len(workers)] = worker_of[old.workers["next"][workers]]
    for name in ("next", "next_flow"):
        new.ports[name][: len(ports)] = port_of[old.ports[name][ports]]
    new.gpus[:] = old.gpus
    new.links[:] = old.links
    for name in ("held", "since", "attained"):
        new.users[name][: len(old.users)] = old.users[name]
    for name in ("resident", "running"):
        new.gpus[name] = worker_of[old.gpus[name]]
    for name in ("user", "flow"):
        new.links[name] = port_of[old.links[name]]
    for name in ("waiting", "claimant"):
        new.links[name] = job_of[old.links[name]]
    new.counts[:] = old.counts
    for name in ("touched_gpus", "changed_links"):  # GPUs and links, which stay
        getattr(new, name)[:] = getattr(old, name)
    for name, count in (("queue", "queued"), ("flows", "flows"), ("ready", "ready"), ("moved_jobs", "moved")):
        listed = job_of[getattr(old, name)[: old.counts[0][count]]]
        listed = listed[listed != NONE]
        getattr(new, name)[: len(listed)] = listed
        new.counts[0][count] = len(listed)
    if len(new.sites.route):
        hops = min(new.sites.route.shape[1], old.sites.route.shape[1])
        new.sites.route[:n, :hops] = old.sites.route[kept, :hops]
    count_room(new)
    count_queued(new.needs, new.queue[: new.counts[0]["queued"]])


def _places(first: Ints, number: Ints) -> Ints:
    """The places from each of ``first`` on, as many as ``number`` says."""
    parts = [np.arange(a, a + n) for a, n in zip(first.tolist(), number.tolist(), strict=True)]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _lookup(size: int, kept: Ints) -> Ints:
    """The new place of each of ``size`` things by its old one; NONE for dropped ones and for NONE itself."""
    found = np.full(size + 1, NONE, np.int64)
    found[kept] = np.arange(len(kept))
    return found
