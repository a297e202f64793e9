"""Resizing in the cluster engine's naive twin: who gives GPUs to whom, and who takes more."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from tests.naive.cluster_preemption import Preemption
from tests.naive.cluster_state import Run

MOST_SHRUNK = 5


class Resizing(Preemption):
    """Jobs whose number of GPUs changes while they run."""

    def place(self) -> None:
        """Place who fits, and those for which others shrink or leave; then let jobs grow."""
        self.place_who_fits()
        preempts, resizes = self.policy == "srsf-requeue", self.scheduling.resize
        while (resizes and self.shrink_for_one()) or (preempts and self.preempt_for_one()):
            self.place_who_fits()
        self.held_gpus, self.kept, self.promised = {}, {}, {}
        while resizes and self.grow_one():
            pass

    def order(self, run: Run) -> Any:
        return (-run.job.priority, self.key(run))

    def may_shrink(self, run: Run) -> bool:
        return run.num > run.job.fewest_gpus and run.shrunk < MOST_SHRUNK

    def may_grow(self, run: Run) -> bool:
        return run.num < run.job.gpus and run.grown - run.shrunk < MOST_SHRUNK

    def stops(self) -> list[Fraction]:
        """The times to come at which jobs have been on their GPUs for long enough to leave them."""
        preempts, resizes = self.policy == "srsf-requeue", self.scheduling.resize
        found = []
        for run in self.placed():
            at = self.pays_off_at(run)
            if at is None or at <= self.now:
                continue
            if self.queue():
                can = (preempts and self.may_leave(run, at)) or (resizes and self.may_shrink(run))
            else:
                can = resizes and self.may_grow(run)
            if can:
                found.append(at)
        return found

    def several(self, gpus: list[int]) -> bool:
        return len({g // self.per_server for g in gpus}) > 1

    def rest_on(self, run: Run, gpus: list[int]) -> Fraction:
        """The time that what is left of a job takes, alone on these GPUs of its type."""
        done = max(run.work_kept, (run.iterations - run.remaining) * run.num)
        iterations = -(-run.job.gpus * run.job.iterations // len(gpus)) - done // len(gpus)
        return iterations * (self.computing(run) + (self.reduce(run) if self.several(gpus) else 0))

    def staying(self, run: Run) -> list[int]:
        """The fewest GPUs of a job: those of the servers where it has most."""
        number = {g: sum(g // self.per_server == o // self.per_server for o in run.gpus) for g in run.gpus}
        ordered = sorted(run.gpus, key=lambda g: (-number[g], g))
        return ordered[: run.job.fewest_gpus]

    def first_waiting(self) -> Run | None:
        holders = [run for run in self.held_gpus.values() if run.start is None]
        ordered = holders or [run for run in sorted(self.queue(), key=self.queue_key) if self.in_quota(run)]
        return ordered[0] if ordered else None

    def shrink_for_one(self) -> bool:
        """Let jobs give GPUs to the first one that waits, where that is worth it; whether they did."""
        run = self.first_waiting()
        if run is None:
            return False
        held = dict(self.held_gpus)
        self.held_gpus = {g: by for g, by in held.items() if by is not run}
        found = self.offers_for(run)
        self.held_gpus = held
        if found is None:
            return False
        gpus, given, save = found
        kept = {other: [g for g in other.gpus if g not in mine] for other, mine in given.items()}
        for other in given:
            self.stop(other, save)
        self.place_on(run, gpus)
        for other, rest in kept.items():
            self.resume_on(other, rest)
            other.shrunk += 1
        return True

    def offers_for(self, run: Run) -> tuple[list[int], dict[Run, set[int]], Fraction] | None:
        """The GPUs of one that waits, those that others give, and how long they save; None: none do."""
        suits, gpus = run.speed, None
        able = [
            other for other in self.placed() if self.may_shrink(other) and self.has_paid_off(other, self.now)
        ]
        givers = sorted(able, key=self.order, reverse=True)
        for other in givers:
            self.offered[other] = set(other.gpus) - set(self.staying(other))
            gpus = self.choose(run)
            self.compute_at(run, suits)
            if gpus is not None:
                break
        offered, self.offered = self.offered, {}
        if gpus is None:
            return None
        for g in sorted(gpus):
            for other in givers:
                if g in offered.get(other, ()) and not self.has_room(g, run):
                    self.offered.setdefault(other, set()).add(g)
        given, self.offered = self.offered, {}
        if not given:
            return None
        save = max(self.checkpoint(other) or Fraction(0) for other in given)
        stay = run.launch + self.service(run, self.speeds(run)[self.type[gpus[0]]])
        lost = Fraction(0)
        for other, mine in given.items():
            rest = [g for g in other.gpus if g not in mine]
            slower = self.rest_on(other, rest) - other.remaining * self.per_iteration(other)
            lost += save + self.relaunch(other) + min(stay, slower)
        wait = self.wait(run)
        return (gpus, given, save) if wait is None or wait - save > lost else None

    def grow_one(self) -> bool:
        """Let the first job take more GPUs for which that is worth it; whether there is one."""
        if self.queue():
            return False
        for run in sorted(self.placed(), key=self.order):
            if not self.may_grow(run) or not self.has_paid_off(run, self.now):
                continue
            least = min(run.job.gpus - run.num, self.quota(run.job.user) - self.held(run.job.user))
            options = [self.extended(run, run.num + more) for more in range(1, least + 1)]
            timed = [(self.rest_on(run, gpus), len(gpus), gpus) for gpus in options if gpus is not None]
            if not timed:
                continue
            rest, _, gpus = min(timed)
            save = self.checkpoint(run)
            assert save is not None
            gain = run.remaining * self.per_iteration(run) - rest
            if gain > save + self.relaunch(run) + self.per_iteration(run):
                self.stop(run, save)
                self.resume_on(run, gpus)
                run.grown += 1
                return True
        return False

    def extended(self, run: Run, num: int) -> list[int] | None:
        """The GPUs of a job with idle ones beside them, so many together; None: there are too few."""
        there = list(range(self.cluster.num_gpus))
        if self.placement == "blocks":
            width = self.per_server
            while width < num:
                width *= 2
            there = [g for g in there if g // width == run.gpus[0] // width]
        if not set(run.gpus) <= set(there):
            return None
        taken = {g for other in self.placed() for g in other.gpus}
        idle = [
            g
            for g in there
            if g not in taken and self.type[g] == self.type[run.gpus[0]] and self.has_room(g, run)
        ]

        def rank(g: int) -> tuple[int, int, int]:
            server = g // self.per_server
            own, others = (sum(o // self.per_server == server for o in each) for each in (run.gpus, idle))
            return -own, -others, g

        found = [*run.gpus, *sorted(idle, key=rank)][:num]
        return sorted(found) if len(found) == num else None

    def stop(self, run: Run, save: Fraction) -> None:
        """Let a job leave its GPUs with all its complete iterations, to go on with another number."""
        for g in run.gpus:
            self.vacated[g] = max(self.vacated.get(g, self.now), self.now + save)
        self.leave(run, run.iterations - run.remaining)
        run.launch, run.saved_at = self.relaunch(run), self.now + save

    def resume_on(self, run: Run, gpus: list[int]) -> None:
        self.take_number(run, len(gpus))
        self.place_on(run, gpus)
