"""What ``hocket report`` is given: every shape of result file, and one line for all else."""

import json

import msgspec
import pytest
from fake_runs import fake_row, fake_timeline
from hypothesis import given, settings
from hypothesis import strategies as st

from hocket.errors import FormatError
from hocket.interop import timeline_document
from hocket.report.result_files import Entry, load_results


def write(path, document):
    path.write_bytes(msgspec.json.encode(document))
    return path


def test_every_shape_of_result_file(tmp_path):
    rows = [fake_row(name) for name in ("a", "b", "c", "d")]
    timeline = fake_timeline(workers=1, num_ops=9, num_parameters=3)
    paths = [
        write(tmp_path / "row.json", rows[0]),
        write(tmp_path / "list.json", [rows[1]]),
        write(tmp_path / "tune.json", {"ranked": [rows[2]], "best": "c", "plan": "p.json", "wall_s": 1.0}),
        write(tmp_path / "timeline.json", timeline_document(timeline, rows[3])),
    ]
    assert load_results(paths) == [*(Entry(row) for row in rows[:3]), Entry(rows[3], timeline)]


@pytest.mark.parametrize("timeline_first", [True, False])
def test_a_row_that_also_has_a_timeline_is_listed_once(tmp_path, timeline_first):
    row, timeline = fake_row("tac"), fake_timeline(workers=1, num_ops=9, num_parameters=3)
    paths = [
        write(tmp_path / "tune.json", {"ranked": [fake_row("tic"), row]}),
        write(tmp_path / "timeline.json", timeline_document(timeline, fake_row("tac", wall_s=9.0))),
    ]
    entries = load_results(reversed(paths) if timeline_first else paths)
    assert sorted((entry.row.policy, entry.timeline) for entry in entries) == [
        ("tac", timeline),
        ("tic", None),
    ]


ROW = msgspec.to_builtins(fake_row())
MALFORMED = [
    (ROW | {"iteration_s": "1"}, "iteration_s: expected `float`"),
    (ROW | {"iteration_s": float("nan")}, "iteration_s: nan is not a finite number"),
    (ROW | {"bound_s": -1}, "bound_s: -1.0 is negative"),
    ([ROW, ROW | {"workers": 0}], "[1].workers: 0 is not 1 or more"),
    ({"ranked": [ROW | {"policy": None}]}, "ranked[0].policy: expected `str`"),
    ({"ranked": [ROW | {"rho": -0.5}]}, "ranked[0].rho: -0.5 is negative"),
    ({"ranked": ROW}, "ranked: expected `array`"),
    ({"ranked": []}, "ranked: holds no result"),
    ([], "holds no result"),
    ({}, "object missing required field `policy`"),
    ([{"workers": 4, "throughput": 9.0}], "[0]: object missing required field `policy`"),
    ({"format": "hocket.step/1"}, "format: 'hocket.step/1' is not 'hocket.timeline/1'"),
    (ROW | {"origin": {"command": 5}}, "origin: command: expected `str`"),
    ("text", "expected `object`"),
    (5, "expected `object`"),
]


@pytest.mark.parametrize(("document", "message"), MALFORMED, ids=[message for _, message in MALFORMED])
def test_malformed_results_are_refused_in_one_line(tmp_path, document, message):
    path = tmp_path / "r.json"
    path.write_text(json.dumps(document))
    with pytest.raises(FormatError) as refused:
        load_results([path])
    assert message in str(refused.value)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["format", "ranked", *ROW]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(
    document=json_values
    | st.builds(lambda key, value: ROW | {key: value}, st.sampled_from(sorted(ROW)), json_values)
)
@settings(max_examples=200)
def test_any_document_is_read_or_refused(tmp_path_factory, document):
    path = tmp_path_factory.mktemp("any") / "r.json"
    path.write_text(json.dumps(document))
    try:
        load_results([path])
    except FormatError as refused:
        assert str(refused).startswith(str(path))  # noqa: PT017 - it may also be read
