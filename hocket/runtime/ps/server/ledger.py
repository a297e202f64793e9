"""A server's bookkeeping: which push is applied when, and which pull may be answered when. No I/O, no clock.

A worker's step has a label on each server: its own count of steps, or, with backup workers, the round that it
joins. A worker's push for one parameter under one label is a contribution. Each one that arrives is
applied exactly once or dropped, and counted. An asynchronous worker that comes again, in this job or in one
that goes on from a checkpoint, goes on with the first step that does not count on every server yet; where a
server has made an update of it already, it is dropped.

Sources: sync with backup workers, Chen et al., Revisiting Distributed Synchronous SGD (2016), per gradient as
in TensorFlow's accumulators; bounded staleness, Ho et al., More Effective Distributed ML via a Stale
Synchronous Parallel Parameter Server (2013).

Differs from the papers
-----------------------
* A contribution counts once its worker's optimizer has stepped, not when it arrives. Only then does the
  script say with which learning rates and which factor that clips, and that there is a step at all: it may
  leave one out (a loss that is no number), change gradients, or fail before, and what an update has done to a
  value and its optimizer's state cannot be taken back. So a step's updates do not hide behind its backward
  pass; ``hocket predict --updates commit`` says what that costs.
* Staleness counts steps that are applied, on each server for itself.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from hocket.launch import Rule


class Contribution(NamedTuple):
    """One worker's gradients of a step; ``life`` tells a worker from the one it replaces."""

    worker: int
    life: int
    label: int


class DueUpdate(NamedTuple):
    """An update that is to run now: of ``parameter``, by these contributions, workers in order."""

    parameter: int
    contributions: tuple[Contribution, ...]


@dataclass
class ContributionCounts:
    """Contributions so far; those that are neither applied nor dropped wait."""

    received: int = 0
    applied: int = 0
    dropped: int = 0


@dataclass
class _Member:
    """``label``: of the step under way, or the last one; ``whole_steps``: those that are applied as a whole.

    ``joined_late``: it came when others had gone, and ``whole_steps`` began with theirs.
    ``uncommitted_parameters``: those whose contributions wait for the commit; ``pending_parameters``: those
    of the last step that was committed whose updates are still to run.
    """

    life: int
    label: int
    whole_steps: int
    joined_late: bool
    pulls_requested: bool = False
    step_committed: bool = True
    uncommitted_parameters: set[int] = field(default_factory=set)
    pending_parameters: set[int] = field(default_factory=set)


class Ledger:
    """Of a server with ``num_parameters``; ``versions`` (p,): how many updates of each have run.

    ``dropped_contributions``: what was dropped since the list was last cleared. ``steps`` (w, p), of an
    asynchronous job that goes on: how many steps of each worker count already."""

    def __init__(self, num_parameters: int, rule: Rule, steps: Sequence[Sequence[int]] | None = None) -> None:
        self.versions = [0] * num_parameters
        self._steps = [list(row) for row in steps or [[0] * num_parameters] * rule.workers]
        self.counts = ContributionCounts()
        self.dropped_contributions: list[tuple[int, Contribution]] = []
        self._rule = rule
        self._issued_updates = [0] * num_parameters
        self._waiting: dict[tuple[int, int], list[Contribution]] = defaultdict(list)
        self._members: dict[int, _Member] = {}
        self._lives: dict[int, int] = defaultdict(int)
        self._gone_workers: set[int] = set()
        self._some_finished = False

    # Workers that take part.

    def join(self, worker: int) -> int:
        """``worker`` takes part from now on; which life it is."""
        assert worker not in self._members
        self._lives[worker] += 1
        clock, late = self._whole_steps(worker), bool(self._gone_workers)
        if late:  # it holds up nobody for what happened without it
            clock = min((m.whole_steps for m in self._members.values()), default=clock)
        self._members[worker] = _Member(self._lives[worker], self.counted_steps(worker) - 1, clock, late)
        self._gone_workers.discard(worker)
        return self._lives[worker]

    def counted_steps(self, worker: int) -> int:
        """The number of ``worker``'s steps that count here as a whole; of a synchronous job of rounds."""
        return min(self.versions, default=0) if self._rule.mode == "sync" else self._whole_steps(worker)

    def go_on(self, worker: int, steps: int) -> None:
        """``worker``, which has just joined, goes on after so many steps: other servers may have fewer."""
        member = self._members[worker]
        member.label = steps - 1
        if not member.joined_late:  # a step that it repeats for other servers counts again
            member.whole_steps = min(member.whole_steps, steps)

    def go_back(self, rounds: int) -> None:
        """Before any step: the synchronous job goes on after so many rounds."""
        self.versions = [rounds] * len(self.versions)
        self._issued_updates = list(self.versions)

    def leave(self, worker: int, *, finished: bool) -> list[DueUpdate]:
        """Take ``worker`` out, which may come again if it did not finish; the updates made due by that.

        Pushes that it had not committed are dropped. Asynchronous updates that are due run all the same; of a
        round that waits for others a worker takes its part along if it did not finish: it may bring it again.
        """
        member = self._members.pop(worker)
        for p in sorted(member.uncommitted_parameters):
            self._drop(p, Contribution(worker, member.life, member.label))
        self._gone_workers.add(worker)
        self._some_finished |= finished
        for (p, _), waiting in self._waiting.items():
            for contribution in [c for c in waiting if c.worker == worker and not finished]:
                waiting.remove(contribution)
                self._drop(p, contribution)
        whole = [key for key, waiting in self._waiting.items() if len(waiting) >= self._round_size]
        return [self._issue(*key) for key in whole]

    @property
    def members(self) -> list[int]:
        """The workers that take part."""
        return sorted(self._members)

    @property
    def is_stuck(self) -> bool:
        """True if a worker waits for a round that not enough others can still contribute to."""
        if self._rule.mode != "sync" or not self._gone_workers:
            return False
        for member in self._members.values():
            if not member.step_committed:
                continue
            able = {w for w, m in self._members.items() if m.label <= member.label}
            for p, issued in enumerate(self._issued_updates):
                have = {c.worker for c in self._waiting.get((p, member.label), ())}
                if issued <= member.label and len(have | able) < self._round_size:
                    return True
        return False

    # A worker's step.

    def note_pull_request(self, worker: int) -> None:
        """``worker`` is going to begin a step and asks for its pulls."""
        self._members[worker].pulls_requested = True

    def may_request_pulls(self, worker: int) -> bool:
        """Tell whether the last step of ``worker``, if any, has ended."""
        return self._members[worker].step_committed

    def may_pull(self, worker: int, parameters: Iterable[int]) -> bool:
        """True if ``parameters`` are as new as the step that ``worker`` is going to begin needs them."""
        member = self._members[worker]
        # Once its first pull is answered the step has its label.
        label = member.label + 1 if member.pulls_requested else member.label
        if self._rule.mode == "inference":
            return True
        if self._rule.mode == "sync":
            versions = (
                self.versions if self._rule.barrier == "step" else [self.versions[p] for p in parameters]
            )
            return min(versions, default=label) >= label
        if (
            member.pending_parameters
            if self._rule.barrier == "step"
            else not member.pending_parameters.isdisjoint(parameters)
        ):
            return False
        if self._rule.staleness is None:
            return True
        clocks = [m.whole_steps for m in self._members.values()]
        clocks += [self._whole_steps(w) for w in range(self._rule.workers) if w not in self._lives]
        return member.whole_steps + bool(member.pending_parameters) - min(clocks) <= self._rule.staleness

    def begin(self, worker: int) -> int:
        """The first of ``worker``'s pulls is answered: its step begins; returns its label."""
        member = self._members[worker]
        if member.pulls_requested:
            assert member.step_committed
            member.pulls_requested, member.step_committed = False, self._rule.mode == "inference"
            member.label += 1
            if self._rule.backup:
                member.label = max(member.label, min(self.versions))
        return member.label

    def note_gradients(self, worker: int, label: int, parameters: Iterable[int]) -> list[DueUpdate]:
        """Gradients of ``worker`` have arrived; the updates that this makes due."""
        member = self._members[worker]
        due = []
        for p in parameters:
            assert p not in member.uncommitted_parameters
            self.counts.received += 1
            if self._late(worker, p, label):
                self._drop(p, Contribution(worker, member.life, label))
            elif member.step_committed or label < member.label:
                due += self._count(p, Contribution(worker, member.life, label))
            else:
                member.uncommitted_parameters.add(p)
        return due

    def may_commit(self, worker: int) -> bool:
        """Tell whether ``worker`` is in a step that its optimizer has not ended."""
        member = self._members[worker]
        return member.label >= 0 and not (member.step_committed or member.pending_parameters)

    def note_commit(self, worker: int) -> list[DueUpdate]:
        """``worker``'s optimizer has stepped: what has arrived of the step counts, and what is to arrive."""
        member = self._members[worker]
        assert not member.step_committed
        member.step_committed = True
        if self._rule.mode == "async":
            assert not member.pending_parameters
            everything = range(len(self.versions))
            member.pending_parameters = {p for p in everything if not self._late(worker, p, member.label)}
            member.whole_steps += not member.pending_parameters
        due: list[DueUpdate] = []
        for p in sorted(member.uncommitted_parameters):
            if self._late(worker, p, member.label):
                self._drop(p, Contribution(worker, member.life, member.label))
            else:
                due += self._count(p, Contribution(worker, member.life, member.label))
        member.uncommitted_parameters.clear()
        return due

    def note_updates(self, updates: Sequence[DueUpdate]) -> None:
        """The ``updates`` have run."""
        for p, contributions in updates:
            self.versions[p] += 1
            self.counts.applied += len(contributions)
            if self._rule.mode != "async":
                continue
            for worker, life, _ in contributions:
                member = self._members.get(worker)
                if member is not None and member.life == life:
                    member.pending_parameters.discard(p)
                    member.whole_steps += not member.pending_parameters

    def round_contributions(self, label: int) -> list[Contribution] | None:
        """The contributions to round ``label``, once all of them have arrived, committed or not."""
        at_label = {w: m for w, m in self._members.items() if m.label == label}
        arrived = Counter(
            {Contribution(w, m.life, label): len(m.uncommitted_parameters) for w, m in at_label.items()}
        )
        for (_, of), waiting in self._waiting.items():
            if of == label:
                arrived.update(waiting)  # committed
        complete = sorted(c for c, parameters in arrived.items() if parameters == len(self.versions))
        return complete if len(complete) >= self._rule.needed else None

    def _drop(self, p: int, contribution: Contribution) -> None:
        self.counts.dropped += 1
        self.dropped_contributions.append((p, contribution))

    def _whole_steps(self, worker: int) -> int:
        return min(self._steps[worker], default=0)

    def _late(self, worker: int, p: int, label: int) -> bool:
        """True if the update that this is for has been made without it, or of what was the same."""
        return label < (self._issued_updates[p] if self._rule.mode == "sync" else self._steps[worker][p])

    def _count(self, p: int, contribution: Contribution) -> list[DueUpdate]:
        if self._rule.mode == "async":
            self._steps[contribution.worker][p] = contribution.label + 1
            return [DueUpdate(p, (contribution,))]
        waiting = self._waiting[p, contribution.label]
        waiting.append(contribution)
        return [self._issue(p, contribution.label)] if len(waiting) >= self._round_size else []

    def _issue(self, p: int, label: int) -> DueUpdate:
        self._issued_updates[p] += 1
        return DueUpdate(p, tuple(sorted(self._waiting.pop((p, label)))))

    @property
    def _round_size(self) -> int:
        """The number of contributions that make a round.

        Once some workers have finished, backup workers go on without them.
        """
        if self._rule.backup and self._some_finished:
            return max(1, min(self._rule.needed, len(self._members)))
        return self._rule.needed
