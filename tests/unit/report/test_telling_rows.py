"""The rows of a long prediction that a terminal shows."""

from __future__ import annotations

from hocket.predictor import Prediction
from hocket.report.telling_rows import telling_rows
from tests.unit.predictor.test_answer import row


def ring(workers: int, throughput: float, bottleneck: str = "worker processors") -> Prediction:
    changes = {"mode": "sync", "architecture": "allreduce", "bottleneck": bottleneck}
    return row(workers, throughput, servers=0, **changes)


def workers_of(rows: list[Prediction], named: set[int], gpus: int = 1) -> list[int]:
    return [each.workers for each in telling_rows(rows, named, gpus)]


def test_a_few_rows_are_all_shown() -> None:
    assert workers_of([ring(w, w) for w in range(1, 21)], {1, 20}) == list(range(1, 21))


def test_of_a_long_range_whole_nodes_are_shown_and_what_decides() -> None:
    rows = [ring(w, min(w, 300), "network" if w >= 100 else "worker processors") for w in range(8, 513)]
    # Named ones, doubled nodes, where the network comes to decide, 95% of the highest, and the highest.
    assert workers_of(rows, {8, 512, 77}, 8) == [8, 16, 32, 64, 77, 100, 128, 256, 285, 300, 512]
    assert workers_of(rows[:100], {8, 107}) == [8, 16, 32, 64, 100, 107]


def test_all_of_a_few_whole_nodes_are_shown() -> None:
    rows = [ring(w, w) for w in range(1, 65)]
    assert workers_of(rows, set(), 8) == [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 64]
