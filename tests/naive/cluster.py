"""Naive twin of the cluster engine: everything is computed anew at every event, in exact rational numbers.

No ticks, no stretches, no lists of what may have changed: at each instant all tasks and transfers move on,
everybody who is ready is asked, in order. Preempted transfers stop at the end of every chunk to be asked.

The engine counts whole ticks, so what coincides on paper coincides there where it is of whole ticks. Beside
two others a transfer has sent a third of what it would alone, and ends a tick away from what it coincides
with on paper: which is first, and what follows, is not the same then. ``meets_unevenly`` says that a run has
had that.
"""

from __future__ import annotations

from fractions import Fraction

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import JobSet
from hocket.cluster.simulator.outages import Outages
from tests.naive.cluster_state import NEVER, Run, exact, is_even
from tests.naive.cluster_transfers import Transfers


class Simulation(Transfers):
    """One run of a job set; ``runs`` holds what came of it."""

    def reached(self, run: Run, g: int) -> Fraction:
        """The computing of its iteration that the job has behind it on a GPU."""
        pieces = self.pieces[run]
        return pieces[run.piece[g]][0] if run.piece[g] < len(pieces) else self.computing(run)

    def complete(self, run: Run, number: int) -> bool:
        """True if a batch can be sent; batches of all iterations are numbered through."""
        iteration, batch = divmod(number, len(run.job.batches))
        if iteration != run.iteration:
            return iteration < run.iteration
        return all(self.reached(run, g) >= self.times[run][batch][0] for g in run.gpus)

    def may_compute(self, run: Run, g: int) -> bool:
        if not run.overlaps:
            return run.phase.get(g) in ("forward", "backward")
        before = (run.iteration - 1) * len(run.job.batches)
        due = [i for i, (_, due) in enumerate(self.times[run]) if due <= self.reached(run, g)]
        return run.phase[g] == "waits" and all(before + i < run.arrived for i in due)

    def stalled(self, run: Run) -> bool:
        return not run.ends and not any(self.may_compute(run, g) for g in run.gpus)

    def end_piece(self, run: Run, g: int) -> None:
        pieces = self.pieces[run]
        task = pieces[run.piece[g]][2]
        run.piece[g] += 1
        if run.piece[g] == len(pieces):
            run.phase[g] = "done"
            return
        run.phase[g] = "waits"
        if pieces[run.piece[g]][2] == task:
            run.between.add(g)

    def go_on(self, run: Run) -> None:
        """Begin the next iteration where this one is computed, and be ready to send what is complete."""
        if set(run.phase.values()) == {"done"} and run.iteration < run.iterations:
            run.iteration += 1
            if run.iteration < run.iterations:
                run.phase, run.piece = dict.fromkeys(run.gpus, "waits"), dict.fromkeys(run.gpus, 0)
        sent = run.arrived // len(run.job.batches)
        run.remaining = run.iterations - min(run.iteration, sent)
        if run.remaining == 0:
            run.finish = self.now
        elif not run.chunks and self.complete(run, run.arrived):
            batch = run.job.batches[run.arrived % len(run.job.batches)]
            run.chunks, run.ready = self.cut(exact(batch.size_bytes)), True

    def cut(self, size: Fraction) -> list[list[Fraction]]:
        if not self.preemptive or size <= self.chunk:
            return [[self.a, size]]
        return [[self.a, self.chunk], *self.cut(size - self.chunk)]

    def next_instant(self, costs: dict[Run, Fraction]) -> Fraction | None:
        times = [end for run in self.runs for end in run.ends.values()]
        times += [run.launched for run in self.runs if run.launched is not None]
        times += [self.now + run.chunks[0][0] + run.chunks[0][1] * costs[run] for run in costs]
        times += [exact(run.job.arrival_s) for run in self.runs if exact(run.job.arrival_s) > self.now]
        if any(run.finish is None for run in self.runs):
            times += [at for _, *window in self.windows for at in window if at > self.now]
        self.stopping = self.stops()
        times += self.stopping
        first = min(times, default=NEVER)
        self.coinciding = sum(time == first for time in times)
        return first

    def advance(self, until: Fraction, costs: dict[Run, Fraction]) -> list[Run]:
        """Let transfers move on; those that are over."""
        elapsed = until - self.now
        over = []
        for run in self.runs:
            run.queueing += elapsed if run.start is None and exact(run.job.arrival_s) <= self.now else 0
            idle = not run.overlaps or self.stalled(run)
            run.network_wait += elapsed if run.ready and idle else 0
            if not run.running:
                continue
            run.transferring += elapsed if idle else 0
            startup, size = run.chunks[0]
            begun = min(elapsed, startup)
            run.chunks[0] = [startup - begun, size - (elapsed - begun) / costs[run]]
            if elapsed > 0:
                run.whole = False
            run.uneven = run.uneven or not is_even(run.chunks[0][1] * self.b)
            if run.chunks[0] == [0, 0]:
                self.meets_unevenly |= run.uneven and self.coinciding > 1
                run.chunks.pop(0)
                run.whole = True
                if not run.chunks:
                    run.uneven = False
                    over.append(run)
        self.now = until
        return over

    def end_iteration(self, run: Run) -> None:
        run.remaining -= 1
        if run.remaining == 0:
            run.finish = self.now
        else:
            run.phase = dict.fromkeys(run.gpus, "forward")

    def interrupt(self) -> bool:
        """Let jobs on servers that go down queue again; whether a server did, or came back."""
        if self.outages is None or not any(self.now in window for _, *window in self.windows):
            return False
        for run in self.placed():
            if not any(self.is_down(g // self.per_server) for g in run.gpus):
                continue
            done = run.iterations - run.remaining - run.kept
            every = self.outages.checkpoint_every_s
            if every is None:
                kept = 0
            else:
                of_one = exact(run.job.forward_s) + exact(run.job.backward_s)
                iterations = max(1, int(exact(every) / of_one))
                kept = run.kept + done - done % iterations
            self.leave(run, kept)
            run.interruptions += 1
        return True

    def instant(self, over: list[Run]) -> None:
        unfinished = [run for run in self.runs if run.finish is None]
        for run in over:
            run.running = False
            if run.overlaps:
                run.arrived += 1
            else:
                self.end_iteration(run)
        for run in self.placed():
            for g in [g for g in run.ends if run.ends[g] == self.now]:
                del run.ends[g]
                if run.overlaps:
                    self.end_piece(run, g)
                else:
                    run.phase[g] = {"in forward": "backward", "in backward": "done"}[run.phase[g]]
            if run.launched == self.now:
                run.launched = None
                run.phase = dict.fromkeys(run.gpus, "waits" if run.overlaps else "forward")
        for run in self.placed():
            if run.overlaps:
                self.go_on(run)
            elif set(run.phase.values()) == {"done"} and not run.chunks:
                if run.servers:
                    run.chunks, run.ready, run.phase = self.cut(exact(run.job.size_bytes)), True, {}
                else:
                    self.end_iteration(run)
        num_arrived = sum(exact(run.job.arrival_s) <= self.now for run in self.runs)
        # What a job would hold is looked at when one arrives, ends, or may leave, not at other instants.
        changed = self.interrupt() or self.now in self.stopping
        if changed or num_arrived > self.num_arrived or any(run.finish is not None for run in unfinished):
            self.place()
        self.num_arrived = num_arrived
        if self.preemptive:
            self.preempt()
        else:
            self.admit()
        for g in range(self.cluster.num_gpus):
            here = [run for run in self.placed() if g in run.gpus]
            waiting = [run for run in here if self.may_compute(run, g)]
            for run in here:
                if g in run.between:
                    run.between.remove(g)
                    waiting = [run] if run in waiting else waiting
            if waiting and not any(g in run.ends for run in here):
                first = min(waiting, key=self.key)
                if first.overlaps:
                    begin, end, _ = self.pieces[first][first.piece[g]]
                    first.phase[g], first.ends[g] = "computes", self.now + end - begin
                else:
                    forward = first.phase[g] == "forward"
                    duration = first.job.forward_s if forward else first.job.backward_s
                    first.phase[g] = f"in {first.phase[g]}"
                    first.ends[g] = self.now + exact(duration) / first.speed

    def run(self) -> None:
        """Let time pass until every job is over."""
        self.now = Fraction(-1)
        until = self.next_instant({})
        costs: dict[Run, Fraction] = {}
        while until is not None:
            over = self.advance(until, costs)
            self.instant(over)
            costs = self.per_byte()
            until = self.next_instant(costs)
        assert all(run.finish is not None for run in self.runs)
        for run in self.runs:
            run.computed += (run.iterations - run.kept) * self.computing(run)


def simulate(
    jobs: JobSet, cluster: Cluster, scheduling: Scheduling, outages: Outages | None = None
) -> Simulation:
    """The course of each job; of outages only maintenance, which may be any time that a server is down."""
    simulation = Simulation(jobs, cluster, scheduling, outages)
    simulation.run()
    return simulation
