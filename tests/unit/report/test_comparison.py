"""Predicted against measured: what stays equal, what scales, and figures by hand."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from hocket.graph import Lane, Span, Timeline
from hocket.graph.timeline import Kind
from hocket.report.comparison import Comparison, SpanDifference, compare
from hocket.report.comparison_table import spans_columns

# What happens in a cycle: lane, name, kind, start and end; the last may reach into the next cycle.
Cycle = tuple[list[tuple[int, str, Kind, float, float]], float]


@st.composite
def cycles(draw: st.DrawFn) -> Cycle:
    """A period of one worker: forward, then backward, with pauses; reductions anywhere, one at a time."""
    duration = st.integers(1, 5).map(lambda eighths: eighths / 8)
    now, found = 0.0, []
    kinds: list[Kind] = ["forward", "backward", "update"]
    for kind in kinds:
        for i in range(draw(st.integers(0 if kind == "update" else 1, 3))):
            # A window begins with the first thing that happens in it, so that nothing pauses there.
            start = now + (draw(st.integers(0, 3)) / 8 if i and kind != "update" else 0.0)
            now = start + draw(duration)
            found.append((0, f"o{i}", kind, start, now))
    period, begin = now, draw(st.integers(0, 16)) / 8
    at, last = begin, begin + period
    for i in range(draw(st.integers(0, 3))):
        start = at + draw(st.integers(0, 3)) / 8
        at = start + draw(duration)
        if at <= last:
            found.append((1, f"p{i}", "reduce", start, at))
    return found, period


def recorded(
    cycle: Cycle, from_s: float, to_s: float, *, cut: bool = True, scale: float = 1.0, clock_s: float = 0.0
) -> Timeline:
    """What a window of many cycles shows; what crosses its edges is cut, or belongs to where it starts."""
    spans = []
    for lane, name, kind, first, last in cycle[0]:
        # Also the cycles before 0 whose end comes after it.
        for k in range(-int(last / cycle[1]) - 1, int(to_s / cycle[1]) + 1):
            start, end = first + k * cycle[1], last + k * cycle[1]
            if cut and start < to_s and end > from_s:
                start, end = max(start, from_s), min(end, to_s)
            if from_s <= start < to_s:
                spans.append(Span(lane, name, kind, clock_s + scale * start, clock_s + scale * end))
    lanes = (Lane(process="worker 0", name="processor"), Lane(process="network", name="reductions"))
    return Timeline(title="toy", lanes=lanes, spans=tuple(sorted(spans, key=lambda span: span.start_s)))


def figures(found: Comparison) -> dict[str, tuple[float | None, float | None]]:
    return {figure.name: (figure.predicted_s, figure.measured_s) for figure in found.figures}


def assert_alike(found: Comparison, ratio: float = 1.0) -> None:
    assert found.only_predicted.count == found.only_measured.count == 0
    for figure in found.figures:
        assert figure.predicted_s is not None
        assert figure.measured_s == pytest.approx(ratio * figure.predicted_s, abs=1e-9)
    for span in found.spans:
        assert span.measured_duration_s == pytest.approx(ratio * span.predicted_duration_s, abs=1e-9)
        assert span.measured_start_s == pytest.approx(ratio * span.predicted_start_s, abs=1e-9)


@given(cycle=cycles(), steps=st.integers(1, 4))
def test_a_timeline_is_like_itself(cycle: Cycle, steps: int) -> None:
    timeline = recorded(cycle, 0.0, steps * cycle[1])
    found = compare(timeline, timeline)
    assert_alike(found)
    assert all(figure.ratio in (1.0, None) for figure in found.figures)
    assert all(span.start_difference_s == span.duration_difference_s == 0.0 for span in found.spans)


@given(cycle=cycles(), steps=st.integers(1, 4), scale=st.floats(1e-6, 1e6), clock_s=st.integers(0, 10**5))
def test_all_times_scaled_scale_the_figures(cycle: Cycle, steps: int, scale: float, clock_s: float) -> None:
    plain = recorded(cycle, 0.0, steps * cycle[1])
    scaled = recorded(cycle, 0.0, steps * cycle[1], scale=scale, clock_s=scale * clock_s)
    for figure in compare(plain, scaled).figures:
        assert figure.predicted_s is not None
        assert figure.measured_s == pytest.approx(scale * figure.predicted_s, abs=scale * 1e-7)


LATE: Cycle = (
    [(0, "o0", "forward", 0.0, 0.125), (0, "o0", "backward", 0.125, 0.25), (1, "p0", "reduce", 1.5, 1.625)],
    0.25,
)


@example(cycle=LATE, steps=5, begun=0)
@given(cycle=cycles(), steps=st.integers(5, 7), begun=st.integers(0, 40))
@settings(max_examples=200)
def test_one_simulated_step_is_like_many_measured_ones(cycle: Cycle, steps: int, begun: int) -> None:
    # A simulated window begins where a backward pass has ended; a recording begins anywhere.
    begin = max(end for _, _, kind, _, end in cycle[0] if kind == "backward")
    one = recorded(cycle, begin, begin + cycle[1])
    many = recorded(cycle, begun / 8, begun / 8 + steps * cycle[1], cut=False)
    found = compare(one, many)
    assert_alike(found)
    assert (found.predicted.steps, found.predicted.workers) == (1, 1)
    assert found.measured.steps in (steps - 1, steps)


def by_hand(reduce_s: float, *, shared: bool = True) -> Timeline:
    """Three steps of two workers: 1 s forward, 2 s backward, a reduction from second 2 on, wait for it."""
    workers = ["worker 0", "worker 1"]
    lanes = [Lane(process=worker, name="processor") for worker in workers]
    lanes += [Lane(process=process, name="network") for process in (["network"] if shared else workers)]
    period = max(3.0, 2.0 + reduce_s)
    spans = []
    for step in range(3):
        begin = step * period
        for w in range(2):
            spans.append(Span(w, "layer", "forward", begin, begin + 1.0))
            spans.append(Span(w, "layer back", "backward", begin + 1.0, begin + 3.0))
        for lane in range(2, len(lanes)):
            # In two chunks, which overlap in part.
            middle = begin + 2.0 + reduce_s / 2
            spans.append(Span(lane, "layer.weight 1/2", "reduce", begin + 2.0, middle + 0.25))
            spans.append(Span(lane, "layer.weight 2/2", "reduce", middle, begin + 2.0 + reduce_s))
    spans.sort(key=lambda span: span.start_s)
    return Timeline(title="by hand", lanes=tuple(lanes), spans=tuple(spans))


def test_figures_and_spans_by_hand() -> None:
    found = compare(by_hand(1.0), by_hand(3.0, shared=False))
    assert figures(found) == {
        "step": (3.0, 5.0),
        "computing": (3.0, 3.0),
        "waiting": (0.0, 2.0),
        "overlap": (1.0, 1.0),
        "forward": (1.0, 1.0),
        "backward": (2.0, 2.0),
        "reduce": (1.0, 3.0),
    }
    assert [figure.ratio for figure in found.figures[:3]] == [5 / 3, 1.0, None]
    first = found.spans[0]
    assert (first.kind, first.name) == ("reduce", "layer.weight")
    assert (first.predicted_start_s, first.measured_start_s, first.start_difference_s) == (2.0, 2.0, 0.0)
    assert (first.predicted_duration_s, first.duration_difference_s) == (1.0, 2.0)
    assert [span.duration_difference_s for span in found.spans[1:]] == [0.0, 0.0]
    assert (found.predicted.steps, found.measured.steps) == (2, 2)


def test_a_start_just_after_a_steps_begin_and_one_just_before_it_are_near() -> None:
    def update_at(after: float) -> Timeline:
        timeline = by_hand(1.0)
        updates = [Span(0, "update", "update", after + 3.0 * k, after + 3.0 * k + 0.01) for k in (0, 1)]
        spans = sorted([*timeline.spans, *updates], key=lambda span: span.start_s)
        return msgspec.structs.replace(timeline, spans=tuple(spans))

    late = {span.name: span for span in compare(update_at(2.98), update_at(0.0)).spans}["update"]
    assert late.start_difference_s == pytest.approx(0.02)
    early = {span.name: span for span in compare(update_at(0.0), update_at(2.98)).spans}["update"]
    assert early.start_difference_s == pytest.approx(-0.02)


def test_a_rounding_is_no_difference_to_read() -> None:
    def span(name: str, apart_s: float) -> SpanDifference:
        return SpanDifference(
            kind="forward",
            name=name,
            predicted_start_s=0.3,
            measured_start_s=0.3 + apart_s,
            start_difference_s=apart_s,
            predicted_duration_s=0.3,
            measured_duration_s=0.3 + apart_s,
            duration_difference_s=apart_s,
        )

    columns = spans_columns([span("same", 0.1 + 0.2 - 0.3), span("longer", 0.001)])
    shown = {column.heading: [cell.text for cell in column.cells] for column in columns}
    assert shown["Longer by"] == shown["Later by"] == ["0.000", "1.000"]
    assert shown["Duration, predicted"] == ["300.0", "300.0"]


def test_what_only_one_side_has_is_counted() -> None:
    predicted = by_hand(1.0)
    waits = [Span(0, "for layer.weight", "wait", 3.0 * k + 2.9, 3.0 * k + 3.0) for k in range(3)]
    spans = [span for span in predicted.spans if span.kind != "reduce"] + waits
    measured = msgspec.structs.replace(predicted, spans=tuple(sorted(spans, key=lambda span: span.start_s)))
    found = compare(predicted, measured)
    assert (found.only_predicted.count, found.only_predicted.names) == (1, 3)
    assert found.only_predicted.examples == (("reduce", "layer.weight"),)
    assert [reason.reason for reason in found.only_predicted.reasons] == [
        "the other file has nothing of this name"
    ]
    assert found.only_measured.examples == (("wait", "for layer.weight"),)
    assert "training alone records" in found.only_measured.reasons[0].reason
    assert figures(found)["reduce"] == (1.0, None)
    assert figures(found)["wait"] == (None, pytest.approx(0.1))
    assert figures(found)["overlap"] == (1.0, 0.0)
