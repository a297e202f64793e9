"""What the times of rounds say: medians, ratios within rounds, the bound and what decides it."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from hocket.bench.training.train import Benchmark, benchmark_document
from hocket.bench.training.training_request import (
    BUSY,
    COMPUTE,
    DDP_COMPILED,
    HOCKET,
    HOCKET_COMPILED,
    NETWORK,
    TimedCell,
    TrainingRequest,
)
from hocket.bench.training.training_statistics import TrainingCell, cell_of, spread, summary_of
from hocket.bench.training.training_table import cell_heading, cell_table, summary_line

FORMATS = Path(__file__).parents[3] / "docs" / "formats.md"
STEPS_S = {
    COMPUTE: [0.9, 1.0, 1.1],
    BUSY: [1.2, 1.1, 1.0],
    NETWORK: [2.0, 2.2, 2.1],
    "ddp 1 MB": [3.0, 3.3, 3.2],
    "ddp 5 MB": [2.9, 3.0, 3.1],
    "ddp 25 MB": [2.8, 3.5, 3.4],
    "ddp 100 MB": [4.0, 4.0, 4.0],
    HOCKET: [2.5, 2.4, 3.1],
}
COMPILED_S = {**STEPS_S, DDP_COMPILED: [2.4, 2.2, 2.6], HOCKET_COMPILED: [2.0, 2.2, 2.0]}
STOLEN = {name: [0.0, 0.02, 0.011] for name in COMPILED_S}
CPU_S = {name: [0.8, 0.81, 0.9] for name in COMPILED_S}


def measured(**changes: object) -> TimedCell:
    plain = TimedCell(
        model="cnn",
        batch_size=24,
        rho_target=2.0,
        gradient_bytes=38_000_000,
        steps_s=STEPS_S,
        stolen=STOLEN,
        cpu_s=CPU_S,
        lockstep_s=[1.3, 1.4, 1.1],
        plan="caramel",
        cycle_s=2.1,
        simulated_s=2.2,
    )
    return msgspec.structs.replace(plain, **changes)


def test_quartiles_lie_between_the_values() -> None:
    found = spread([4.0, 1.0, 2.0, 3.0])
    assert (found.low, found.median, found.high) == (1.75, 2.5, 3.25)
    alone = spread([5.0])
    assert (alone.low, alone.median, alone.high) == (5.0, 5.0, 5.0)


def test_the_best_bucket_is_that_of_the_best_median() -> None:
    assert cell_of(measured()).best_ddp == "ddp 5 MB"


def test_ratios_are_of_one_round_each() -> None:
    cell = cell_of(measured())
    hocket = cell.row(HOCKET)
    assert hocket.speedup is not None
    # 2.9 / 2.5, 3.0 / 2.4 and 3.1 / 3.1; the ratio of the medians would be 1.2.
    assert hocket.speedup.median == pytest.approx(1.16)
    assert (hocket.speedup.low, hocket.speedup.high) == pytest.approx((1.08, 1.205))
    best = cell.row("ddp 5 MB").speedup
    assert best is not None
    assert (best.low, best.median, best.high) == (1.0, 1.0, 1.0)
    assert cell.row(COMPUTE).speedup is None
    assert cell.row(COMPUTE).over_bound is None


def test_what_is_compiled_is_compared_with_compiled_ddp_alone() -> None:
    cell = cell_of(measured(steps_s=COMPILED_S))
    hocket, ddp = cell.row(HOCKET_COMPILED), cell.row(DDP_COMPILED)
    assert hocket.speedup is not None
    assert ddp.speedup is not None
    # 2.4 / 2.0, 2.2 / 2.2 and 2.6 / 2.0.
    assert hocket.speedup.median == pytest.approx(1.2)
    assert ddp.speedup.median == 1.0
    # What a step computes was measured eager.
    assert hocket.over_bound is ddp.over_bound is None
    eager = cell_of(measured())
    assert (cell.best_ddp, cell.row(HOCKET)) == (eager.best_ddp, eager.row(HOCKET))
    assert summary_of([cell]) == summary_of([eager])
    printed = io.StringIO()
    Console(file=printed, width=160).print(cell_table(cell))
    assert printed.getvalue().splitlines()[-1].split()[2:] == [
        "2000.0",
        "2000.0..2100.0",
        "1.200x",
        "1.100..1.250",
        "1.1%",
    ]


@pytest.mark.parametrize(
    ("changes", "limit", "bound_s"),
    [
        ({}, "network", 2.1),
        ({"cycle_s": 2.4}, "cycle", 2.4),
        ({"cycle_s": 2.1 * (1 + 1e-9)}, "network", 2.1),  # but for rounding it is N
        ({"steps_s": {**STEPS_S, BUSY: [3.0, 3.0, 3.0]}}, "compute", 3.0),
    ],
)
def test_the_largest_of_three_is_the_bound(changes: dict[str, object], limit: str, bound_s: float) -> None:
    cell = cell_of(measured(**changes))
    assert (cell.limit, cell.bound_s) == (limit, bound_s)
    assert cell.row(HOCKET).over_bound == pytest.approx(2.5 / bound_s)
    assert (cell.compute_s, cell.network_s, cell.rho) == (1.0, 2.1, 2.1 / cell.busy_s)
    assert cell.lockstep_s == 1.3


def cells() -> list[TrainingCell]:
    slower = {**STEPS_S, HOCKET: [3.2, 3.0, 3.1]}
    return [cell_of(measured()), cell_of(measured(model="gpt", rho_target=None, steps_s=slower))]


def test_a_summary_is_over_all_cells() -> None:
    summary = summary_of(cells())
    assert summary.least_speedup == pytest.approx(1.0)
    assert summary.mean_speedup == pytest.approx(1.16**0.5)
    assert summary.most_over_bound == pytest.approx(3.1 / 2.1)
    assert summary_line(cells(), summary) == (
        "hocket over the best DDP bucket: 1.077x (geometric mean of 2), at least 1.000x;"
        " at most 1.476 times the bound"
    )


def test_a_cell_is_a_table_for_people() -> None:
    first, second = cells()
    assert cell_heading(first).splitlines() == [
        "cnn, 38.0 MB, batch 24: rho 1.91 (asked for 2)",
        "C 1 s, C busy 1.1 s (1.3 s in lockstep), N 2.1 s, critical cycle 2.1 s; bound 2.1 s by N;"
        " caramel simulated 2.2 s",
    ]
    assert cell_heading(second).startswith("gpt, 38.0 MB, batch 24: rho 1.91\n")
    printed = io.StringIO()
    Console(file=printed, width=160).print(cell_table(first))
    rows = [line.split("  ") for line in printed.getvalue().splitlines()]
    words = [[word.strip() for word in row if word.strip()] for row in rows]
    headings = "variant|step, ms|quartiles|over DDP|quartiles|to bound|stolen"
    assert words[0] == headings.split("|")
    assert words[1] == ["compute", "1000.0", "950.0..1050.0", "1.1%"]
    assert words[-1] == ["hocket", "2500.0", "2450.0..2800.0", "1.160x", "1.080..1.205", "1.190", "1.1%"]
    assert len(words) == 1 + len(STEPS_S)


def test_everything_is_in_one_document() -> None:
    benchmark = Benchmark(
        request=request(),
        workers=2,
        rate_bps=250e6,
        where="an emulated cluster",
        torch="2.13.0",
        cells=cells(),
        summary=summary_of(cells()),
        wall_s=60.0,
    )
    document = json.loads(json.dumps(benchmark_document(benchmark)))
    said = FORMATS.read_text().partition("\n## bench train\n")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(\w+)`", said))
    cell, row = document["cells"][0], document["cells"][0]["rows"][-1]
    for part in (document, document["request"], document["summary"], cell, row, row["step_s"]):
        assert set(part) <= named
    assert row["rounds_s"] == STEPS_S[HOCKET]
    assert document["cells"][1]["rho_target"] is None


def request() -> TrainingRequest:
    return TrainingRequest(
        models=("cnn",),
        rhos=(2.0,),
        batch_size=None,
        steps=8,
        blocks=5,
        seed=0,
        threads=1,
        plan="auto",
        compile=False,
        timeout_s=60.0,
    )
