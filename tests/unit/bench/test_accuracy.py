"""Errors by hand, what is replayed and what is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from hocket.bench.replay.accuracy import Accuracy, accuracy_document
from hocket.bench.replay.accuracy_request import AccuracyRequest, Configuration, configurations
from hocket.bench.replay.accuracy_statistics import AccuracyRow, groups_of, measured_rate, row_of
from hocket.bench.replay.accuracy_table import group_columns, group_name, row_columns
from hocket.bench.replay.async_rounds import drawn_begins_s, rate_of_rounds
from hocket.bench.replay.replayed_steps import longest_wait_s, network_of, scaled
from hocket.bench.speed.timed_steps import load_target
from hocket.errors import HocketError
from hocket.graph import OperationRow, ParameterRow, StepRows, step_from_rows
from hocket.launch import Rule, ServedJob
from hocket.network import Network
from hocket.network.file import NetworkFile
from hocket.planner import plan
from hocket.predictor import Prediction
from hocket.predictor.prediction_request import Request
from hocket.predictor.prepared import WINDOW_BYTES
from hocket.report.accuracy_page import render_accuracy
from tests import strategies
from tests.tokens import TOKEN
from tests.unit.report.fake_predictions import fake_prediction


def configuration(**changes: Any) -> Configuration:
    fields: dict[str, Any] = {"step": "chain", "policy": "fifo", "architecture": "ps", "mode": "async"}
    return Configuration(**{**fields, "workers": 2, "servers": 1, **changes})


def replayed(asked: Configuration, prediction: Prediction, *rounds: float) -> AccuracyRow:
    return row_of(asked, prediction, rounds, out_of_order=0.0, stolen=0.013)


def test_rates_count_between_common_moments() -> None:
    # Everybody has done one step at 1.5; the first is through at 4: 3 steps in 3 s, and 2 in 2.
    assert measured_rate([[1.0, 2.0, 3.0, 4.0], [1.5, 2.5, 3.5, 4.5]], 1) == pytest.approx(1.0 + 1.0)
    assert measured_rate([[2.0, 4.0, 6.0]], 1) == pytest.approx(0.5)
    with pytest.raises(HocketError, match="too few steps count; raise --steps"):
        measured_rate([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]], 1)


def test_errors_and_intervals_are_those_worked_out_by_hand() -> None:
    rows = [
        replayed(configuration(), fake_prediction(2, throughput=95.0, lin=80.0, cynthia=120.0), 90.0, 110.0),
        replayed(configuration(), fake_prediction(2, throughput=110.0, lin=90.0, cynthia=90.0), 100.0),
        replayed(
            configuration(mode="sync"), fake_prediction(2, throughput=101.0, lin=None, cynthia=None), 100.0
        ),
    ]
    assert [row.error for row in rows] == pytest.approx([-0.05, 0.1, 0.01])
    assert [row.rounds for row in rows] == [2, 1, 1]
    # Student's t for one degree of freedom, 12.706, times the standard error of 90 and 110.
    assert (rows[0].measured_low, rows[0].measured_high) == pytest.approx((-27.06, 227.06), abs=0.01)
    assert rows[1].measured_low is rows[1].measured_high is None
    assert [row.lin_error for row in rows] == [pytest.approx(-0.2), pytest.approx(-0.1), None]
    by_mode = {group.mode: group for group in groups_of(rows)}
    assert (by_mode["async"].rows, by_mode["sync"].rows, by_mode[None].rows) == (2, 1, 3)
    assert by_mode["async"].mean_error == pytest.approx(0.075)
    assert by_mode["async"].largest_error == pytest.approx(0.1)
    assert by_mode["async"].lin_mean_error == pytest.approx(0.15)
    assert by_mode["async"].cynthia_mean_error == pytest.approx(0.15)
    assert by_mode[None].mean_error == pytest.approx(0.16 / 3)
    assert by_mode["sync"].lin_mean_error is by_mode[None].lin_mean_error is None
    assert len(groups_of(rows[:2])) == 1
    assert [cell.text for cell in row_columns(rows)[-1].cells] == ["1.3%"] * 3
    assert len(group_columns(groups_of(rows))[0].cells) == 3
    assert [group_name(group) for group in groups_of(rows)] == [
        *("parameter servers, async", "parameter servers, sync"),
        "all",
    ]


def test_a_page_shows_every_row() -> None:
    rows = [
        replayed(configuration(step="<b>"), fake_prediction(2, throughput=95.0), 100.0),
        replayed(
            configuration(servers=2), fake_prediction(2, throughput=50.0, lin=None, cynthia=None), 100.0
        ),
    ]
    accuracy = Accuracy(
        request=AccuracyRequest(),
        network=NetworkFile(bandwidth_bps=0.957e9),
        rows=rows,
        groups=groups_of(rows),
        wall_s=1.0,
    )
    page = render_accuracy(accuracy)
    assert "27.5%" in page
    assert "-50.0%" in page
    assert "&lt;b&gt;" in page
    assert "<b>, fifo" not in page
    assert "measured 0.957" in page
    (first, _) = accuracy_document(accuracy)["rows"]
    assert msgspec.json.decode(msgspec.json.encode(first))["measured"] == 100.0


def test_a_scaled_step_has_the_transfers_and_the_proportion_asked_for() -> None:
    for name in ("chain", "alexnet_v2"):
        graph = load_target(name)
        small = scaled(graph, 1e9, 0.2, 0.5)
        assert small.parameter_bytes.sum() * 8 / 1e9 == pytest.approx(0.2, rel=1e-3)
        assert small.durations_s.sum(axis=0).mean() == pytest.approx(0.4 / 0.5, rel=1e-3)
        assert (small.phases != 2).all()
        assert (small.parameter_bytes % 4 == 0).all()
        # Proportions are as they were.
        kept = np.isin(graph.operation_names, small.operation_names)
        ratios = small.durations_s / graph.durations_s[kept]
        assert ratios == pytest.approx(ratios[0, 0])
        assert small.parameter_names == graph.parameter_names
        large = graph.parameter_bytes > 100_000
        ratios = small.parameter_bytes[large] / graph.parameter_bytes[large]
        assert ratios == pytest.approx(ratios[0], rel=1e-2)


def test_transports_are_rows_of_their_own() -> None:
    asked = configurations(
        AccuracyRequest(
            steps=("chain",), policies=("tac", "ddp"), workers=(2,), servers=(1,), transports=("gloo", "grpc")
        )
    )
    assert [(each.policy, each.mode, each.transport) for each in asked] == [
        *(("tac", mode, transport) for mode in ("async", "sync") for transport in ("gloo", "grpc")),
        ("ddp", "sync", "gloo"),
    ]
    rows = [
        replayed(each, fake_prediction(2, throughput=100.0), 100.0) for each in asked if each.mode == "sync"
    ]
    assert [group_name(group) for group in groups_of(rows)] == [
        *("all-reduce", "parameter servers, sync", "parameter servers, sync, gRPC"),
        "all",
    ]


def test_what_gloo_receives_is_not_parsed() -> None:
    file = NetworkFile(bandwidth_bps=1e9, parse_s_per_byte=1e-10, parse_s=1e-5)
    assert network_of(file, "gloo").parse_s == network_of(file, "gloo").parse_s_per_byte == 0.0
    assert network_of(file, "grpc").parse_s == 1e-5


def test_grpc_has_the_window_that_it_is_predicted_with() -> None:
    job = ServedJob(address="x:1", token=TOKEN, rule=Rule(), transport="grpc")
    assert job.window_bytes == WINDOW_BYTES
    assert AccuracyRequest(window_bytes=0.0).window_bytes == 0.0  # off


def test_ranks_wait_as_long_as_rows_take() -> None:
    quick, slow = fake_prediction(2, step_s=0.5), fake_prediction(2, step_s=60.0)
    assert longest_wait_s([quick], 14) == pytest.approx(120 + 4 * 7)
    assert longest_wait_s([quick, slow], 14) > 2 * 60 * 14


def test_nothing_to_replay_is_refused() -> None:
    idle = strategies.step([strategies.parameter("a", 0)], [strategies.operation("o", reads=["a"])])
    with pytest.raises(HocketError, match="transfers or computes nothing"):
        scaled(idle, 1e9, 0.2, 1.0)


def test_all_reduce_has_no_servers_and_is_synchronous() -> None:
    asked = configurations(
        AccuracyRequest(steps=("chain",), policies=("tac", "ddp"), workers=(1, 2), servers=(1, 2))
    )
    found = {(each.policy, each.mode, each.workers, each.servers) for each in asked}
    assert found == {
        *(("tac", mode, w, m) for mode in ("async", "sync") for w in (1, 2) for m in (1, 2)),
        ("ddp", "sync", 2, 0),
    }
    assert len(asked) == 9
    with pytest.raises(HocketError, match="all-reduce takes --mode sync and two workers"):
        configurations(AccuracyRequest(policies=("ddp",), workers=(1,)))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"policies": ("best",)}, "policy 'best' is unknown"),
        ({"policies": ("wfbp",)}, "policy 'wfbp' draws orders of operations, which are not replayed"),
        ({"policies": ("tac", "tac")}, "policy 'tac' is named twice"),
        ({"steps": ()}, "no step was named"),
        ({"transfer_s": 0.0}, "transfer 0 is not between 0.001 and 100"),
        ({"rho": float("nan")}, "rho nan is not between 0.01 and 100"),
        ({"num_steps": 3}, "3 steps are not between 4 and 100000"),
        ({"skip": 0}, "skip 0 of 14 steps leaves too few; skip 1 to 11"),
        ({"skip": 12}, "skip 12 of 14 steps"),
        ({"workers": (63,)}, "63 workers and 2 servers on one machine"),
        ({"timeout_s": 0.5}, "timeout 0.5 is not between 1 and 604800"),
        ({"window_bytes": 1e3}, "window 1000 B is not between 65536 and 2147483647"),
        ({"window_bytes": 1e10}, r"window 1e\+10 B is not between"),
    ],
)
def test_senseless_requests_are_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(HocketError, match=said):
        AccuracyRequest(**fields)


def test_workers_begin_anywhere_in_a_step_once_earlier_pushes_have_come() -> None:
    graph = load_target("chain")
    alone_s = graph.durations_s.sum(axis=0).mean() * 1.5
    asked: dict[str, Any] = {"workers": 3, "rounds": 200, "transfer_s": 0.1, "rho": 0.5}
    begins_s = np.array(drawn_begins_s(graph, **asked, seed=1)) - 0.3
    assert begins_s.shape == (200, 3)
    assert 0.0 <= begins_s.min() < 0.05 * alone_s
    assert 0.95 * alone_s < begins_s.max() <= alone_s
    assert begins_s.mean() == pytest.approx(alone_s / 2, rel=0.1)
    assert (np.array(drawn_begins_s(graph, **asked, seed=2)) - 0.3 != begins_s).all()


def test_predictions_of_rounds_know_when_workers_begin() -> None:
    """One operation of 1 s, pulls and pushes of 1 s: two workers a second apart never meet on a link."""
    rows = StepRows(
        model="one",
        batch_size=1,
        device="test",
        parameters=[ParameterRow(name="w", shape=[2], dtype="float32", bytes=8)],
        operations=[OperationRow("f", "forward", 1.0, [], ["w"], ["w"])],
    )
    graph = step_from_rows(rows)
    network = Network(bandwidth_bps=64.0, num_workers=2)
    request = Request(
        graph=graph,
        network=network,
        mode="async",
        updates="commit",
        window_bytes=0.0,
        steps=12,
        skip=2,
        plan=plan(graph, network, "fifo"),
    )

    def rate(*begins_s: list[float]) -> float:
        return rate_of_rounds(request, begins_s, servers=1, seed=0)

    apart, together = rate([5.0, 6.0]), rate([5.0, 5.0])
    assert apart == pytest.approx(2 / 3)
    assert together == pytest.approx(2 / 5)
    assert rate([5.0, 6.0], [5.0, 5.0]) == pytest.approx((apart + together) / 2)
