"""Preemption in the cluster engine's naive twin: who leaves GPUs to whom."""

from __future__ import annotations

from fractions import Fraction

from tests.naive.cluster_queue import Queue
from tests.naive.cluster_state import Run, exact

MOST_PREEMPTIONS = 5


class Preemption(Queue):
    """Jobs that leave their GPUs for others."""

    def checkpoint(self, run: Run) -> Fraction | None:
        seconds = self.scheduling.checkpoint_s if run.job.checkpoint_s is None else run.job.checkpoint_s
        return None if seconds is None else exact(seconds)

    def relaunch(self, run: Run) -> Fraction:
        return exact(run.job.startup_s) + (self.checkpoint(run) or 0)

    def starves(self, run: Run, at: Fraction) -> bool:
        after = self.scheduling.starvation_s
        return after is not None and at - exact(run.job.arrival_s) >= exact(after)

    def pays_off_at(self, run: Run) -> Fraction | None:
        save = self.checkpoint(run)
        if save is None or run.launched is not None:
            return None
        assert run.start is not None
        return run.start + run.launches_for + save + self.relaunch(run)

    def has_paid_off(self, run: Run, at: Fraction) -> bool:
        since = self.pays_off_at(run)
        if since is None:
            return False
        assert run.start is not None
        return at >= since and at > run.start + run.launches_for

    def may_leave(self, run: Run, at: Fraction) -> bool:
        may = run.preemptions < MOST_PREEMPTIONS and not self.starves(run, at)
        return may and self.has_paid_off(run, at)

    def preempt_for_one(self) -> bool:
        """Let jobs leave for the first queued one for which that is worth it; whether there is one."""
        able = [run for run in self.placed() if self.may_leave(run, self.now)]
        candidates = sorted(able, key=self.queue_key, reverse=True)
        for run in sorted(self.queue(), key=self.queue_key):
            behind = [other for other in candidates if self.queue_key(run) < self.queue_key(other)]
            if self.starves(run, self.now) or not self.in_quota(run):
                continue
            suits = run.speed
            self.leaving = behind
            gpus = self.choose(run)
            self.leaving = []
            self.compute_at(run, suits)
            if gpus is None:
                continue
            for g in sorted(gpus):
                for other in behind:
                    if not self.has_room(g, run) and g in other.gpus and other not in self.leaving:
                        self.leaving.append(other)
            leaving, self.leaving = self.leaving, []
            saves = [self.checkpoint(other) or Fraction(0) for other in leaving]
            save = max(saves, default=Fraction(0))
            stay = run.launch + self.service(run, self.speeds(run)[self.type[gpus[0]]])
            wait = self.wait(run)
            lost = sum((save + stay + self.relaunch(other) for other in leaving), Fraction(0))
            if wait is None or wait - save > lost:
                self.displace(run, gpus, leaving, save)
                return True
        return False

    def displace(self, run: Run, gpus: list[int], leaving: list[Run], save: Fraction) -> None:
        for other in leaving:
            for g in other.gpus:
                self.vacated[g] = max(self.vacated.get(g, self.now), self.now + save)
            self.leave(other, other.iterations - other.remaining)
            other.preemptions += 1
            other.launch, other.saved_at = self.relaunch(other), self.now + save
        self.place_on(run, gpus)

    def wait(self, run: Run) -> Fraction | None:
        """The time until GPUs have room for a job if nobody leaves them; None: none will."""
        blocks = [range(self.cluster.num_gpus)]
        if self.placement == "blocks":
            size = self.per_server
            while size < run.num:
                size *= 2
            blocks = [
                range(first, min(first + size, self.cluster.num_gpus))
                for first in range(0, self.cluster.num_gpus, size)
            ]
        waits = []
        for name in self.speeds(run):
            for block in blocks:
                there = [self.wait_on(run, g) for g in block if self.type[g] == name]
                known = sorted(wait for wait in there if wait is not None)
                if len(known) >= run.num:
                    waits.append(known[run.num - 1])
        return min(waits, default=None)

    def wait_on(self, run: Run, g: int) -> Fraction | None:
        """The time until a GPU has room for a job; the jobs there end one by one, the shortest first."""
        if g in self.held_gpus:
            return None
        here = [other for other in self.placed() if g in other.gpus]
        left = {other: other.remaining * self.per_iteration(other) for other in here}
        there = sorted(here, key=lambda other: (left[other], other.number))
        for num in range(len(there) + 1):
            self.leaving = there[:num]
            has_room = self.has_room(g, run)
            self.leaving = []
            if has_room:
                return sum((left[other] for other in there[:num]), Fraction(0))
        return None

    def leave(self, run: Run, kept: int) -> None:
        """Let a job queue again with so many iterations."""
        assert run.start is not None
        run.stays.append((run.start, self.now, run.num))
        run.computed += (kept - run.kept) * self.computing(run)
        run.work_kept = max(run.work_kept, kept * run.num)
        self.take_number(run, run.job.fewest_gpus)
        self.compute_at(run, self.best_speed(run))
        run.gpus, run.servers, run.phase, run.ends, run.chunks = [], [], {}, {}, []
        run.piece, run.between, run.overlaps = {}, set(), False
        run.ready = run.running = run.whole = False
        run.start = run.launched = run.reserved = run.fresh_since = None
        run.launch = exact(run.job.startup_s)
