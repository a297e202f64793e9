"""Objects as terminals and notebooks show them: a few lines, whatever their size or state."""

from __future__ import annotations

import dataclasses
import html
import itertools
import pickle
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import hocket
from hocket.errors import HocketError
from hocket.graph import Lane, Reduction, Span, StepGraph
from hocket.graph.result import LEVEL
from hocket.network.file import NetworkFile
from tests import strategies

NETWORK = hocket.Network(bandwidth_bps=1e9, num_workers=2)


def step(layers: int = 2, name: str = "toy") -> StepGraph:
    """So many layers in a chain."""
    parameters = [strategies.parameter(f"p{k}", 1000) for k in range(layers)]
    forward = [
        strategies.operation(f"f{k}", 1.0, inputs=[f"f{k - 1}"] if k else [], reads=[f"p{k}"])
        for k in range(layers)
    ]
    backward = [
        strategies.operation(
            f"b{k}",
            1.0,
            inputs=[f"b{k + 1}"] if k < layers - 1 else [f"f{k}"],
            produces=[f"p{k}"],
            phase="backward",
        )
        for k in reversed(range(layers))
    ]
    return dataclasses.replace(strategies.step(parameters, [*forward, *backward]), model=name)


def plan(reductions: int = 2, name: str = "toy") -> hocket.Plan:
    return hocket.Plan(
        policy=name,
        model=name,
        architecture="allreduce",
        reductions=tuple(Reduction(parameters=(f"p{k}",)) for k in range(reductions)),
        compute_order=None,
    )


def objects(name: str = "toy", size: int = 2) -> list[Any]:
    """One of each kind."""
    graph = step(min(size, 50), name)
    made = hocket.plan(graph, NETWORK, "ddp")
    result = hocket.simulate(graph, made, NETWORK, iterations=3, timeline=True)
    rows = hocket.predict(graph, NETWORK, workers=range(1, min(size, 20) + 1), steps=20, skip=5)
    tuning = hocket.tuner.Tuning(ranked=[result.row] * size, plans={name: made}, evaluations=3, wall_s=1.0)
    lanes = tuple(Lane(process=name, name=f"{k}") for k in range(2))
    spans = tuple(Span(0, name, "forward", float(k), k + 1.0) for k in range(size))
    return [
        *(
            graph,
            step(size, name),
            plan(size, name),
            made,
            result,
            result.row,
            rows,
            rows[0],
            tuning,
            NETWORK,
        ),
        hocket.Timeline(title=name, lanes=lanes, spans=spans),
        hocket.Machines(speeds=tuple(1.0 + k for k in range(size))),
        NetworkFile(bandwidth_bps=1e9),
    ]


@pytest.mark.parametrize(("name", "size"), [("toy", 2), ("long" * 100_000, 3000)])
def test_a_few_lines_of_any_object(name: str, size: int) -> None:
    for each in objects(name, size):
        lines = repr(each).splitlines()
        assert 2 <= len(lines) <= 7, each
        assert all(len(line) < 200 for line in lines), each
        assert str(each) == repr(each)
        assert "damaged" not in lines[0], each
        assert len(each._repr_html_()) < 10_000


def test_the_lines_say_what_matters() -> None:
    graph = step(3)
    assert repr(graph) == (
        "StepGraph of toy, batch size 1, on toy\n"
        "  operations  6: 3 forward, 3 backward, 0 update\n"
        "  parameters  3, 3 kB; 3 are trained\n"
        "  computing   6 s a step, the mean of 1 sample"
    )
    assert repr(plan(1)).splitlines()[:2] == [
        "Plan 'toy' of toy, all-reduce",
        "  transfers   1 reduction, 0 of them slices, 0 may run on into the next forward pass",
    ]
    result = hocket.simulate(graph, hocket.plan(graph, NETWORK, "ddp"), NETWORK, iterations=4)
    assert repr(result).splitlines()[0] == "Result of 'ddp': toy, all-reduce, 2 workers"
    assert "  simulated   4 steps" in repr(result).splitlines()


def test_names_are_no_markup_and_no_control_characters() -> None:
    for each in objects("<script>x</script>\x1b[31m\n\n&"):
        shown = each._repr_html_()
        assert "<script" not in shown
        assert "\x1b" not in repr(each) + shown
        cells = re.sub(r"</?(table|caption|tbody|tr|th|td)( [a-z]+=\"[a-z:-]+\")*>", "", shown)
        assert not re.search(r"[<>]", cells), cells
        assert html.unescape(cells)
        assert "color" not in shown
        assert "background:" not in shown


@pytest.mark.parametrize(
    "kind", [hocket.StepGraph, hocket.Plan, hocket.Result, hocket.Tuning, hocket.Prediction]
)
def test_an_object_without_content_is_shown(kind: Any) -> None:
    shown = repr(object.__new__(kind))
    assert shown.startswith(f"{kind.__name__}, damaged: AttributeError")
    assert len(shown.splitlines()) == 1


def test_an_object_with_wrong_content_is_shown() -> None:
    wrong: Any = hocket.Plan(policy="x", model="y", architecture="neither", compute_order=None)  # type: ignore[arg-type]
    assert repr(wrong) == "Plan, damaged: KeyError: 'neither'"
    nothing = hocket.Tuning(ranked=[], plans={}, evaluations=0, wall_s=0.0)
    assert repr(nothing).startswith("Tuning, damaged: IndexError")
    empty = step(2)
    empty = dataclasses.replace(empty, durations_s=np.zeros((4, 0)))
    assert repr(empty).startswith("StepGraph")


def test_equality_and_pickles_are_those_of_the_content() -> None:
    for each in objects():
        copied = pickle.loads(pickle.dumps(each))
        assert repr(copied) == repr(each)
    assert pickle.loads(pickle.dumps(plan())) == plan()
    assert plan(2) != plan(3)
    assert hash(NETWORK) == hash(hocket.Network(bandwidth_bps=1e9, num_workers=2))


def test_a_prediction_is_a_list_with_a_table_and_a_page(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    rows = hocket.predict(step(), NETWORK, workers=[1, 2, 4], steps=20, skip=5)
    assert isinstance(rows, list)
    assert [row.workers for row in rows] == [row.workers for row in rows.rows] == [1, 2, 4]
    frame = rows.to_dataframe()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["throughput"].tolist() == [row.throughput for row in rows]
    assert list(frame.columns) == list(hocket.Prediction.__struct_fields__)
    page = rows.plot(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == page.html
    assert "toy: throughput" in page.html
    assert page._repr_html_().startswith('<iframe srcdoc="&lt;!')
    assert "page of" in repr(page).lower()
    copied = pickle.loads(pickle.dumps(rows))
    assert (copied, copied.title, copied.setup) == (rows, rows.title, rows.setup)


def test_a_prediction_and_its_page_have_the_steps_caveat() -> None:
    narrow = dataclasses.replace(step(), caveat="computing is too long")
    rows = hocket.predict(narrow, NETWORK, workers=2, steps=20, skip=5)
    assert rows.caveat == "computing is too long"
    assert repr(rows).count("computing is too long") == 1
    assert "computing is too long" in rows.plot().html


def test_a_ranking_is_a_table() -> None:
    pytest.importorskip("pandas")
    found = hocket.tune(step(), NETWORK, budget_s=0.1, iterations=2)
    frame = found.to_dataframe()
    assert frame["policy"].tolist() == [row.policy for row in found.ranked]
    seconds = frame["iteration_s"].tolist()
    assert all(later > before * (1 - LEVEL) for before, later in itertools.pairwise(seconds))


def test_without_pandas_a_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = hocket.predict(step(), NETWORK, workers=1, steps=20, skip=5)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(HocketError, match=r"^pandas is not installed; pip install pandas$"):
        rows.to_dataframe()


def test_a_model_in_training_is_shown() -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        model: Any = torch.nn.Linear(4, 2)
        hocket.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), plan="ddp")
        lines = repr(model.hocket).splitlines()
        assert lines[0] == "Handle of Linear: plan 'ddp', learning, step 0"
        assert len(lines) == 5
        assert "<table>" in model.hocket._repr_html_()
    finally:
        torch.distributed.destroy_process_group()
