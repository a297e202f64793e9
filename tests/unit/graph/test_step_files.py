"""Step files: what reads back, and what is refused with the file, the field and the rule."""

from __future__ import annotations

import codecs
import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zstandard

from hocket.errors import FormatError, HocketError
from hocket.graph import load_step, save_step
from hocket.graph.io import step_document

VALID: dict[str, Any] = {
    "format": "hocket.step/1",
    "model": "toy",
    "batch_size": 2,
    "device": "cpu",
    "parameters": [
        {"name": "a", "shape": [2, 3], "dtype": "float32", "bytes": 24},
        {"name": "b", "shape": [], "dtype": "float32", "bytes": 4},
    ],
    "operations": [
        {
            "name": "one",
            "phase": "forward",
            "duration_s": [0.5, 0.25],
            "inputs": [],
            "reads": ["a"],
            "produces": [],
        },
        {
            "name": "two",
            "phase": "backward",
            "duration_s": 1,
            "inputs": ["one"],
            "reads": [],
            "produces": ["a", "b"],
        },
        {
            "name": "tre",
            "phase": "update",
            "duration_s": [0, 0],
            "inputs": ["two"],
            "reads": ["a"],
            "produces": [],
        },
    ],
}


def write(tmp_path: Path, document: Any) -> Path:
    path = tmp_path / "step.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return path


def edited(path: str, value: Any) -> dict[str, Any]:
    """VALID with one field replaced; ``del`` as value removes it."""
    document = copy.deepcopy(VALID)
    *way, last = [int(key) if key.isdigit() else key for key in path.split(".")]
    target: Any = document
    for key in way:
        target = target[key]
    if value is del_:
        del target[last]
    else:
        target[last] = value
    return document


del_ = object()


def test_a_caveat_is_one_line_and_left_out_where_there_is_none(tmp_path: Path) -> None:
    plain = load_step(write(tmp_path, VALID))
    assert plain.caveat == ""
    graph = load_step(write(tmp_path, {**VALID, "caveat": "too\nlong"}))
    assert graph.caveat == "too long"
    assert graph.typical().caveat == "too long"
    for each, kept in ((plain, {}), (graph, {"caveat": "too long"})):
        save_step(each, tmp_path / "again.json")
        written = json.loads((tmp_path / "again.json").read_text())
        assert {key: written[key] for key in written.keys() - VALID.keys()} == kept


def test_a_step_reads_back_as_it_was_written(tmp_path: Path) -> None:
    graph = load_step(write(tmp_path, VALID))
    assert graph.num_samples == 2
    assert graph.durations_s.tolist() == [[0.5, 0.25], [1.0, 1.0], [0.0, 0.0]]
    assert graph.oracle_s.tolist() == [0.25, 1.0, 0.0]
    assert graph.reads.row(0).tolist() == [0]
    assert graph.produces.row(1).tolist() == [0, 1]
    for name in ("again.json", "again.json.zst"):
        save_step(graph, tmp_path / name)
        again = load_step(tmp_path / name)
        assert again.operation_names == graph.operation_names
        assert again.parameter_shapes == ((2, 3), ())
        np.testing.assert_array_equal(again.durations_s, graph.durations_s)
        np.testing.assert_array_equal(again.inputs.indices, graph.inputs.indices)


def test_unknown_keys_are_accepted(tmp_path: Path) -> None:
    document = {**VALID, "comment": {"nan": None}}
    document["operations"] = [{**row, "stream": 7} for row in VALID["operations"]]
    assert load_step(write(tmp_path, document)).num_operations == 3


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "step.json"
    path.write_bytes(codecs.BOM_UTF8 + json.dumps(VALID).encode())
    assert load_step(path).model == "toy"
    path.write_bytes(codecs.BOM_UTF8 + json.dumps(VALID | {"model": 1}).encode())
    with pytest.raises(FormatError, match="model: expected `str`, got `int`"):
        load_step(path)


def test_file_order_need_not_be_topological(tmp_path: Path) -> None:
    document = {**VALID, "operations": VALID["operations"][::-1]}
    graph = load_step(write(tmp_path, document))
    assert [graph.operation_names[i] for i in graph.order] == ["one", "two", "tre"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("format", "hocket.step/2", "format: 'hocket.step/2' is not 'hocket.step/1'"),
        ("format", "hocket.plan/1", "format: 'hocket.plan/1' is not 'hocket.step/1'"),
        ("format", 1, "format: 1 is not 'hocket.step/1'"),
        ("format", del_, "missing required field `format`"),
        ("model", del_, "missing required field `model`"),
        ("batch_size", 0, "batch_size: 0 is not a positive"),
        ("batch_size", 10**400, "batch_size: 1000"),
        ("batch_size", 2**53 + 1, "batch_size: 9007199254740993 is more than 2^53"),
        ("batch_size", 1.5, "batch_size: expected `int`"),
        ("batch_size", True, "batch_size: expected `int`"),
        ("operations", [], "operations: a step has at least one operation"),
        ("operations.0.phase", "sideways", "operations[0].phase"),
        (
            "operations.0.duration_s",
            -1.0,
            "operations[0].duration_s: -1.0 is not a number of seconds between 0 and 1e9",
        ),
        ("operations.0.duration_s", [0.5, -0.5], "operations[0].duration_s: -0.5"),
        (
            "operations.0.duration_s",
            1e300,
            "operations[0].duration_s: 1e+300 is not a number",
        ),
        ("operations.0.duration_s", "1", "operations[0].duration_s: expected"),
        ("operations.0.duration_s", None, "operations[0].duration_s: expected"),
        ("operations.0.duration_s", [], "operations[0].duration_s: has 0 samples"),
        (
            "operations.0.duration_s",
            [1, 2, 3],
            "operations[2].duration_s: has 2 samples where other operations have 3",
        ),
        ("operations.0.duration_s", float("nan"), "operations[0].duration_s: nan is not a finite number"),
        (
            "operations.0.duration_s",
            [float("inf")],
            "operations[0].duration_s[0]: inf is not a finite number",
        ),
        ("model", "half \ud800", "model: 'half \\ud800' is not a text"),
        ("comment", {"\udfff": 1}, "comment: '\\udfff' is not a text"),
        ("operations.0.reads", ["c"], "operations[0].reads: 'c' names no parameter"),
        ("operations.1.produces", ["one"], "operations[1].produces: 'one' names no parameter"),
        ("operations.1.inputs", ["four"], "operations[1].inputs: 'four' names no operation"),
        ("operations.1.inputs", ["one", "one"], "operations[1].inputs: 'one' is listed twice"),
        ("operations.1.name", "one", "operations[1].name: 'one' is a duplicate"),
        ("parameters.1.name", "a", "parameters[1].name: 'a' is a duplicate"),
        ("parameters.0.bytes", -1, "parameters[0].bytes: -1 is not between 0 and 2^53"),
        ("parameters.0.bytes", 10**30, "parameters[0].bytes"),
        ("parameters.0.bytes", 1.5, "parameters[0].bytes: expected `int`"),
        ("parameters.0.shape", [-2], "parameters[0].shape: [-2] has a negative extent"),
        ("operations.0.inputs", ["tre"], "operations: the inputs form a cycle (one -> two -> tre -> one)"),
        ("operations.0.inputs", ["one"], "operations: the inputs form a cycle (one -> one)"),
    ],
)
def test_a_breach_names_file_field_and_rule(tmp_path: Path, field: str, value: Any, message: str) -> None:
    path = write(tmp_path, edited(field, value))
    with pytest.raises(FormatError) as caught:
        load_step(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"format": "hocket.step/1", "mod',
        "[1, 2]",
        "null",
        "\x00\x01",
        "[" * 5000,
        '{"x":' * 100_000,
        '"' + "x" * 99,
    ],
)
def test_what_is_no_step_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(FormatError):
        load_step(write(tmp_path, text))


def test_damaged_and_missing_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.json").write_bytes(bytes(range(256)))
    (tmp_path / "not.json.zst").write_bytes(b"not zstd at all")
    save_step(load_step(write(tmp_path, VALID)), tmp_path / "whole.json.zst")
    (tmp_path / "cut.json.zst").write_bytes((tmp_path / "whole.json.zst").read_bytes()[:-20])
    for name in ("binary.json", "not.json.zst", "cut.json.zst", "missing.json", "."):
        with pytest.raises(FormatError, match=r"is not|cannot be read"):
            load_step(tmp_path / name)


def test_a_zstd_file_may_be_of_several_frames(tmp_path: Path) -> None:
    text = json.dumps(VALID).encode()
    skipped = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"notes"  # RFC 8878, 3.1.2
    halves = [zstandard.ZstdCompressor().compress(part) for part in (text[:30], text[30:])]
    path = tmp_path / "frames.json.zst"
    for frames in (halves, [skipped, *halves], [halves[0], skipped, halves[1], skipped]):
        path.write_bytes(b"".join(frames))
        assert load_step(path).num_operations == load_step(write(tmp_path, VALID)).num_operations
    for damaged in (b"".join(halves) + b"more", b"".join(halves)[:-5], b""):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match="zstd"):
            load_step(path)


def test_nothing_is_left_when_writing_fails(tmp_path: Path) -> None:
    graph = load_step(write(tmp_path, VALID))
    with pytest.raises(Exception, match="does not exist"):
        save_step(graph, tmp_path / "nowhere" / "step.json")
    (tmp_path / "circle.json").symlink_to("circle.json")
    with pytest.raises(HocketError, match=r"circle\.json: cannot be written: Too many levels of symbolic"):
        save_step(graph, tmp_path / "circle.json")
    (tmp_path / "circle.json").unlink()
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(Exception, match="is a folder"):
        save_step(graph, tmp_path / "folder.json")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder.json", "step.json"]


def test_an_expected_error_is_a_share_and_left_out_where_it_is_not_known(tmp_path: Path) -> None:
    graph = load_step(write(tmp_path, {**VALID, "expected_error": 0.14}))
    assert graph.expected_error == graph.typical().expected_error == 0.14
    assert step_document(graph)["expected_error"] == 0.14
    assert "expected_error" not in step_document(load_step(write(tmp_path, VALID)))
    for wrong in (-0.1, 1.0):
        with pytest.raises(FormatError, match=r"expected_error: .* is not a share from 0 to below 1"):
            load_step(write(tmp_path, {**VALID, "expected_error": wrong}))


@pytest.mark.parametrize("name", ["none.json", "none.json.gz", "none.json.zst"])
def test_a_step_file_that_is_missing_is_told_with_what_writes_one(tmp_path: Path, name: str) -> None:
    fix = "hocket profile and hocket import write step files"
    with pytest.raises(FormatError) as raised:
        load_step(tmp_path / name)
    assert str(raised.value) == f"{tmp_path / name}: cannot be read: No such file or directory; {fix}"
