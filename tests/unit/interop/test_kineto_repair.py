"""Traces that are no JSON are mended and read; what a step needs and is wrong is refused."""

from __future__ import annotations

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
from tests.unit.interop.traces import ddp

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
        (with_event(b'{"ph": "X", "cat": "kernel", "name": "k", "ts": NaN}'), "ts: nan is not"),
        (
            with_event(b'{"ph": "X", "cat": "cpu_op", "name": "c10d::allreduce_", "ts": 5, "dur": -3}'),
            "dur: -3.0 is not a number of microseconds",
        ),
        (
            with_event(b'{"ph": "X", "cat": "kernel", "name": "k", "ts": 5, "dur": 3}'),
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
    assert mended(data) == (data, [])
