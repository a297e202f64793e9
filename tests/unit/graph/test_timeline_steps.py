"""Timelines cut into steps, and what is covered in them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import HocketError
from hocket.graph import Lane, Span, Timeline
from hocket.graph.timeline import Kind
from hocket.graph.timeline_steps import Cover, cut_into_steps

LANES = tuple(Lane(process=process, name="processor") for process in ("worker 0", "worker 1"))


def timeline(*spans: tuple[int, str, Kind, float, float]) -> Timeline:
    ordered = sorted((Span(*span) for span in spans), key=lambda span: span.start_s)
    return Timeline(title="toy", lanes=LANES, spans=tuple(ordered))


def training(begins: list[float], *, lane: int = 0) -> list[tuple[int, str, Kind, float, float]]:
    """Steps of a second or more: two forward operations, the second of them twice, and a backward pass."""
    return [
        (lane, name, kind, begin + after, begin + after + 0.125)
        for begin in begins
        for name, kind, after in (
            ("embed", "forward", 0.0),
            ("layer", "forward", 0.25),
            ("layer", "forward", 0.5),
            ("back", "backward", 0.75),
        )
    ]


def test_steps_run_from_one_first_operation_to_the_next() -> None:
    found = cut_into_steps(timeline(*training([100.0, 101.0, 103.0]), *training([100.5, 101.5], lane=1)))
    assert found.anchor == "embed"
    assert found.edges_s["worker 0"].tolist() == [0.0, 1.0, 3.0]
    assert found.edges_s["worker 1"].tolist() == [0.5, 1.5]


def test_what_a_recording_cut_is_no_step() -> None:
    spans = training([0.0, 1.0, 2.0, 3.0])
    assert cut_into_steps(timeline(*spans[1:-1])).edges_s["worker 0"].tolist() == [0.75, 1.75, 2.75]


def test_a_given_anchor_is_looked_for_first() -> None:
    spans = timeline(*training([0.0, 1.0, 2.0]))
    assert cut_into_steps(spans, anchor="layer").edges_s["worker 0"].tolist() == [0.25, 1.25, 2.25]
    assert cut_into_steps(spans, anchor="unheard of").anchor == "embed"


def test_one_step_is_continued_periodically() -> None:
    # A window that begins with what the step before it left over.
    found = cut_into_steps(timeline((0, "update", "update", 7.0, 7.5), *training([8.0])))
    assert found.edges_s["worker 0"].tolist() == [1.0, 1.0 + 1.875]
    updates = [span for span in found.spans["worker 0"] if span.kind == "update"]
    assert [span.start_s for span in updates] == [-1.875, 0.0, 1.875]


def test_inference_begins_a_step_whenever_the_first_operation_runs() -> None:
    spans = [span for span in training([0.0, 1.0, 3.0]) if span[2] == "forward"]
    assert cut_into_steps(timeline(*spans)).edges_s["worker 0"].tolist() == [0.0, 1.0, 3.0]
    # One step is a period here too.
    alone = cut_into_steps(timeline(*spans[:3]))
    assert alone.edges_s["worker 0"].tolist() == [0.0, 0.625]


def test_a_worker_without_a_whole_step_has_no_edges() -> None:
    found = cut_into_steps(timeline(*training([0.0, 1.0, 2.0]), *training([0.5], lane=1)))
    assert found.workers == ["worker 0", "worker 1"]
    assert found.edges_of("worker 1") is None


def test_without_forward_operations_there_are_no_steps() -> None:
    for spans in ([], [(0, "back", "backward", 0.0, 1.0)]):
        with pytest.raises(HocketError, match="timeline 'toy' holds no forward operation"):
            cut_into_steps(timeline(*spans))  # type: ignore[arg-type]


@given(
    spans=st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6)), max_size=12),
    edges=st.lists(st.integers(0, 30), min_size=1, max_size=6).map(sorted),
)
def test_covers_count_every_instant_once(spans: list[tuple[int, int]], edges: list[int]) -> None:
    covered = {t for start, length in spans for t in range(start, start + length)}
    expected = [sum(a <= t < b for t in covered) for a, b in pairwise(edges)]
    cover = Cover(Span(0, "", "wait", start, start + length) for start, length in spans)
    assert cover.within_s(np.array(edges, np.float64)).tolist() == expected
