"""What predictions answer, on steps small enough to work out by hand."""

from __future__ import annotations

import dataclasses
import math
import signal
import sys
import threading
from typing import Any

import numpy as np
import pytest

import hocket
from hocket.errors import HocketError
from hocket.graph import StepGraph
from hocket.network import MeasuredReduction, Network
from hocket.predictor import Machines, predict
from hocket.predictor.published_models import Totals, cynthia, lin
from hocket.predictor.synthetic_trace import trace
from tests import strategies

SECOND = 125  # bytes that take one second at NETWORK's bandwidth
NETWORK = Network(bandwidth_bps=1000.0)


def layers(compute_s: float = 1.0, samples: int = 1, update_s: float = 0.5) -> StepGraph:
    """Two layers of a second's bytes each: forward, backward, update."""
    parameters = [strategies.parameter(name, SECOND) for name in ("a", "b")]
    seconds = [compute_s * (1 + 0.2 * k / samples) for k in range(samples)]
    updates_s = [update_s] * samples
    return strategies.step(
        parameters,
        [
            strategies.operation("f a", seconds, reads=["a"]),
            strategies.operation("f b", seconds, inputs=["f a"], reads=["b"]),
            strategies.operation("b b", seconds, inputs=["f b"], produces=["b"], phase="backward"),
            strategies.operation("b a", seconds, inputs=["b b"], produces=["a"], phase="backward"),
            strategies.operation("u b", updates_s, inputs=["b b"], reads=["b"], phase="update"),
            strategies.operation("u a", updates_s, inputs=["b a"], reads=["a"], phase="update"),
        ],
        batch_size=10,
    )


def one(graph: StepGraph, network: Network = NETWORK, **options: Any) -> hocket.Prediction:
    (row,) = predict(graph, network, **{"servers": 1, "steps": 20, "skip": 5, **options})
    return row


def test_one_worker_by_hand() -> None:
    # a 0-1, b 1-2; f a 1-2, f b 2-3, b b 3-4, push b 4-5, b a 4-5, push a 5-6, u a 6-6.5
    row = one(layers())
    assert row.step_s == pytest.approx(6.5)
    assert row.throughput == pytest.approx(10 / 6.5)
    assert row.events == 20 * (6 + 4)
    assert (row.workers, row.servers, row.mode, row.policy) == (1, 1, "async", "fifo")


def test_two_workers_in_lockstep_share_every_transfer() -> None:
    # a 0-2, b 2-4; f a 2-3, f b 4-5, b b 5-6, b a 6-7; push b from 6, a from 8: 8-10; u a 10-10.5
    row = one(layers(), workers=[2])
    assert row.step_s == pytest.approx(10.5)
    assert row.lockstep
    assert not one(layers()).lockstep


def test_workers_that_drift_apart_share_less() -> None:
    assert one(layers(samples=8), workers=[2]).throughput > one(layers(), workers=[2]).throughput
    assert not one(layers(samples=8), workers=[2]).lockstep


def test_workers_that_begin_apart_share_less() -> None:
    apart, together = (one(layers(), workers=[2], machines=Machines(spread=s)) for s in (True, False))
    assert apart.throughput > 1.05 * together.throughput
    assert one(layers(), machines=Machines(spread=True)).step_s == one(layers()).step_s
    free = Network(bandwidth_bps=1e15)
    first = one(layers(), free, workers=[2], machines=Machines(spread=True), steps=1, skip=0)
    # 4 s of operations and half a second of updates; the second worker begins half of 4 s later.
    assert first.step_s == pytest.approx(6.5)


def test_a_window_stops_a_large_stream_once() -> None:
    """Stream a of 1 s stops after half of it, b goes first, the forward pass waits for the rest."""
    # a 0-.5, b .5-1, a 1-1.5, b 1.5-2; f a 1.5-2.5, f b 2.5-3.5, ... all else half a second later
    assert one(layers(), window_bytes=SECOND / 2).step_s == pytest.approx(7.0)
    assert one(layers(), window_bytes=SECOND).step_s == pytest.approx(6.5)
    assert one(layers(), window_bytes=0).step_s == pytest.approx(6.5)


def test_the_window_is_28_megabytes_by_default_and_off_in_synchronous_training() -> None:
    large = dataclasses.replace(layers(), parameter_bytes=np.array([40_000_000, 40_000_000]))
    network = Network(bandwidth_bps=1e9)
    assert one(large, network).step_s == one(large, network, window_bytes=28e6).step_s
    assert one(large, network).step_s > one(large, network, window_bytes=0).step_s
    assert one(large, network, mode="sync").step_s == pytest.approx(
        one(large, network, window_bytes=0).step_s
    )


def test_parsing_takes_the_receivers_time() -> None:
    # A message costs a second to parse. a 0-1, parse a 1-2, b 1-2, f a 2-3, parse b 3-4, f b 4-5, b b 5-6,
    # push b 6-7, b a 6-7, push a 7-8; at the server parse b 7-8, u b 8-8.5 and parse a 8.5-9.5, u a 9.5-10
    row = one(layers(), Network(bandwidth_bps=1000.0, parse_s=1.0))
    assert row.step_s == pytest.approx(10.0)
    by_bytes = one(layers(), Network(bandwidth_bps=1000.0, parse_s_per_byte=1 / SECOND))
    assert by_bytes.step_s == pytest.approx(10.0)


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_updates_that_wait_for_the_commit(mode: Any) -> None:
    # a 0-1, b 1-2; f a 1-3, f b 3-5, b b 5-7, push b 7-8, b a 7-9, push a 9-10; u b 8-9.5, u a 10-11.5
    graph = layers(compute_s=2.0, update_s=1.5)
    assert one(graph, mode=mode).step_s == pytest.approx(11.5)
    # Committed at 9: u b 9-10.5, u a 10.5-12
    assert one(graph, mode=mode, updates="commit").step_s == pytest.approx(12.0)
    shown = trace(graph, NETWORK, workers=1, servers=1, mode=mode, updates="commit", steps=4, skip=1)
    assert "commit" in {span.name for span in shown.spans}


def test_asynchronous_workers_that_commit_share_a_servers_processor() -> None:
    graph, free = layers(update_s=1.0), Network(bandwidth_bps=1e15)
    options = {"workers": [2], "steps": 1, "skip": 0}
    # b b is over at 3, all operations at 4; each worker's updates take 2 s.
    assert one(graph, free, **options).step_s == pytest.approx(5.0)
    assert one(graph, free, updates="commit", **options).step_s == pytest.approx(8.0)
    many = one(graph, free, workers=[8], updates="commit", steps=200)
    assert many.bottleneck == "server processors"
    assert many.throughput == pytest.approx(10 / 2.0, rel=0.02)


def test_a_commit_is_one_of_steps_that_do_not_overlap() -> None:
    for options in ({"policy": "ddp"}, {"mode": "sync", "barrier": "parameter"}):
        with pytest.raises(HocketError, match="updates 'commit': only for parameter servers"):
            one(layers(), workers=[2], updates="commit", **options)


def test_speeds_and_slower_links_and_background() -> None:
    graph = layers(update_s=0.0)
    assert one(graph, machines=Machines(speeds=(0.5,))).step_s == pytest.approx(
        one(layers(compute_s=2.0, update_s=0.0)).step_s
    )
    slower = one(graph, Network(bandwidth_bps=500.0)).step_s
    assert one(graph, machines=Machines(background=0.5)).step_s == pytest.approx(slower)
    assert one(graph, machines=Machines(worker_bps=(500.0,))).step_s == pytest.approx(slower)
    assert one(graph, machines=Machines(server_bps=(500.0,))).step_s == pytest.approx(slower)


def test_a_slow_worker_holds_up_nobody_else_unless_synchronous() -> None:
    machines = Machines(speeds=(1.0, 0.1))
    graph, fast = layers(samples=4, update_s=0.0), Network(bandwidth_bps=1e6)
    alone = one(graph, fast).throughput
    both = one(graph, fast, workers=[2], machines=machines, steps=200).throughput
    assert both == pytest.approx(1.1 * alone, rel=0.05)
    together = one(graph, fast, workers=[2], machines=machines, mode="sync").throughput
    assert together == pytest.approx(2 * 0.1 * alone, rel=0.1)
    spared = one(
        graph, fast, workers=[2], machines=dataclasses.replace(machines, backup=1), mode="sync", steps=200
    )
    assert spared.throughput == pytest.approx(alone, rel=0.05)


def test_an_oversubscribed_rack_is_the_bottleneck() -> None:
    """Worker and server in two racks, whose uplinks carry a tenth of the interfaces."""
    machines = Machines(racks=2, oversubscription=10.0)
    row = one(layers(), workers=[2], machines=machines)
    assert row.bottleneck == "rack uplinks"
    assert row.throughput < one(layers(), workers=[2]).throughput


def test_the_bottleneck_and_how_busy_it_is() -> None:
    fast = one(layers(), Network(bandwidth_bps=1e9))
    assert (fast.bottleneck, round(fast.bottleneck_utilization, 2)) == ("worker processors", 0.89)
    slow = one(layers(samples=4), Network(bandwidth_bps=10.0), workers=[8])
    assert slow.bottleneck in ("downlink", "uplink")
    assert slow.bottleneck_utilization <= 1.03


def test_the_slowest_worker_is_a_synchronous_steps_bottleneck() -> None:
    machines = Machines(speeds=(1.0, 1.0, 1.0, 0.02))
    row = one(layers(), Network(bandwidth_bps=3000.0), workers=[4], mode="sync", machines=machines)
    assert row.bottleneck == "worker processors"
    assert row.bottleneck_utilization > 0.9


@pytest.mark.parametrize("options", [{"architecture": "allreduce"}, {"mode": "sync"}])
def test_what_no_resource_does_is_waiting_for_the_slowest_of_unlike_steps(options: dict[str, Any]) -> None:
    free = Network(bandwidth_bps=1e15)
    graph = layers(samples=4, update_s=0.0)
    row = one(graph, free, workers=[3], steps=2000, skip=100, **options)
    assert row.uneven_fraction is not None
    assert row.uneven_fraction > 0.02
    assert row.bottleneck_utilization + row.uneven_fraction == pytest.approx(1.0, abs=0.005)
    backed = one(graph, free, workers=[3], mode="sync", machines=Machines(backup=1))
    assert (backed.uneven_fraction, one(graph, free, workers=[3]).uneven_fraction) == (None, None)


def test_a_worker_does_not_wait_while_it_computes() -> None:
    # Loading reads no parameter, so that it goes on beside the transfers and takes up a part of the waiting.
    graph = strategies.step(
        [strategies.parameter("a", SECOND)],
        [
            strategies.operation("load", [1.0, 2.0, 3.0, 6.0]),
            strategies.operation("f", [1.0] * 4, inputs=["load"], reads=["a"]),
            strategies.operation("b", [1.0] * 4, inputs=["f"], produces=["a"], phase="backward"),
            strategies.operation("u", [0.0] * 4, inputs=["b"], reads=["a"], phase="update"),
        ],
    )
    row = one(graph, workers=[3], architecture="allreduce", policy="caramel", steps=500)
    assert row.bottleneck == "worker processors"
    assert row.uneven_fraction == pytest.approx(1.0 - row.bottleneck_utilization)


def test_startups_are_a_resource_too() -> None:
    row = one(layers(), Network(bandwidth_bps=1e9, startup_s=100.0))
    assert row.bottleneck == "transfer startups"
    assert 0.4 < row.bottleneck_utilization <= 1


def test_coarse_models_say_nothing_of_links_that_they_do_not_know() -> None:
    assert one(layers()).lin is not None
    assert one(layers(), machines=Machines(worker_bps=(500.0,))).lin is None
    assert one(layers(), workers=[3], machines=Machines(racks=2)).cynthia is None


def test_who_stays_in_lockstep() -> None:
    alike = dataclasses.replace(layers(samples=3), durations_s=np.ones((6, 3)))
    assert one(alike, workers=[2]).lockstep
    assert one(layers(), workers=[3], machines=Machines(speeds=(1.0, 1.0, 0.5))).lockstep
    assert not one(layers(), workers=[2], machines=Machines(speeds=(1.0, 0.5))).lockstep
    assert not one(layers(), workers=[2], machines=Machines(worker_bps=(1e3, 2e3))).lockstep
    assert not one(layers(), workers=[2], mode="sync").lockstep
    assert not one(layers(), workers=[2], machines=Machines(spread=True)).lockstep


def test_any_seed_is_taken() -> None:
    for seed in (2**63 - 1, 2**64 - 1, 10**30):
        assert one(layers(samples=3), workers=[2], seed=seed, repeats=2).throughput > 0


def test_repeats_give_an_interval_and_one_run_none() -> None:
    row = one(layers(samples=4), workers=[3], repeats=5)
    assert row.throughput_low is not None
    assert row.throughput_high is not None
    assert row.throughput_low < row.throughput < row.throughput_high
    assert one(layers(samples=4)).throughput_low is None


def test_prices_become_a_cost_per_example() -> None:
    row = one(layers(), workers=[2], price_per_worker_hour=3.6, price_per_server_hour=7.2)
    assert row.cost_per_example == pytest.approx((2 * 3.6 + 7.2) / 3600 / row.throughput)
    assert one(layers()).cost_per_example is None


def test_every_number_of_servers_with_every_number_of_workers() -> None:
    rows = predict(layers(), NETWORK, workers=[1, 2], servers=[1, 2], steps=3, skip=1)
    assert [(row.workers, row.servers) for row in rows] == [(1, 1), (2, 1), (1, 2), (2, 2)]


def test_allreduce_is_synchronous_and_sees_the_slowest_link() -> None:
    row = one(layers(), workers=[4], architecture="allreduce")
    assert (row.mode, row.servers, row.policy) == ("sync", 0, "ddp")
    assert row.lin is None
    machines = Machines(worker_bps=(1000.0, 1000.0, 1000.0, 250.0))
    slow = one(layers(), workers=[4], architecture="allreduce", machines=machines)
    assert slow.step_s == pytest.approx(
        one(layers(), Network(bandwidth_bps=250.0), workers=[4], architecture="allreduce").step_s
    )


def test_a_measured_reduction_holds_on_the_links_it_was_measured_on() -> None:
    reduction = MeasuredReduction(workers=2, a_s=0.0, b_s_per_byte=0.1)
    measured = Network(bandwidth_bps=1000.0, reduction=reduction)

    def step_s(network: Network, machines: Machines) -> float:
        return one(layers(), network, workers=[2], architecture="allreduce", machines=machines).step_s

    assert step_s(measured, Machines()) > 2 * step_s(NETWORK, Machines())
    for machines in (
        Machines(background=0.5),
        Machines(worker_bps=(10.0,)),
        Machines(racks=2, oversubscription=50.0),
    ):
        assert step_s(measured, machines) == step_s(NETWORK, machines)


def test_a_barrier_per_parameter_overlaps_steps() -> None:
    step, free = (
        one(layers(), workers=[2], mode="sync", barrier=barrier).step_s for barrier in ("step", "parameter")
    )
    assert free < step


def test_lin_and_cynthia_by_hand() -> None:
    totals = Totals(batch_size=10, downlink_s=2.0, worker_s=4.0, uplink_s=2.0, server_s=1.0)
    # One worker: all phases in sequence. Two: X(1) = 1/9, queues 2/9, responses 2 (1 + 2/9).
    assert lin(totals, 1) == pytest.approx(10 / 9)
    assert lin(totals, 2) == pytest.approx(10 * 2 / (5 + 4 * (1 + 2 / 9)))
    assert lin(totals, 500) == pytest.approx(10 / 2.0, rel=0.02)
    # U_1 = 4 / 9: one worker is not slowed, three are.
    assert cynthia(totals, 1) == pytest.approx(10 / 9)
    assert cynthia(totals, 3) == pytest.approx(30 / (5 * 3 * 4 / 9 + 4))


def test_the_same_seed_says_the_same_whatever_else_runs() -> None:
    options: dict[str, Any] = {"steps": 50, "skip": 5, "policy": "random"}
    graph = layers(samples=5)
    first = predict(graph, NETWORK, workers=[1, 2, 3], **options)
    again = predict(graph, NETWORK, workers=[3], **options)
    assert again[0].throughput == first[2].throughput
    other = predict(graph, NETWORK, workers=[3], seed=1, **options)
    assert other[0].throughput != again[0].throughput


def test_progress_reaches_the_end() -> None:
    seen: list[tuple[int, int]] = []
    one(layers(), workers=[2], progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (40, 40)


def test_progress_never_falls_where_runs_begin_again(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[float] = []
    caplog.set_level("INFO", logger="hocket")
    options: dict[str, Any] = {"mode": "async", "steps": 20, "skip": 2, "max_steps": 320}
    slow = predict(
        layers(samples=3),
        NETWORK,
        workers=[1, 8],
        progress=lambda done, total: seen.append(done / total),
        **options,
    )
    assert max(row.steps for row in slow) > 20  # some began again
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert {record.getMessage().split(",")[0] for record in caplog.records} == {
        "1 worker and 1 server",
        "8 workers and 1 server",
    }


def test_an_interrupt_stops_kernels_that_run() -> None:
    class StopError(Exception):
        pass

    def stop(done: int, total: int) -> None:
        raise StopError

    before = threading.active_count()
    with pytest.raises(StopError):
        predict(
            layers(samples=3), NETWORK, workers=[64, 64], mode="async", steps=2_000_000, skip=1, progress=stop
        )
    assert threading.active_count() == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"steps": 0}, "0 steps"),
        ({"skip": 20}, "skip 20"),
        ({"repeats": 0}, "0 repeats"),
        ({"workers": []}, "no number of workers"),
        ({"workers": [0]}, "0 workers"),
        ({"servers": [3]}, "3 servers"),
        ({"window_bytes": -1.0}, "window -1.0"),
        ({"window_bytes": math.nan}, "window nan"),
        ({"mode": "async", "architecture": "allreduce"}, "mode 'async'"),
        ({"barrier": "step"}, "barrier 'step'"),
        ({"machines": Machines(backup=1)}, "1 backup workers"),
        ({"machines": Machines(spread=True), "mode": "sync"}, "spread: synchronous workers"),
        ({"machines": Machines(backup=1), "mode": "sync"}, "1 backup workers of 1"),
        ({"machines": Machines(backup=1), "architecture": "allreduce", "workers": [3]}, "1 backup workers"),
        ({"architecture": "allreduce", "window_bytes": 1e6}, "a window"),
        ({"machines": Machines(speeds=(1.0, 2.0)), "workers": [3]}, "2 speeds for 3 workers"),
        ({"machines": Machines(racks=9)}, "9 racks"),
        ({"policy": "nonsense"}, "policy 'nonsense'"),
        ({"price_per_worker_hour": -1.0}, "price -1.0"),
    ],
)
def test_senseless_requests_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(HocketError, match=words):
        one(layers(), **options)


@pytest.mark.parametrize(
    ("field", "value"),
    [("speeds", (0.0,)), ("speeds", (math.nan,)), ("background", 1.0), ("background", -0.1), ("backup", -1)],
)
def test_senseless_machines_are_refused(field: str, value: Any) -> None:
    with pytest.raises(HocketError):
        Machines(**{field: value})


def test_a_trace_can_be_interrupted() -> None:
    def interrupt(signum: int, frame: object) -> None:
        raise KeyboardInterrupt

    trace(layers(samples=3), NETWORK, workers=2, servers=1, steps=5, skip=1)
    earlier = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        with pytest.raises(KeyboardInterrupt):
            trace(layers(samples=3), NETWORK, workers=200, servers=1, steps=10**6, skip=10**5)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, earlier)


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("servers", [1, 2])
def test_a_trace_shows_every_lane_once_at_a_time(mode: Any, servers: int) -> None:
    graph = layers(samples=4)
    network = Network(bandwidth_bps=1000.0, parse_s=0.1)
    shown = trace(graph, network, workers=3, servers=servers, mode=mode, steps=20, skip=5, window_bytes=60)
    lanes: dict[int, list[tuple[float, float]]] = {}
    for span in shown.spans:
        lanes.setdefault(span.lane, []).append((span.start_s, span.end_s))
    for spans in lanes.values():
        assert all(a[1] <= b[0] + 1e-9 for a, b in zip(sorted(spans), sorted(spans)[1:], strict=False))
    kinds = {span.kind for span in shown.spans}
    assert kinds == {"forward", "backward", "update", "pull", "push", "parse"}
    names = {shown.lanes[lane].process for lane in lanes}
    assert {"worker 0", "worker 1", "worker 2"} <= names


@pytest.mark.long
def test_ray_says_what_threads_say() -> None:
    pytest.importorskip("ray")
    import subprocess

    script = (
        "from tests.unit.predictor.test_predictions import NETWORK, layers\n"
        "from hocket.predictor import predict\n"
        "for engine in ('local', 'ray'):\n"
        "    rows = predict(layers(samples=3), NETWORK, workers=[1, 2], steps=20, skip=5, engine=engine)\n"
        "    print([row.throughput for row in rows])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=110, check=False
    )
    assert done.returncode == 0, done.stderr
    local, ray = done.stdout.splitlines()
    assert local == ray


def test_a_window_of_the_network_asks_for_servers_as_it_does_when_planning() -> None:
    windowed = dataclasses.replace(NETWORK, num_workers=2, window_bytes=1e9)
    row = hocket.predict(layers(), windowed, workers=2, steps=4, skip=0)[0]
    assert row.architecture == "ps" == hocket.plan(layers(), windowed, "search", budget_s=0.01).architecture
    off = dataclasses.replace(windowed, window_bytes=0.0)
    assert hocket.predict(layers(), off, workers=2, steps=4, skip=0)[0].architecture == "allreduce"


def test_slices_occupy_the_network_for_their_own_bytes() -> None:
    graph = strategies.step(
        [strategies.parameter("a", 4 << 20)],
        [
            strategies.operation("f a", 1.0, reads=["a"]),
            strategies.operation("b a", 1.0, inputs=["f a"], produces=["a"], phase="backward"),
        ],
    )
    network = Network(bandwidth_bps=8e6, num_workers=2)
    plan = hocket.plan(graph, network, "bytescheduler")
    assert len(plan.reductions) > 1
    (row,) = predict(graph, network, workers=2, plan=plan, steps=4, skip=1)
    assert row.bottleneck_utilization * row.step_s == pytest.approx((4 << 20) / 1e6)
