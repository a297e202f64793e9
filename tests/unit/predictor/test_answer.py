"""What is said of rows: where they saturate, on what, what is cheapest, and when not to trust them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.predictor import Prediction
from hocket.predictor.answer import answers, verdicts
from hocket.predictor.prediction_curves import cheapest, curves, saturation
from hocket.predictor.prediction_notes import (
    base_note,
    lockstep_note,
    together_note,
    unsteady_note,
    workers_text,
)


def row(workers: int, throughput: float, servers: int = 1, **changes: Any) -> Prediction:
    return Prediction(
        **{
            "workers": workers,
            "servers": servers,
            "mode": "async",
            "throughput": throughput,
            "step_s": 32 * workers / throughput if throughput else 0.0,
            "events": 1000,
            "wall_s": 0.01,
            "architecture": "ps",
            "policy": "fifo",
            "bottleneck": "downlink",
            "bottleneck_utilization": 0.9,
            "alone_throughput": 50.0,
            "speedup": throughput / 50,
            "efficiency": throughput / 50 / workers,
            **changes,
        }
    )


def line_of(*throughputs: float) -> list[Prediction]:
    return [row(w, throughput) for w, throughput in enumerate(throughputs, start=1)]


def test_rows_of_equal_servers_and_mode_are_one_curve_by_workers() -> None:
    rows = [row(4, 40), row(2, 20), row(4, 80, 2), row(2, 20, mode="sync")]
    assert [[r.workers for r in curve] for curve in curves(rows)] == [[2, 4], [4], [2]]


@pytest.mark.parametrize(
    ("throughputs", "expected"),
    [
        ((50, 100, 152, 160, 160), 3),  # 152 is 95% of 160
        ((50, 100, 151, 160, 160), 4),
        ((50, 100, 150, 200), None),
        ((50, 90, 80, 70), 2),
        ((50, 40, 30), 1),
        ((50,), None),
        ((0, 0, 0), None),
        (tuple(50.0 * w for w in range(1, 65)), None),  # 61 workers reach 95% of 64 workers' throughput
    ],
)
def test_saturation_is_the_fewest_workers_near_the_best(
    throughputs: tuple[float, ...], expected: int | None
) -> None:
    knee = saturation(line_of(*throughputs))
    assert (knee and knee.workers) == expected


def test_the_base_of_speedups_is_said() -> None:
    assert base_note([row(2, 50)], has_efficiency=True) == (
        "speed-up and efficiency are against one worker alone, without a network or updates, which servers "
        "run (so compare them with all-reduce's by examples/s): 50 examples/s; asynchronous examples are on "
        "older weights, not the same progress as synchronous ones"
    )
    reduced = row(2, 50, servers=0, mode="sync", architecture="allreduce")
    assert base_note([reduced], has_efficiency=True) == (
        "speed-up and efficiency are against one worker alone, without a network: 50 examples/s"
    )
    assert base_note([reduced], has_efficiency=False) == (
        "speed-up is against one worker alone, without a network: 50 examples/s"
    )
    assert base_note([row(2, 50, alone_throughput=None)], has_efficiency=True) is None
    assert base_note([], has_efficiency=True) is None


def test_one_worker_off_its_profiles_mean_is_explained() -> None:
    reduced = {"servers": 0, "mode": "sync", "architecture": "allreduce", "alone_throughput": 100.0}
    alone = row(1, 100.4, **reduced, speedup=1.004, efficiency=1.0)
    assert "by chance" not in (base_note([alone], has_efficiency=True) or "")
    drawn = row(1, 98.0, **reduced, speedup=0.98, efficiency=0.98)
    assert (base_note([drawn, row(2, 50, mode="sync")], has_efficiency=True) or "").endswith(
        ", its mean; the row of one worker draws its steps, so that it differs by chance"
    )


def test_large_numbers_beside_each_other_are_not_taken_for_level() -> None:
    (line,) = verdicts([row(w, 50.0 * w) for w in range(90, 130)])
    assert "faster" not in line
    assert "throughput still grows at 129 workers" in line


def test_a_curve_that_saturates_is_one_line_with_its_bottleneck() -> None:
    rows = line_of(50, 100, 150, 151, 152)
    assert answers(rows) == [
        "1 server, asynchronous: throughput saturates at 3 workers, 150 examples/s (3.00x one worker"
        " alone); busiest with 3: downlink"
    ]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (
            [row(2, 50), row(4, 100), row(8, 190)],
            "throughput still grows at 8 workers, 190 examples/s (3.80x",
        ),
        (
            [row(1, 50), row(64, 60.5)],
            "64 workers are faster than 1 (no other number was asked for), "
            "60.5 examples/s (1.21x one worker alone)",
        ),
        (
            [row(1, 50), row(64, 60.5), row(128, 60.5)],
            "throughput saturates at 64 workers or fewer (no number between 1 and 64 was asked for), 60.5",
        ),
        (
            [row(1, 50), row(2, 90), row(64, 160.5)],
            "throughput is highest at 64 workers, the most asked for (it may level off between 2 and 64,"
            " where no number was asked for), 160 examples/s",
        ),
        (
            [row(8, 400), row(64, 3150), row(256, 11800)],
            "throughput still grows at 256 workers, 11.8 k examples/s",
        ),
        ([row(8, 400), row(64, 3150)], "throughput still grows at 64 workers, 3150 examples/s"),
        (
            [row(1, 50), row(2, 11.5)],
            "2 workers are slower than 1 (0.23x). Stay with 1, 50 examples/s (1.00x one worker alone); "
            "busiest with 2: downlink",
        ),
        ([row(2, 50), row(4, 11.5)], "4 workers are slower than 2 (0.23x). Stay with 2, 50 examples/s"),
        ([row(1, 50), row(2, 50.2)], "2 workers are no faster than 1 (1.00x). Stay with 1, 50 examples/s"),
        (
            [row(1, 48), row(2, 74, throughput_low=20, throughput_high=128)],
            "2 workers are not surely faster than 1 (1.54x). Stay with 1, 48 examples/s",
        ),
        ([row(1, 50), row(2, 20), row(3, 50)], "2 and 3 workers are no faster than 1 (0.40x to 1.00x)"),
        (
            [row(1, 50), *(row(w, 50 - w) for w in range(2, 9))],
            "2 to 8 workers are slower than 1 (0.84x to 0.96x). Stay with 1",
        ),
        (
            [row(1, 50), *(row(w, 40) for w in (2, 4, 8, 12, 16))],
            "5 numbers of workers tried from 2 to 16 are slower than 1 (0.80x). Stay with 1",
        ),
        ([row(1, 50), row(2, 52)], "2 workers are hardly faster than 1 (1.04x), 52 examples/s"),
        (
            [row(1, 50), row(2, 20), row(3, 80)],
            "2 workers are slower than 1 (0.40x). Throughput still grows at 3 workers, 80 examples/s"
            " (1.60x one worker alone); busiest with 3",
        ),
        (
            line_of(50, 100, 150, 150, 149, 150, 200, 240),
            "4 to 6 workers are no faster than 3 (0.99x to 1.00x). Throughput still grows at 8 workers, 240",
        ),
        (
            line_of(50, 90, 80, 70),
            "of the numbers tried, 2 workers are fastest, 90 examples/s (1.80x one worker alone); "
            "4 workers are slower than 2 (0.78x)",
        ),
        ([row(1, 50), row(2, 1e-6)], "2 workers are slower than 1 (2e-08x). Stay with 1"),
        (
            [row(1, 0), row(2, 0)],
            "no number tried reaches one worker alone, without servers, 50 examples/s. 2 workers are no"
            " faster than 1 (0 examples/s each). Stay with 1",
        ),
    ],
)
def test_a_verdict_claims_no_more_than_was_tried(rows: list[Prediction], said: str) -> None:
    (line,) = answers(rows)
    assert line.startswith(f"1 server, asynchronous: {said}")


def test_a_single_row_claims_no_growth() -> None:
    (line,) = answers([row(1, 50.0)])
    assert line.startswith(
        "1 server, asynchronous: 1 worker reaches 50 examples/s (1.00x one worker alone); busiest"
    )
    (line,) = answers([row(4, 50.0, servers=0, mode="sync", architecture="allreduce")])
    assert line.startswith("all-reduce: 4 workers reach 50 examples/s; busiest")


def test_what_one_worker_alone_does_better_is_said() -> None:
    (line,) = answers([row(1, 20), row(2, 40)])
    alone = "no number tried reaches one worker alone, without servers, 50 examples/s"
    grows = "Throughput still grows at 2 workers, 40 examples/s"
    assert line.startswith(f"1 server, asynchronous: {alone}. {grows}")
    reduced = {"servers": 0, "mode": "sync", "architecture": "allreduce"}
    (line,) = answers([row(8, 30, **reduced), row(16, 45, **reduced)])
    assert line.startswith(
        "all-reduce: no number tried reaches one worker alone, without a network, 50 examples/s. "
    )
    assert "one worker alone, without" not in answers([row(1, 50), row(2, 60)])[0]


def test_modes_are_named_where_there_are_two_or_it_is_asynchronous() -> None:
    rows = [row(1, 50), row(1, 40, mode="sync")]
    names = [line.partition(":")[0] for line in answers(rows)]
    assert names == ["1 server, asynchronous", "1 server, synchronous"]
    assert answers(rows[:1])[0].startswith("1 server, asynchronous:")
    assert answers(rows[1:])[0].startswith("1 server, synchronous:")


def test_the_cheapest_is_named_with_its_price() -> None:
    rows = [row(1, 50, cost_per_example=6e-6), row(2, 100, 2, cost_per_example=5.5e-6)]
    assert cheapest(rows) is rows[1]
    assert answers(rows)[-1] == "cheapest of these rows: 2 workers and 2 servers, 5.5 per million examples"
    assert cheapest([row(1, 50)]) is None


def test_the_fastest_row_has_its_price_beside_the_cheapest() -> None:
    reduced = {"servers": 0, "mode": "sync", "architecture": "allreduce"}
    rows = [row(1, 50, cost_per_example=4e-6, **reduced), row(8, 300, cost_per_example=6e-6, **reduced)]
    assert answers(rows)[-1] == (
        "cheapest of these rows: 1 worker, 4 per million examples;"
        " the fastest row, 8 workers, costs 1.50x as much an example as 1 worker and is 6.00x as fast"
    )
    assert answers(rows[1:])[-1] == "cost: 8 workers, 6 per million examples"


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([1], "1 worker"),
        ([2, 3], "2 and 3 workers"),
        ([2, 3, 4, 8], "2 to 4 and 8 workers"),
        (range(2, 17), "2 to 16 workers"),
        ([2, 4, 8, 16, 32], "5 numbers of workers tried from 2 to 32"),
    ],
)
def test_numbers_of_workers_in_a_row_are_a_range(counts: Sequence[int], said: str) -> None:
    assert workers_text(counts) == said


def test_of_configurations_that_cost_the_same_the_fewest_machines_are_cheapest() -> None:
    rows = [
        row(4, 200, cost_per_example=4.995e-6),
        row(2, 100, cost_per_example=5e-6),
        row(1, 40, cost_per_example=6e-6),
    ]
    assert cheapest(rows) is rows[1]
    wide = {"throughput_low": 30.0, "throughput_high": 50.0}
    assert cheapest([*rows[:2], row(1, 40, cost_per_example=6e-6, **wide)]).workers == 1  # type: ignore[union-attr]


def test_runs_that_had_not_settled_are_named() -> None:
    rows = [row(1, 50, steady=True), row(2, 60, steady=False, steps=8000), row(4, 70, steady=None)]
    note = unsteady_note(rows)
    assert note is not None
    assert note.startswith(
        "not steady: with 2 workers on 1 server, the halves of a run differ by more than 5% after 8000 steps"
    )
    assert answers(rows)[-1] == note
    assert unsteady_note(rows[::2]) is None


def test_workers_that_wait_though_nothing_is_busy_are_named() -> None:
    slow = row(16, 320, servers=4, bottleneck_utilization=0.59)
    note = together_note([row(8, 370, servers=4), slow])
    assert note is not None
    assert note.startswith(
        "16 workers on 4 servers: workers wait though nothing is busy all the time (downlink 59%"
    )
    assert "With 16 workers and 4 servers, 320 examples/s is shown and 542 examples/s is the most" in note
    assert note.endswith(
        "real ones may drift apart; --spread, by which they begin apart, and --repeats show more"
    )
    assert "share" in note
    assert "share" not in str(together_note([row(16, 320, bottleneck_utilization=0.59)]))
    found = answers([row(8, 370, servers=4), slow])
    assert note in found
    assert found[0].endswith("; 16 workers may be faster than shown, see the note")
    begun_apart = row(16, 320, servers=4, bottleneck_utilization=0.59, spread=True)
    apart = together_note([begun_apart])
    assert apart is not None
    assert "--spread" not in apart
    assert apart.endswith(": they meet though they begin apart here")
    assert "may be faster" not in answers([begun_apart])[0]
    usual: list[dict[str, Any]] = [
        {"bottleneck_utilization": 0.95},  # the downlink is the limit
        {"efficiency": 0.95},  # nothing is lost
        {"lockstep": True},  # is said in another way
        {"mode": "sync"},
        {"efficiency": None},
    ]
    for changes in usual:
        assert together_note([row(16, 320, **{"bottleneck_utilization": 0.59, **changes})]) is None
    assert together_note([row(1, 20, bottleneck_utilization=0.4)]) is None


def test_a_run_that_has_not_settled_is_told_of_what_was_not_given() -> None:
    told = unsteady_note([row(2, 60, steady=False)])
    assert str(told).endswith("give more --max-steps, or --spread for asynchronous workers that begin apart")
    given: list[dict[str, Any]] = [{"spread": True}, {"mode": "sync"}]
    for changes in given:
        assert str(unsteady_note([row(2, 60, steady=False, **changes)])).endswith("; give more --max-steps")


def test_links_that_wait_for_their_other_way_show_both() -> None:
    half: dict[str, Any] = {"bottleneck_utilization": 0.5, "opposite_utilization": 0.49}
    assert row(2, 60, **half).busiest == "downlink 50%, uplink 49%"
    assert row(2, 60, bottleneck="worker links", **half).busiest == "worker links 50%, the other way 49%"
    assert row(2, 60, **{**half, "opposite_utilization": 0.1}).busiest == "downlink 50%"
    assert row(2, 60, bottleneck_utilization=0.9, opposite_utilization=0.9).busiest == "downlink 90%"
    assert answers([row(2, 60, spread=True, **half)])[0].endswith("busiest: downlink and uplink, in turns")
    assert "push together" in str(together_note([row(2, 60, **half)]))


def test_one_worker_alone_that_costs_less_is_named() -> None:
    prices: dict[str, Any] = {"cost_per_example": 3e-6, "alone_cost_per_example": 1e-6}
    assert "cost: 2 workers and 1 server, 3 per million examples; one worker alone costs less, 1" in answers(
        [row(2, 60, **prices)]
    )
    (told,) = [line for line in answers([row(2, 60, **prices), row(4, 70, **prices)]) if "cheapest" in line]
    assert "; one worker alone costs less, 1" in told
    same: dict[str, Any] = {"cost_per_example": 1e-6, "alone_cost_per_example": 1e-6}
    assert "costs less" not in " ".join(answers([row(1, 50, servers=0, **same)]))


def test_lockstep_is_said_once_and_why() -> None:
    rows = [row(1, 50), row(2, 60, lockstep=True), row(4, 70, lockstep=True)]
    note = lockstep_note(rows)
    assert note is not None
    assert answers(rows).count(note) == 1
    told = ("single sampled step", "pessimistic", "--spread", "--steps", "--jitter")
    assert all(word in note for word in told)
    assert answers(rows)[0].endswith("; pessimistic, as workers stay in lockstep: see the note")
    assert lockstep_note([row(1, 50)]) is None


@given(rates=st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=12), gaps=st.booleans())
def test_a_verdict_says_slower_where_it_is_and_saturates_where_more_are_no_better(
    rates: list[float], gaps: bool
) -> None:
    curve = [row(2**k if gaps else k + 1, rate) for k, rate in enumerate(rates)]
    (line,) = answers(curve)
    best = max(rates)
    said = re.search(r" are (slower|no faster) than 1 \(", line)
    if "Stay with 1," in line:
        assert best <= 1.01 * rates[0]
        assert said is not None
        if said[1] == "slower":
            assert max(rates[1:]) < rates[0]
    else:
        assert best > 1.01 * rates[0]
    for number in re.findall(r"\b(\d+) workers are slower than 1 ", line):
        assert rates[[r.workers for r in curve].index(int(number))] < rates[0]
    if knee := re.search(r"saturates at (\d+) worker", line):
        at = [r.workers for r in curve].index(int(knee[1]))
        assert at > 0
        assert rates[at] >= 0.95 * best
        assert rates[-1] >= 0.95 * best
    if grows := re.search(r"grows (?:at|up to) (\d+) worker", line):
        assert int(grows[1]) == curve[-1].workers
        assert rates[-1] >= 0.95 * best
    if fastest := re.search(r"tried, (\d+) workers are fastest", line):
        assert rates[[r.workers for r in curve].index(int(fastest[1]))] == best


def test_waiting_for_slow_steps_is_no_work_of_a_resource() -> None:
    busy = {"bottleneck": "worker processors", "bottleneck_utilization": 0.71, "mode": "sync", "servers": 0}
    (line,) = answers([row(16, 400, **busy, uneven_fraction=0.287)])
    assert line.endswith(
        "worker processors; up to 29% is waiting for each step's slowest worker, as steps differ in length"
    )
    assert "waiting" not in answers([row(16, 400, **busy, uneven_fraction=0.04)])[0]


def test_servers_that_slow_workers_down_are_said() -> None:
    rows = [row(4, 40, 1), row(8, 80, 1), row(4, 60, 2), row(8, 60, 2), row(4, 40, 3), row(8, 59, 3)]
    (said,) = [line for line in answers(rows) if line.startswith("more servers")]
    assert said == (
        "more servers may be slower: 4 workers and 3 servers reach 0.67x of 4 workers and 2 servers, the most"
        " of 3 such rows; more and smaller transfers meet where one had a link for itself"
    )
    assert not [line for line in answers(rows[:2]) if line.startswith("more servers")]
    assert not [line for line in answers([row(4, 40, 1), row(4, 39.9, 2)]) if line.startswith("more servers")]


def test_single_runs_of_drifting_workers_saturate_within_chance() -> None:
    rates = (50, 100, 146, 160, 157)
    assert saturation([row(w, r) for w, r in enumerate(rates, 1)]).workers == 4
    drawn = [row(w, r, steady=True) for w, r in enumerate(rates, 1)]
    assert saturation(drawn).workers == 3
    assert "saturates at 3 workers" in answers(drawn)[0]
    known = [
        row(w, r, steady=True, throughput_low=r - 1, throughput_high=r + 1) for w, r in enumerate(rates, 1)
    ]
    assert saturation(known).workers == 4
    assert saturation([row(w, r, steady=True, lockstep=True) for w, r in enumerate(rates, 1)]).workers == 4


def test_workers_that_bring_little_at_first_are_said_where_more_of_them_pay() -> None:
    ring = {"servers": 0, "mode": "sync", "architecture": "allreduce", "bottleneck": "network"}
    curve = [row(1, 50, **ring), row(2, 56, **ring), row(4, 100, **ring), row(8, 196, **ring)]
    (line,) = answers(curve)
    assert line.startswith(
        "all-reduce: 2 workers are only 1.12x as fast as 1. Throughput still grows at 8 workers"
    )
    assert line.endswith(
        "busiest with 8: network, and a step takes hardly longer than with 4, so more"
        " workers still add examples, at 49% efficiency; the network decides at every number tried"
    )
    (line,) = answers([msgspec.structs.replace(known, efficiency=None) for known in curve])
    assert "so more workers still add examples; the network" in line
    steep = [row(1, 50, **ring), row(2, 80, **ring), row(4, 100, **ring), row(8, 140, **ring)]
    (line,) = answers(steep)
    assert "only" not in line
    assert line.endswith("busiest with 8: network; the network decides at every number tried")


def test_a_ceiling_below_one_worker_alone_is_said() -> None:
    slow = {"bottleneck_utilization": 0.5, "steady": True}
    note = together_note([row(4, 20, **slow)])
    assert note is not None
    assert "40 examples/s is the most, still less than one worker alone" in note
    assert "still less" not in (together_note([row(4, 40, **slow)]) or "")


def test_workers_of_another_speed_are_against_the_profiled_one_and_not_off_by_chance() -> None:
    reduced = {"servers": 0, "mode": "sync", "architecture": "allreduce"}
    fast = [row(1, 99.5, **reduced, efficiency=0.995), row(8, 400, **reduced, efficiency=0.5)]
    assert base_note(fast, has_efficiency=True) == (
        "speed-up and efficiency are against one worker alone of the profiled speed, without a network"
        " (efficiency against what these workers would reach, each at its own): 50 examples/s"
    )
    assert "profiled speed" in (
        base_note([row(1, 120, **reduced, efficiency=1.0)], has_efficiency=True) or ""
    )
    assert "profiled speed" not in (
        base_note([row(1, 51, **reduced, efficiency=1.0), row(8, 300, **reduced)], has_efficiency=True) or ""
    )


def test_sharded_workers_that_share_updates_out_are_as_fast_as_profiled() -> None:
    sharded = {"servers": 0, "mode": "sync", "architecture": "fsdp"}
    note = base_note(
        [row(8, 442, **sharded, efficiency=1.105), row(512, 28518, **sharded, efficiency=1.114)],
        has_efficiency=True,
    )
    assert note == (
        "speed-up and efficiency are against one worker alone, without a network, which updates all"
        " parameters itself where these share updates out (so they may be above 100%): 50 examples/s"
    )
    assert "share updates" not in (
        base_note([row(8, 390, **sharded, efficiency=0.975)], has_efficiency=True) or ""
    )


COMPUTING = {"servers": 0, "mode": "sync", "architecture": "allreduce", "bottleneck": "worker processors"}


@pytest.mark.parametrize(
    ("workers", "bound_from", "said"),
    [
        ((1, 2, 3, 4), 3, "; the network decides from 3 workers on"),
        ((1, 2, 8, 64), 8, "; the network decides from 8 workers on (between 2 and 8 none was tried)"),
        ((1, 2, 4), 5, "; computing, not the network, decides up to 4 workers"),
    ],
)
def test_a_collectives_answer_says_from_which_number_the_network_decides(
    workers: Sequence[int], bound_from: int, said: str
) -> None:
    rows = [
        row(w, 40.0 * w, **COMPUTING | ({"bottleneck": "network"} if w >= bound_from else {}))
        for w in workers
    ]
    assert verdicts(rows)[0].endswith(said)
    assert "decide" not in verdicts([row(w, 40.0 * w) for w in workers])[0]


def test_the_rate_has_its_range_where_one_is_known() -> None:
    known = {**COMPUTING, "throughput_least": 140.0, "throughput_most": 180.0, "range_of": "derived"}
    assert "160 examples/s (140 to 180; 3.20x one worker alone" in verdicts([row(4, 160.0, **known)])[0]
    large = row(4, 949e3, **known | {"throughput_least": 869e3, "throughput_most": 1.045e6})
    assert large.range_text == "869 to 1045 k"
