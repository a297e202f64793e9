"""Several servers' bookkeeping from a checkpoint on: each has other steps, and nobody waits for ever."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.launch import Rule
from hocket.runtime.ps.server.ledger import DueUpdate, Ledger
from tests.strategies import examples

STEPS = 4


@dataclass
class Worker:
    """``joined``: to how many servers; ``told``: which know where it goes on; ``begun``: of its step.

    ``steps``: committed ones, with those of earlier jobs; ``first``: how many each server has said to have.
    """

    number: int
    joined: int = 0
    first: list[int] = field(default_factory=list)
    told: set[int] = field(default_factory=set)
    steps: int = 0
    wanting: bool = False
    begun: set[int] = field(default_factory=set)
    gone: bool = False


class Servers:
    """``steps`` (server, worker): how many are applied on each, which have one parameter; kept on disks.

    So often as ``deaths`` says a worker is lost and comes again.
    """

    def __init__(self, rule: Rule, steps: list[list[int]], deaths: int = 0) -> None:
        self.rule, self.steps, self.deaths = rule, steps, deaths
        self.bounded = deaths == 0  # who comes late is behind, and holds up nobody
        self.ledgers = [Ledger(1, rule, [[n] for n in row]) for row in steps]
        self.due: list[list[DueUpdate]] = [[] for _ in steps]
        self.workers = [Worker(k) for k in range(rule.workers)]

    def on(self, w: Worker) -> bool:
        return len(w.told) == len(self.ledgers)

    def possible(self) -> list[tuple[str, Worker, int]]:
        found = []
        for k, ledger in enumerate(self.ledgers):
            if self.due[k]:
                found.append(("apply", self.workers[0], k))
            for w in self.workers:
                if w.joined == k:
                    found.append(("join", w, k))
                elif w.joined == len(self.ledgers) and k not in w.told:
                    found.append(("go on", w, k))
                if w.wanting and k not in w.begun and ledger.may_pull(w.number, [0]):
                    found.append(("begin", w, k))
        for w in self.workers:
            if w.wanting and len(w.begun) == len(self.ledgers):
                found.append(("commit", w, 0))
            if self.on(w) and not w.wanting and not w.gone:
                found.append(("want" if w.steps < STEPS else "leave", w, 0))
            if self.deaths and w.joined and not w.gone:
                found.append(("die", w, 0))
        return found

    def do(self, what: str, w: Worker, k: int) -> None:
        match what:
            case "join":
                w.first.append(self.ledgers[k].counted_steps(w.number))
                self.ledgers[k].join(w.number)
                w.joined += 1
            case "go on":
                w.steps = min(w.first)
                self.ledgers[k].go_on(w.number, w.steps)
                w.told.add(k)
            case "want":
                for ledger in self.ledgers:
                    ledger.note_pull_request(w.number)
                w.wanting, w.begun = True, set()
            case "begin":
                # As old as the bound allows, counted in steps that all servers have.
                slowest = min(o.steps for o in self.workers if self.on(o))
                if self.rule.staleness is not None and self.bounded:
                    assert w.steps - slowest <= self.rule.staleness
                assert self.ledgers[k].begin(w.number) == w.steps
                w.begun.add(k)
            case "commit":
                for ledger, due in zip(self.ledgers, self.due, strict=True):
                    due += ledger.note_gradients(w.number, w.steps, [0])
                    due += ledger.note_commit(w.number)
                w.steps += 1
                w.wanting = False
            case "leave":
                for ledger in self.ledgers:
                    ledger.leave(w.number, finished=True)
                w.gone = True
            case "die":
                self.deaths -= 1
                for ledger in self.ledgers[: w.joined]:
                    ledger.leave(w.number, finished=False)
                self.workers[w.number] = Worker(w.number)
            case "apply":
                due = self.due[k].pop(0)
                (contribution,) = due.contributions
                assert contribution.label == self.steps[k][contribution.worker]  # none twice, none left out
                self.steps[k][contribution.worker] += 1
                self.ledgers[k].note_updates([due])


@examples(300)
@given(
    seed=st.integers(0, 2**32),
    workers=st.integers(1, 4),
    servers=st.integers(1, 3),
    staleness=st.none() | st.integers(0, 2),
    ends=st.lists(st.integers(0, 120), max_size=3),
    deaths=st.integers(0, 3),
)
def test_nobody_waits_for_ever_after_servers_have_ended_anywhere(
    seed: int, workers: int, servers: int, staleness: int | None, ends: list[int], deaths: int
) -> None:
    chance = random.Random(seed)
    rule = Rule(mode="async", workers=workers, staleness=staleness)
    steps = [[0] * workers for _ in range(servers)]
    for events in [*ends, 5000]:
        running = Servers(rule, steps, deaths)
        for _ in range(events):
            possible = running.possible()
            if not possible:
                break
            running.do(*chance.choice(possible))
    assert all(w.gone for w in running.workers)
    assert steps == [[STEPS] * workers] * servers


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_step_that_comes_again_for_another_server_counts_once(staleness: int) -> None:
    """Each of two servers has one worker's first step, and not the other's."""
    rule = Rule(mode="async", workers=2, staleness=staleness)
    running = Servers(rule, [[1, 0], [0, 1]])
    for what in ("join", "go on"):
        for w in running.workers:
            for k in (0, 1):
                running.do(what, w, k)
    first, second = running.workers
    for number in range(1 + staleness):
        running.do("want", first, 0)
        for k, ledger in enumerate(running.ledgers):
            assert ledger.may_pull(0, [0]), f"step {number} on server {k}"
            running.do("begin", first, k)
        running.do("commit", first, 0)
        for k in (0, 1):
            while running.due[k]:
                running.do("apply", first, k)
    running.do("want", first, 0)
    assert not any(ledger.may_pull(0, [0]) for ledger in running.ledgers)  # second has had none
    running.do("want", second, 0)
    assert all(ledger.may_pull(1, [0]) for ledger in running.ledgers)


def test_who_comes_again_holds_up_nobody_for_what_happened_without_it() -> None:
    ledger = Ledger(1, Rule(mode="async", workers=2, staleness=0))
    ledger.join(1)
    ledger.leave(1, finished=False)
    ledger.join(0)
    for _ in range(3):
        ledger.note_pull_request(0)
        assert ledger.may_pull(0, [0])
        ledger.note_gradients(0, ledger.begin(0), [0])
        ledger.note_updates(ledger.note_commit(0))
    ledger.join(1)
    ledger.go_on(1, ledger.counted_steps(1))
    ledger.note_pull_request(0)
    assert ledger.may_pull(0, [0])
