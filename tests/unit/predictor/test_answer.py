"""What is said of rows: where they saturate, on what, what is cheapest, and when not to trust them."""

from __future__ import annotations

from typing import Any

import pytest

from hocket.predictor import Prediction
from hocket.predictor.answer import (
    answers,
    cheapest,
    curves,
    efficiency,
    lockstep_note,
    saturation,
    speedup,
)


def row(workers: int, throughput: float, servers: int = 1, **changes: Any) -> Prediction:
    return Prediction(
        **{
            "workers": workers,
            "servers": servers,
            "mode": "async",
            "throughput": throughput,
            "step_s": 32 * workers / throughput if throughput else 0.0,
            "events": 1000,
            "wall_s": 0.01,
            "architecture": "ps",
            "policy": "fifo",
            "bottleneck": "downlink",
            "bottleneck_utilization": 0.9,
            **changes,
        }
    )


def line_of(*throughputs: float) -> list[Prediction]:
    return [row(w, throughput) for w, throughput in enumerate(throughputs, start=1)]


def test_rows_of_equal_servers_and_mode_are_one_curve_by_workers() -> None:
    rows = [row(4, 40), row(2, 20), row(4, 80, 2), row(2, 20, mode="sync")]
    assert [[r.workers for r in curve] for curve in curves(rows)] == [[2, 4], [4], [2]]


@pytest.mark.parametrize(
    ("throughputs", "expected"),
    [
        ((50, 100, 152, 160, 160), 3),  # 152 is 95% of 160
        ((50, 100, 151, 160, 160), 4),
        ((50, 100, 150, 200), None),
        ((50, 90, 80, 70), 2),
        ((50, 40, 30), 1),
        ((50,), None),
        ((0, 0, 0), None),
        (tuple(50.0 * w for w in range(1, 65)), None),  # 61 workers reach 95% of 64 workers' throughput
    ],
)
def test_saturation_is_the_fewest_workers_near_the_best(
    throughputs: tuple[float, ...], expected: int | None
) -> None:
    knee = saturation(line_of(*throughputs))
    assert (knee and knee.workers) == expected


def test_speedup_and_efficiency_are_over_the_fewest_workers() -> None:
    least, most = row(2, 50), row(8, 150)
    assert (speedup(most, least), efficiency(most, least)) == (3.0, 0.75)
    assert (speedup(most, row(2, 0)), efficiency(most, row(2, 0))) == (None, None)


def test_a_curve_that_saturates_is_one_line_with_its_bottleneck() -> None:
    rows = line_of(50, 100, 150, 151, 152)
    assert answers(rows) == [
        "1 server: throughput saturates at 3 workers, 150 examples/s (3.00x 1 worker, efficiency 100%); "
        "busiest there: downlink, 90% of the time"
    ]


def test_a_curve_that_grows_says_so() -> None:
    (line,) = answers([row(2, 50), row(4, 100), row(16, 12345.6)])
    assert line.startswith(
        "1 server: throughput still grows at 16 workers, 12346 examples/s (246.91x 2 workers"
    )


def test_a_single_row_claims_no_growth() -> None:
    (line,) = answers([row(1, 50.0)])
    assert line.startswith("1 server: 1 worker reaches 50 examples/s; busiest")
    (line,) = answers([row(4, 50.0, servers=0, mode="sync", architecture="allreduce")])
    assert line.startswith("all-reduce: 4 workers reach 50 examples/s; busiest")


def test_modes_are_named_where_there_are_two() -> None:
    rows = [row(1, 50), row(1, 40, mode="sync")]
    names = [line.partition(":")[0] for line in answers(rows)]
    assert names == ["1 server, asynchronous", "1 server, synchronous"]


def test_the_cheapest_is_named_with_its_price() -> None:
    rows = [row(1, 50, cost_per_example=6e-6), row(2, 100, 2, cost_per_example=5.5e-6)]
    assert cheapest(rows) is rows[1]
    assert answers(rows)[-1] == "cheapest: 2 workers and 2 servers, 5.5 per million examples"
    assert cheapest([row(1, 50)]) is None


def test_lockstep_is_said_once_and_why() -> None:
    rows = [row(1, 50), row(2, 60, lockstep=True), row(4, 70, lockstep=True)]
    note = lockstep_note(rows)
    assert note is not None
    assert answers(rows).count(note) == 1
    told = ("single sampled step", "pessimistic", "--spread", "--steps", "--jitter")
    assert all(word in note for word in told)
    assert lockstep_note([row(1, 50)]) is None
