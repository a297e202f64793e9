"""Traces that are no JSON are mended and read; what a step needs and is wrong is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import FormatError
from hocket.graph.io import step_document
from hocket.interop.kineto.json_repair import mended
from hocket.interop.kineto.kineto_step import import_kineto
from tests.strategies import examples
from tests.unit.interop.traces import ddp, execution_trace

USUAL = json.dumps(ddp().document()).encode()
EVENT = b'"traceEvents": ['


def written(folder: Path, data: bytes) -> Path:
    path = folder / "job.json"
    path.write_bytes(data)
    return path


def with_event(text: bytes) -> bytes:
    return USUAL.replace(EVENT, EVENT + text + b", ")


PYTHON = (
    b'{"ph": "X", "cat": "python_function", "name": "%s", "pid": 1, "tid": 1, "ts": 5, "dur": 1, "args": {}}'
)
MENDED = [
    ("a control character", PYTHON % b"a\x01b", "mended control characters"),
    ("a line end in a text", PYTHON % b"a\nb", "mended control characters"),
    ("bytes that are not UTF-8", PYTHON % b"\xff\xfe", "mended texts that are not UTF-8"),
    (
        "a bandwidth that is infinite",
        b'{"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy", "pid": 0, "tid": 7, "ts": 5, "dur": 0,'
        b' "args": {"stream": 7, "correlation": 101, "memory bandwidth (GB/s)": inf}}',
        "mended 1 number not finite",
    ),
    (
        "a missing value",
        b'{"ph": "i", "name": "a: ,inf", "args": {"Process Group Description": , "b": }}',
        "mended 2 missing values",
    ),
    (
        "an operator that ends before it begins",
        b'{"ph": "X", "cat": "cpu_op", "name": "aten::foo", "pid": 1, "tid": 5, "ts": 5, "dur": -3}',
        "left out 1 event whose time or correlation makes no sense: aten::foo",
    ),
    (
        "a set that no call is tied to",
        b'{"ph": "X", "cat": "gpu_memset", "name": "Memset", "pid": 0, "tid": 7, "ts": 5, "dur": 3,'
        b' "args": {"stream": 7}}',
        "left out 1 event whose time or correlation makes no sense: Memset",
    ),
    (
        "a call that ends before it begins",
        b'{"ph": "X", "cat": "cuda_runtime", "name": "cudaFree", "pid": 9, "tid": 5, "ts": 900, "dur": -3,'
        b' "args": {"correlation": 7777}}',
        "left out 1 event whose time or correlation makes no sense: cudaFree",
    ),
    (
        "text where a number belongs",
        b'{"ph": "X", "cat": "python_function", "name": "f", "ts": "soon", "dur": 1}',
        "1 of 79 events unreadable, none of them used",
    ),
    (
        "an operator whose time is text",
        b'{"ph": "X", "cat": "cpu_op", "name": "aten::foo", "ts": "soon", "dur": 1}',
        "1 of 79 events unreadable, 1 may have been used: aten::foo",
    ),
    (
        "a text that does not end",
        b'{"ph": "X", "cat": "python_function", "name": "a, "ts": 5, "dur": 1}',
        "1 of 79 events unreadable, none of them used",
    ),
    (
        "a quotation mark in a text",
        b'{"ph": "X", "cat": "python_function", "name": "a "{" b", "ts": 5, "dur": 1}',
        "1 of 79 events unreadable, none of them used",
    ),
    (
        "values that are no events",
        b'null, 7, "}, {", [], {"ph": "f", "args": []}',
        "5 of 83 events unreadable, 4 may have been used: traceEvents[0], traceEvents[1], trace",
    ),
    (
        "a kernel outside the steps that no call is tied to",
        b'{"ph": "X", "cat": "kernel", "name": "k", "ts": 5e6, "dur": 1, "args": {"stream": 7}}',
        "",
    ),
]


@pytest.mark.parametrize(("event", "note"), [row[1:] for row in MENDED], ids=[row[0] for row in MENDED])
def test_what_no_step_needs_is_mended_or_left_out_and_said(event: bytes, note: str, tmp_path: Path) -> None:
    usual, _ = import_kineto([written(tmp_path, USUAL)])
    graph, notes = import_kineto([written(tmp_path, with_event(event))])
    assert step_document(graph) == step_document(usual)
    assert any(note in line for line in notes), notes


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (USUAL[: len(USUAL) // 2], "is not JSON"),
        (with_event(PYTHON % b"\x01")[:-40], "is not JSON"),
        (with_event(b'{"ph": "X", "cat": "kernel", "name": "k", "ts": NaN}'), "ts: None is not"),
        (
            with_event(b'{"ph": "X", "cat": "cpu_op", "name": "c10d::allreduce_", "ts": 5, "dur": -3}'),
            "dur: -3.0 is not a number of microseconds",
        ),
        (
            with_event(b'{"ph": "X", "cat": "kernel", "name": "k", "ts": 900, "dur": 3}'),
            "needs stream and correl",
        ),
    ],
)
def test_what_a_step_needs_is_refused_in_one_line(data: bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=message) as refused:
        import_kineto([written(tmp_path, data)])
    assert "\n" not in str(refused.value)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner)))
@examples(200)
def test_json_stays_what_it_is(document: object) -> None:
    data = json.dumps(document, ensure_ascii=False).encode()
    assert mended(data) == (data, {})


def test_a_list_of_events_alone_is_a_trace(tmp_path: Path) -> None:
    usual, _ = import_kineto([written(tmp_path, USUAL)])
    events = json.dumps(ddp().document()["traceEvents"], indent=1).encode()
    for data in (events, events.rstrip(b"]\n")):
        graph, _ = import_kineto([written(tmp_path, data)])
        expected = step_document(usual) | {"device": "cuda"}
        del expected["recorded"]  # how many ranks there were stands beside the list
        assert step_document(graph) == expected


def test_an_execution_trace_is_named(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps(execution_trace()).encode())
    with pytest.raises(FormatError, match="is a PyTorch ExecutionTrace; give it with --execution-trace"):
        import_kineto([path])


def cut_behind_step(steps: int, more: int) -> bytes:
    """A trace of three steps that is cut ``more`` events behind the first ``steps``."""
    document = ddp(steps=3).document()
    begins = [k for k, event in enumerate(document["traceEvents"]) if "ProfilerStep" in event["name"]]
    kept = document["traceEvents"][: (begins[steps] if steps < len(begins) else None)]
    kept += document["traceEvents"][len(kept) :][:more]
    whole = json.dumps(document | {"traceEvents": kept}).encode()
    return whole[: whole.rindex(b"]")] + b', {"ph": "X", "name'


@pytest.mark.parametrize("more", [0, 1, 9, 20, 31])
def test_a_trace_that_is_cut_counts_by_its_whole_steps(more: int, tmp_path: Path) -> None:
    data = cut_behind_step(1, more)
    with pytest.raises(FormatError, match=r"is not JSON: it is cut behind \d+ whole events; give --partial"):
        import_kineto([written(tmp_path, data)])
    one, _ = import_kineto([written(tmp_path, json.dumps(ddp(steps=1).document()).encode())])
    graph, notes = import_kineto([written(tmp_path, data)], partial=True)
    assert step_document(graph) == step_document(one)
    assert any("is cut: read up to its last whole event" in line for line in notes)
    packed = tmp_path / "job.json.gz"
    packed.write_bytes(gzip.compress(data, mtime=0)[:-20])
    graph, _ = import_kineto([packed], partial=True)
    assert graph.num_samples == 1


@pytest.mark.parametrize("piece", [1, 100, 3000])
def test_the_size_of_pieces_changes_nothing(
    piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, _ = import_kineto([written(tmp_path, USUAL)])
    monkeypatch.setattr("hocket.interop.kineto.file_pieces.PIECE_BYTES", piece)
    monkeypatch.setattr("hocket.interop.kineto.event_stream.PIECE_BYTES", piece)
    monkeypatch.setattr("hocket.interop.kineto.event_stream._SMALL_BYTES", max(1, piece // 10))
    for event, note in (row[1:] for row in MENDED):
        graph, notes = import_kineto([written(tmp_path, with_event(event))])
        assert step_document(graph) == step_document(usual)
        assert any(note in line for line in notes), (note, notes)
