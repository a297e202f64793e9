"""Timelines as Chrome trace JSON: exact round trips, and one line for every malformed file."""

import json

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.document import write_json
from hocket.errors import FormatError
from hocket.graph.result import ResultRow
from hocket.graph.timeline import Kind, Lane, MemoryPoint, Span, Timeline
from hocket.interop import TIMELINE_FORMAT, load_timeline, timeline_document

KINDS = Kind.__args__
ROW = ResultRow(
    policy="tac", model="m", architecture="ps", workers=2, servers=1, iteration_s=0.4, iteration_p95_s=0.5,
    straggler_fraction=0.1, compute_s=0.3, communication_s=0.2, rho=2 / 3, overlap=0.5, utilization=0.75,
    bound_s=0.3, throughput=160.0, events=10, wall_s=0.01, iterations_s=(0.39, 0.41),
)  # fmt: skip


@st.composite
def timelines(draw):
    names = st.text(max_size=8)
    lanes = draw(st.lists(st.builds(Lane, process=names, name=names), max_size=6))
    spans = []
    if lanes:
        seconds = st.floats(-1e6, 1e6, allow_nan=False)
        for _ in range(draw(st.integers(0, 12))):
            start_s, end_s = sorted((draw(seconds), draw(seconds)))
            lane = draw(st.integers(0, len(lanes) - 1))
            spans.append(Span(lane, draw(names), draw(st.sampled_from(KINDS)), start_s, end_s))
    spans.sort(key=lambda span: span.start_s)
    moments = sorted(draw(st.lists(st.floats(0.0, 1e6), max_size=4)))
    memory = tuple(MemoryPoint(at_s, draw(st.integers(0, 2**40))) for at_s in moments)
    return Timeline(title=draw(names), lanes=tuple(lanes), spans=tuple(spans), memory=memory)


@given(timeline=timelines(), with_row=st.booleans())
@settings(max_examples=150)
def test_a_timeline_reads_back_exactly(tmp_path_factory, timeline, with_row):
    path = tmp_path_factory.mktemp("timeline") / "t.json"
    row = ROW if with_row else None
    write_json(timeline_document(timeline, row), path)
    assert load_timeline(path) == (timeline, row)


def test_a_compressed_file_reads_back(tmp_path):
    timeline = Timeline(
        title="t", lanes=(Lane(process="a", name="b"),), spans=(Span(0, "x", "pull", 0.1, 0.3),)
    )
    write_json(timeline_document(timeline), tmp_path / "t.json.zst")
    assert load_timeline(tmp_path / "t.json.zst") == (timeline, None)


def test_a_timeline_has_the_events_that_viewers_read():
    lanes = (Lane(process="worker 0", name="processor"), Lane(process="server 0", name="processor"))
    timeline = Timeline(title="run", lanes=lanes, spans=(Span(1, "update w", "update", 0.25, 0.5),))
    document = timeline_document(timeline)
    assert document["format"] == TIMELINE_FORMAT
    assert document["displayTimeUnit"] == "ms"
    assert document["result"] is None
    names = [event["args"]["name"] for event in document["traceEvents"] if event["name"].endswith("_name")]
    assert names == ["worker 0", "server 0", "processor", "processor"]
    (span,) = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert (span["ts"], span["dur"], span["cat"], span["name"]) == (250000.0, 250000.0, "update", "update w")
    ids = [1, 2]
    assert sorted({event["pid"] for event in document["traceEvents"]}) == ids
    assert not {event["tid"] for event in document["traceEvents"] if "tid" in event} & {0, *ids}


def test_memory_that_cannot_be_is_refused(tmp_path):
    for points, told in (
        ([[0.5, 10], [0.25, 0]], r"memory\[1\]: 0.25 s is before 0.5 s, and moments are in order"),
        ([[0.5, -1]], r"memory\[0\]: -1 bytes are less than none"),
    ):
        write_json(document() | {"memory": points}, tmp_path / "t.json")
        with pytest.raises(FormatError, match=told):
            load_timeline(tmp_path / "t.json")


def document():
    lanes = (Lane(process="worker 0", name="processor"), Lane(process="worker 0", name="downlink"))
    spans = (Span(1, "w", "pull", 0.0, 0.1), Span(0, "op", "forward", 0.1, 0.3))
    return timeline_document(Timeline(title="t", lanes=lanes, spans=spans), ROW)


SPAN = 6  # where the first span stands in document()["traceEvents"]


def changed(*path_and_value):
    *path, last, value = path_and_value
    changed_document = document()
    inner = changed_document
    for key in path:
        inner = inner[key]
    if value is None:
        del inner[last]
    else:
        inner[last] = value
    return changed_document


MALFORMED = [
    (changed("format", "hocket.plan/1"), "format: 'hocket.plan/1' is not 'hocket.timeline/1'"),
    (changed("format", None), "format"),
    (changed("format", 3), "format"),
    (changed("title", None), "title"),
    (changed("traceEvents", {}), "traceEvents: expected `array`"),
    (changed("traceEvents", SPAN, "ts", "0"), f"traceEvents[{SPAN}].ts: expected `float`"),
    (changed("traceEvents", SPAN, "ts", 5.0), f"traceEvents[{SPAN}].ts: 5.0 microseconds are not"),
    (changed("traceEvents", SPAN, "dur", -1.0), f"traceEvents[{SPAN}].dur: expected `float` >= 0"),
    (
        changed("traceEvents", SPAN, "dur", float("nan")),
        f"traceEvents[{SPAN}].dur: nan is not a finite number",
    ),
    (changed("traceEvents", SPAN, "ts", float("inf")), f"[{SPAN}].ts: inf is not a finite number"),
    (
        changed("traceEvents", SPAN, "args", None),
        f"traceEvents[{SPAN}]: object missing required field `args`",
    ),
    (
        changed("traceEvents", SPAN, "args", "end_s", -0.5),
        f"traceEvents[{SPAN}].args.end_s: -0.5 is before start_s",
    ),
    (changed("traceEvents", SPAN, "cat", "idle"), f"traceEvents[{SPAN}].cat: invalid enum value 'idle'"),
    (changed("traceEvents", SPAN, "name", 7), f"traceEvents[{SPAN}].name: expected `str`"),
    (changed("traceEvents", SPAN, "tid", 99), f"traceEvents[{SPAN}].tid: thread 99 of process 1 has no"),
    (changed("traceEvents", SPAN, "pid", 99), f"traceEvents[{SPAN}].tid: thread 3 of process 99 has no"),
    (changed("traceEvents", SPAN, "tid", 1.5), f"traceEvents[{SPAN}].tid: expected `int`"),
    (changed("traceEvents", SPAN, "ph", "B"), f"traceEvents[{SPAN}].ph: invalid value 'B'"),
    (changed("traceEvents", SPAN, "ph", None), f"traceEvents[{SPAN}]: object missing required field `ph`"),
    (changed("traceEvents", 0, None), "traceEvents[1].pid: process 1 has no 'process_name' event"),
    (changed("traceEvents", 0, "args", "name", None), "traceEvents[0].args: 'process_name' needs a name"),
    (changed("traceEvents", 2, "tid", None), "traceEvents[2].tid: 'thread_name' needs a tid"),
    (changed("traceEvents", 4, "tid", 2), "traceEvents[4].tid: thread 2 is named twice"),
    (changed("traceEvents", 1, document()["traceEvents"][0]), "traceEvents[1].pid: process 1 is named twice"),
    (changed("result", "policy", None), "result: object missing required field `policy`"),
    (changed("result", "iteration_s", -1.0), "result.iteration_s: -1.0 is negative"),
    (changed("result", "iterations_s", [0.1, -0.1]), "result.iterations_s[1]: -0.1 is negative"),
    (changed("result", "workers", 0), "result.workers: 0 is not 1 or more"),
    ([], "expected `object`"),
    (7, "expected `object`"),
    (None, "expected `object`"),
]


@pytest.mark.parametrize(("malformed", "message"), MALFORMED, ids=[message for _, message in MALFORMED])
def test_malformed_documents_are_refused_in_one_line(tmp_path, malformed, message):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(malformed))
    with pytest.raises(FormatError) as refused:
        load_timeline(path)
    assert message in str(refused.value)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


RAW = [
    b"",
    b"{",
    b"\xff\xfe",
    b"[" * 100_000,
    b'{"x":' * 100_000,
    b'"\\ud800"',
    b"[1e999]",
    b"[NaN]",
    b"1" * 6000,
    b"nul",
]


@pytest.mark.parametrize("raw", RAW, ids=[raw[:8].hex() for raw in RAW])
def test_malformed_bytes_are_refused_in_one_line(tmp_path, raw):
    path = tmp_path / "t.json"
    path.write_bytes(raw)
    with pytest.raises(FormatError, match=r"t\.json: "):
        load_timeline(path)


def test_truncated_files_are_refused(tmp_path):
    data = msgspec.json.encode(document())
    for size in range(0, len(data), 37):
        path = tmp_path / "t.json"
        path.write_bytes(data[:size])
        with pytest.raises(FormatError, match="is not JSON"):
            load_timeline(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(FormatError, match="cannot be read"):
        load_timeline(tmp_path / "none.json")


leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)


@given(data=st.data())
@settings(max_examples=200)
def test_any_field_may_be_anything(tmp_path_factory, data):
    """One value somewhere in the document replaced: read, or refused in one line."""
    broken = document()
    inner, key = broken, data.draw(st.sampled_from(sorted(broken)))
    while isinstance(inner[key], dict | list) and inner[key] and data.draw(st.booleans()):
        inner = inner[key]
        key = data.draw(st.sampled_from(sorted(inner) if isinstance(inner, dict) else range(len(inner))))
    inner[key] = data.draw(
        leaves | st.lists(leaves, max_size=2) | st.dictionaries(st.text(max_size=3), leaves, max_size=2)
    )
    path = tmp_path_factory.mktemp("broken") / "t.json"
    path.write_text(json.dumps(broken))
    try:
        load_timeline(path)
    except FormatError as refused:
        assert str(refused).startswith(str(path))  # noqa: PT017 - it may also be read


def test_unknown_keys_are_accepted(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document() | {"otherData": {"version": 1}}))
    assert load_timeline(path)[1] == ROW


def test_spans_are_put_in_order_of_start(tmp_path):
    shuffled = document()
    shuffled["traceEvents"].reverse()
    path = tmp_path / "t.json"
    path.write_text(json.dumps(shuffled))
    assert [span.name for span in load_timeline(path)[0].spans] == ["w", "op"]
