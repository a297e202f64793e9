"""The servers' bookkeeping under random workers: each contribution counts once, and in its round."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.launch import Rule
from hocket.runtime.ps.server.ledger import Contribution, DueUpdate, Ledger
from tests.strategies import examples

STEPS = 4


@st.composite
def rules(draw: st.DrawFn) -> Rule:
    workers = draw(st.integers(1, 4))
    mode = draw(st.sampled_from(["sync", "async"]))
    backup = draw(st.integers(0, workers - 1)) if mode == "sync" else 0
    barrier = draw(st.sampled_from(["step", "parameter"])) if not backup else "step"
    staleness = draw(st.none() | st.integers(0, 2)) if mode == "async" else None
    return Rule(mode=mode, workers=workers, barrier=barrier, backup=backup, staleness=staleness)


@dataclass
class Worker:
    """A worker that keeps to the protocol; ``to_pull`` and ``to_push``: what is left of its step."""

    number: int
    label: int = -1
    steps: int = 0
    state: str = "out"
    to_pull: set[int] = field(default_factory=set)
    to_push: list[int] = field(default_factory=list)
    in_flight: list[tuple[int, int]] = field(default_factory=list)


class Cluster:
    """Workers around a ledger; ``do`` takes one of the things that can happen next."""

    def __init__(self, rule: Rule, num_parameters: int, may_die: bool) -> None:
        self.rule, self.p, self.may_die = rule, num_parameters, may_die
        self.ledger = Ledger(num_parameters, rule)
        self.workers = [Worker(k) for k in range(rule.workers)]
        self.due: list[DueUpdate] = []
        self.applied: Counter[tuple[int, Contribution]] = Counter()
        self.rounds: list[list[DueUpdate]] = [[] for _ in range(num_parameters)]
        self.sent: set[tuple[int, Contribution]] = set()
        self.lives = [0] * rule.workers

    def possible(self) -> list[tuple[str, Worker]]:
        found: list[tuple[str, Worker]] = []
        for w in self.workers:
            match w.state:
                case "out":
                    found.append(("join", w))
                case "between":
                    if w.steps < STEPS:
                        found.append(("want", w))
                    elif not w.in_flight:
                        found.append(("finish", w))
                case "in":
                    if w.to_pull and any(self.ledger.may_pull(w.number, [p]) for p in w.to_pull):
                        found.append(("pull", w))
                    if w.to_push and not w.to_pull:
                        found.append(("push", w))
                    if not w.to_push and not w.to_pull:
                        found.append(("commit", w))
            if w.in_flight and w.state != "gone":
                found.append(("arrive", w))
            if self.may_die and w.state in ("in", "between") and w.steps < STEPS:
                found.append(("die", w))
        if self.due:
            found.append(("apply", self.workers[0]))
        return found

    def do(self, what: str, w: Worker) -> None:
        ledger = self.ledger
        match what:
            case "join":
                self.lives[w.number] = ledger.join(w.number)
                # Another server may have a step less.
                ledger.go_on(w.number, max(0, ledger.counted_steps(w.number) - self.lives[w.number] % 2))
                w.state, w.label = "between", -1
            case "want":
                ledger.note_pull_request(w.number)
                w.state, w.to_pull = "in", set(range(self.p))
                w.to_push = list(range(self.p))
                w.label = -1
            case "pull":
                p = next(p for p in sorted(w.to_pull) if ledger.may_pull(w.number, [p]))
                if w.label < 0:
                    self.check_begin(w)
                    w.label = ledger.begin(w.number)
                if self.rule.mode == "sync" and not self.rule.backup:
                    assert ledger.versions[p] == w.label
                w.to_pull.discard(p)
            case "push":
                w.in_flight.append((w.label, w.to_push.pop()))
            case "arrive":
                label, p = w.in_flight.pop(0)
                self.sent.add((p, Contribution(w.number, self.lives[w.number], label)))
                self.due += ledger.note_gradients(w.number, label, [p])
            case "commit":
                self.due += ledger.note_commit(w.number)
                w.steps += 1
                w.state = "between"
            case "apply":
                due = self.due.pop(0)
                self.rounds[due.parameter].append(due)
                self.applied.update((due.parameter, c) for c in due.contributions)
                ledger.note_updates([due])
            case "finish":
                self.due += ledger.leave(w.number, finished=True)
                w.state = "gone"
            case "die":
                self.due += ledger.leave(w.number, finished=False)
                w.state, w.in_flight = "out", []

    def check_begin(self, w: Worker) -> None:
        if self.rule.staleness is not None and not self.may_die:
            # Nobody begins a step while somebody still trains who is more than the bound behind.
            slowest = min((o.steps for o in self.workers if o.state != "gone"), default=w.steps)
            assert w.steps - slowest <= self.rule.staleness


@examples(400)
@given(seed=st.integers(0, 2**32), rule=rules(), p=st.integers(1, 3), may_die=st.booleans())
def test_every_contribution_is_applied_once_or_dropped(seed: int, rule: Rule, p: int, may_die: bool) -> None:
    cluster = Cluster(rule, p, may_die and rule.mode == "async")
    chance = random.Random(seed)
    for _ in range(600):
        possible = cluster.possible()
        if not possible:
            break
        what, worker = chance.choice(possible)
        if what == "die" and chance.random() < 0.8:
            continue
        cluster.do(what, worker)
    ledger = cluster.ledger
    assert max(cluster.applied.values(), default=1) == 1
    if rule.mode == "async":  # whichever life of its worker it was
        steps = Counter((p, c.worker, c.label) for p, c in cluster.applied)
        assert max(steps.values(), default=1) == 1
    assert set(cluster.applied) <= cluster.sent
    dropped = set(ledger.dropped_contributions)
    assert len(dropped) == ledger.counts.dropped
    assert not dropped & set(cluster.applied)
    assert ledger.counts.received == len(cluster.sent)
    assert ledger.counts.applied == sum(cluster.applied.values())
    for rounds in cluster.rounds:
        for number, due in enumerate(rounds):
            workers = [c.worker for c in due.contributions]
            assert len(set(workers)) == len(workers)
            if rule.mode == "sync":
                assert len(workers) == rule.needed or (rule.backup and 0 < len(workers) < rule.needed)
                assert {c.label for c in due.contributions} == {number}


@examples(200)
@given(seed=st.integers(0, 2**32), bias=st.floats(0, 1), rule=rules(), p=st.integers(1, 3))
def test_nobody_waits_for_ever(seed: int, bias: float, rule: Rule, p: int) -> None:
    cluster = Cluster(rule, p, may_die=False)
    chance = random.Random(seed)
    for _ in range(5000):
        possible = cluster.possible()
        if not possible:
            break
        # As fair as the bias says; else the first worker does what it can.
        cluster.do(*(chance.choice(possible) if chance.random() < bias else possible[0]))
        assert not cluster.ledger.is_stuck
    assert all(w.state == "gone" for w in cluster.workers)
    counts = cluster.ledger.counts
    assert counts.received == rule.workers * STEPS * p
    assert counts.applied == counts.received - counts.dropped
    assert rule.backup or counts.dropped == 0


@pytest.mark.parametrize("backup", [0, 1])
def test_a_worker_that_waits_for_one_that_has_finished_is_stuck(backup: int) -> None:
    ledger = Ledger(1, Rule(workers=2, backup=backup))
    for worker in (0, 1):
        ledger.join(worker)
        ledger.note_pull_request(worker)
        assert ledger.may_pull(worker, [0])
        ledger.begin(worker)
    ledger.note_gradients(0, 0, [0])
    due = ledger.note_commit(0)
    ledger.leave(0, finished=True)
    ledger.note_gradients(1, 0, [0])
    due += ledger.note_commit(1)
    ledger.note_updates(due)
    assert not ledger.is_stuck  # its round is whole
    ledger.note_pull_request(1)
    assert ledger.may_pull(1, [0])
    assert ledger.begin(1) == 1
    ledger.note_gradients(1, 1, [0])
    due = ledger.note_commit(1)
    assert ledger.is_stuck == (backup == 0)
    assert len(due) == backup


def test_clipping_waits_for_every_gradient_of_the_round() -> None:
    ledger = Ledger(2, Rule(workers=2))
    for worker in (0, 1):
        ledger.join(worker)
        ledger.note_pull_request(worker)
        ledger.begin(worker)
    ledger.note_gradients(0, 0, [0, 1])
    ledger.note_gradients(1, 0, [1])
    assert ledger.round_contributions(0) is None
    ledger.note_gradients(1, 0, [0])
    assert ledger.round_contributions(0) == [Contribution(0, 1, 0), Contribution(1, 1, 0)]


def test_clipping_on_one_worker_alone_counts_what_others_have_committed() -> None:
    ledger = Ledger(2, Rule(workers=2))
    for worker in (0, 1):
        ledger.join(worker)
        ledger.note_pull_request(worker)
        ledger.begin(worker)
    ledger.note_gradients(1, 0, [0])
    assert ledger.note_commit(1) == []
    ledger.note_gradients(0, 0, [0, 1])
    assert ledger.round_contributions(0) is None
    ledger.note_gradients(1, 0, [1])
    assert ledger.round_contributions(0) == [Contribution(0, 1, 0), Contribution(1, 1, 0)]
    assert len(ledger.note_commit(0)) == 2
