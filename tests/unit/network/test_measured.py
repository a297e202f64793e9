"""What was measured: fits of known lines, the network file, and AllReduces that cost what was timed."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from hocket.errors import FormatError, HocketError
from hocket.network import (
    MeasuredHalves,
    MeasuredLine,
    MeasuredReduction,
    Network,
    NetworkFile,
    ShardGroups,
    choose_pattern,
    collective_cost,
    gather_s,
    load_network,
    patterns_of,
    reduction_s,
    save_network,
)
from hocket.network.file import AllReduce, Fit, Fits, Halves, Line, MeasuredPoint, MeasurementHost
from hocket.network.fit import fit_contention, fit_line

A_S, B_S, ETA_S = 6.69e-4, 8.53e-10, 2.34e-10  # the contention paper's, section V
SIZES = [64 * 4**i for i in range(10)]


def line(a_s: float, b_s: float) -> list[MeasuredPoint]:
    return [MeasuredPoint(size_bytes=size, seconds=a_s + b_s * size) for size in SIZES]


def contended(eta_s: float, *sizes: int) -> list[MeasuredPoint]:
    return [
        MeasuredPoint(size_bytes=size, concurrent=k, seconds=A_S + k * B_S * size + (k - 1) * eta_s * size)
        for size in sizes
        for k in range(1, 9)
    ]


# Fits -------------------------------------------------------------------------------------------------------


def test_a_line_is_recovered() -> None:
    fit = fit_line(line(A_S, B_S))
    assert (fit.a_s, fit.b_s_per_byte) == pytest.approx((A_S, B_S), rel=1e-9)
    assert fit.max_error < 1e-9
    assert fit.note == ""


@pytest.mark.parametrize("sizes", [(4_000_000,), (100_000, 4_000_000)])
@pytest.mark.parametrize("eta_s", [ETA_S, 0.0])
def test_contention_is_recovered(sizes: tuple[int, ...], eta_s: float) -> None:
    fit = fit_contention(contended(eta_s, *sizes), A_S)
    assert (fit.b_s_per_byte, fit.eta_s_per_byte) == pytest.approx((B_S, eta_s), rel=1e-9, abs=1e-20)
    assert fit.max_error < 1e-9


def test_concurrency_that_helps_is_no_contention() -> None:
    fit = fit_contention(contended(-ETA_S, 4_000_000), A_S)
    assert fit.eta_s_per_byte == 0.0
    assert fit.note == "eta = -2.34e-10 s/byte fits best, held at 0"
    # Without eta one b has to serve one reduction and eight: the error says so.
    assert B_S - ETA_S < fit.b_s_per_byte < B_S
    assert fit.max_error > 0.05


def test_a_startup_below_nothing_is_none() -> None:
    fit = fit_line([MeasuredPoint(size_bytes=size, seconds=1e-9 * size**1.2) for size in SIZES])
    assert fit.a_s == 0.0
    assert fit.b_s_per_byte > 0.0
    assert fit.note.startswith("a = -")
    flat = fit_line([MeasuredPoint(size_bytes=size, seconds=1e-3 / (1 + 1e-9 * size)) for size in SIZES])
    assert flat.b_s_per_byte == 0.0
    assert flat.a_s == pytest.approx(1e-3, rel=0.01)


def test_less_weight_on_small_sizes_brings_the_line_to_the_large_ones() -> None:
    """Small reductions that hide behind others cost a constant at least: no line, and N is of large ones."""
    measured = [
        MeasuredPoint(size_bytes=s, seconds=max(1.2e-3, 3.36e-8 * s)) for s in (64, 1 << 14, 1 << 18, 1 << 20)
    ]
    largest = MeasuredPoint(size_bytes=4 << 20, seconds=3.36e-8 * (4 << 20))
    alike, by_time = (fit_line([*measured, largest], power=power) for power in (1.0, 0.5))
    off = [abs(fit.seconds(4 << 20) / largest.seconds - 1) for fit in (alike, by_time)]
    assert off[1] < 0.02 < off[0]
    assert by_time.seconds(64) == pytest.approx(1.2e-3, rel=0.3)


def test_one_at_a_time_says_nothing_of_contention() -> None:
    fit = fit_contention(contended(ETA_S, 4_000_000)[:1], A_S)
    assert (fit.b_s_per_byte, fit.eta_s_per_byte) == pytest.approx((B_S, 0.0))


def test_no_other_line_that_is_not_negative_is_closer() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        points = [
            MeasuredPoint(size_bytes=s, seconds=float(rng.lognormal(0, 1.5)) * 1e-3) for s in SIZES[::3]
        ]
        fit = fit_line(points)
        sizes = np.array([p.size_bytes for p in points], float)
        seconds = np.array([p.seconds for p in points])

        def rms(a: float, b: float, sizes: Any = sizes, seconds: Any = seconds) -> float:
            return float(np.sqrt(np.mean(((a + b * sizes) / seconds - 1) ** 2)))

        assert fit.rms_error == pytest.approx(rms(fit.a_s, fit.b_s_per_byte))
        for a, b in itertools.product([0.0, 0.5, 0.99, 1.01, 2.0], repeat=2):
            assert fit.rms_error <= rms(a * fit.a_s, b * fit.b_s_per_byte) * (1 + 1e-12)
        for nudge in (1e-5, 1e-3):
            assert fit.rms_error <= rms(fit.a_s + nudge, fit.b_s_per_byte)
            assert fit.rms_error <= rms(fit.a_s, fit.b_s_per_byte + nudge / SIZES[-1])


# The measured AllReduce -------------------------------------------------------------------------------------


def measured(num_workers: int, measured_workers: int = 4, **more: Any) -> Network:
    reduction = MeasuredReduction(workers=measured_workers, a_s=A_S, b_s_per_byte=B_S, eta_s_per_byte=ETA_S)
    return Network(num_workers=num_workers, startup_s=1.0, parse_s=1.0, reduction=reduction, **more)


def test_an_all_reduce_costs_what_was_measured() -> None:
    assert patterns_of(measured(4)) == ("measured",)
    assert choose_pattern(measured(4), 1e6) == "measured"
    for size in (0.0, 64.0, 4e6):
        for chunks in (1, 8):
            assert reduction_s(measured(4), size, chunks) == pytest.approx(A_S + B_S * size)


def test_other_numbers_of_workers_follow_the_ring() -> None:
    assert reduction_s(measured(1), 1e9) == 0.0
    assert reduction_s(measured(2), 1e6) == pytest.approx(A_S / 3 + B_S * 1e6 * (1 / 2) / (3 / 4))
    assert reduction_s(measured(16), 1e6) == pytest.approx(A_S * 5 + B_S * 1e6 * (15 / 16) / (3 / 4))
    # What a ring costs between 3 workers, taken for a measurement, is what one costs between 7.
    ring = Network(num_workers=3, startup_s=1e-4, bandwidth_bps=1e9, pattern="ring")
    cost = collective_cost("ring", ring)
    reduction = MeasuredReduction(workers=3, a_s=cost.latency_s, b_s_per_byte=cost.wire_s_per_byte)
    larger = Network(num_workers=7, startup_s=1e-4, bandwidth_bps=1e9)
    assert reduction_s(Network(num_workers=7, reduction=reduction), 1e6) == pytest.approx(
        collective_cost("ring", larger).seconds(1e6)
    )


def test_a_pattern_goes_before_the_measurement() -> None:
    assert choose_pattern(measured(4, pattern="tree"), 1e6) == "tree"
    assert reduction_s(measured(4, pattern="tree"), 0.0) == pytest.approx(8.0)


@pytest.mark.parametrize("workers", [1, 0, -2, True, 2.0])
def test_an_all_reduce_of_one_worker_measures_nothing(workers: Any) -> None:
    with pytest.raises(HocketError, match="2 or more"):
        MeasuredReduction(workers=workers, a_s=0.0, b_s_per_byte=0.0)


@pytest.mark.parametrize("value", [-1e-9, float("nan"), float("inf"), "1", True])
def test_costs_are_finite_and_not_negative(value: Any) -> None:
    for field in ("a_s", "b_s_per_byte", "eta_s_per_byte"):
        with pytest.raises(HocketError, match=r"an all-reduce's (a|b|eta) "):
            MeasuredReduction(**{"workers": 2, "a_s": 0.0, "b_s_per_byte": 0.0, field: value})


def test_only_a_measurement_can_be_one() -> None:
    with pytest.raises(HocketError, match="not a MeasuredReduction"):
        Network(reduction=3.0)  # type: ignore[arg-type]
    with pytest.raises(HocketError, match="no all-reduce was measured"):
        collective_cost("measured", Network(num_workers=2))


# The measured halves ----------------------------------------------------------------------------------------

GATHER, SCATTER, EXCHANGE = (
    MeasuredLine(a_s=a, b_s_per_byte=b) for a, b in ((0.5, 3e-6), (0.75, 7e-6), (1.0, 5e-6))
)


def with_halves(num_workers: int, measured_workers: int = 4, **lines: MeasuredLine) -> Network:
    network = measured(num_workers, measured_workers)
    assert network.reduction is not None
    halves = MeasuredHalves(**{"gather": GATHER, **lines})
    return dataclasses.replace(network, reduction=dataclasses.replace(network.reduction, halves=halves))


def test_shards_cost_what_was_measured_and_each_way_of_scattering_its_own() -> None:
    network = with_halves(4, scatter=SCATTER, exchange=EXCHANGE)
    streams, started = ShardGroups.of(network), ShardGroups.of(network, exchanged=True)
    assert streams.gather_s(1e6) == started.gather_s(1e6) == pytest.approx(3.5)
    assert streams.scatter_s(1e6) == pytest.approx(7.75)
    assert started.scatter_s(1e6) == pytest.approx(6.0)
    assert started.whole_scatter_s(1e6) == pytest.approx(7.75)
    assert reduction_s(network, 1e6) == pytest.approx(A_S + B_S * 1e6)


def test_what_was_not_measured_takes_its_part_of_an_all_reduce() -> None:
    for network in (with_halves(4), dataclasses.replace(with_halves(4), pattern="ring")):
        alone = dataclasses.replace(network, reduction=measured(4).reduction)
        groups, others = (ShardGroups.of(each, exchanged=True) for each in (network, alone))
        assert groups.scatter_s(1e6) == others.scatter_s(1e6)
        assert groups.whole_scatter_s(1e6) == others.whole_scatter_s(1e6)
        assert (groups.gather_s(1e6) == others.gather_s(1e6)) == (network.pattern == "ring")


@pytest.mark.parametrize("measured_workers", [2, 3, 8])
@pytest.mark.parametrize("num_workers", [1, 2, 5, 16])
def test_halves_between_other_numbers_of_workers_go_round_by_round(
    num_workers: int, measured_workers: int
) -> None:
    """Each round of a ring passes one worker's share on: what one took as measured, it takes here."""
    size = 1e6
    round_s = GATHER.a_s / (measured_workers - 1)
    byte_s = (
        GATHER.b_s_per_byte * measured_workers / (measured_workers - 1)
    )  # of a share, which passes a link
    expected = sum(round_s + byte_s * size / num_workers for _ in range(num_workers - 1))
    assert gather_s(with_halves(num_workers, measured_workers), size) == pytest.approx(expected)


@pytest.mark.parametrize(("a_s", "b_s_per_byte"), [(-1.0, 0.0), (0.0, 2.0), ("1", 0.0)])
def test_a_line_out_of_range_is_refused(a_s: Any, b_s_per_byte: Any) -> None:
    with pytest.raises(HocketError, match="a collective's"):
        MeasuredLine(a_s=a_s, b_s_per_byte=b_s_per_byte)


def test_halves_are_of_lines() -> None:
    with pytest.raises(HocketError, match="gather None is not a MeasuredLine"):
        MeasuredHalves(gather=None)  # type: ignore[arg-type]
    with pytest.raises(HocketError, match=r"exchange 1\.0 is not a MeasuredLine"):
        MeasuredHalves(gather=GATHER, exchange=1.0)  # type: ignore[arg-type]
    with pytest.raises(HocketError, match="are not MeasuredHalves"):
        MeasuredReduction(workers=2, a_s=0.0, b_s_per_byte=0.0, halves=GATHER)  # type: ignore[arg-type]


# The file ---------------------------------------------------------------------------------------------------


def some_file() -> NetworkFile:
    of_line, of_eta = fit_line(line(A_S, B_S)), fit_contention(contended(ETA_S, 4_000_000), A_S)
    return NetworkFile(
        bandwidth_bps=8 / B_S,
        startup_s=1e-4,
        parse_s_per_byte=1e-10,
        parse_s=1e-6,
        allreduce=AllReduce(workers=4, a_s=A_S, b_s_per_byte=B_S, eta_s_per_byte=ETA_S),
        fits=Fits(transfer=of_line, parse=of_line, allreduce=of_line, contention=of_eta),
        host=MeasurementHost(torch="2.13.0", backend="gloo", workers=4, where="loopback"),
    )


@pytest.mark.parametrize("name", ["network.json", "network.json.zst"])
def test_a_written_file_reads_back(tmp_path: Path, name: str) -> None:
    save_network(some_file(), tmp_path / name)
    read = load_network(tmp_path / name)
    assert read == some_file()
    network = read.network(8, 2)
    assert (network.num_workers, network.num_servers, network.startup_s) == (8, 2, 1e-4)
    assert network.reduction == MeasuredReduction(workers=4, a_s=A_S, b_s_per_byte=B_S, eta_s_per_byte=ETA_S)


def test_halves_are_read_back_and_the_file_names_no_others(tmp_path: Path) -> None:
    gather = Line(a_s=0.5, b_s_per_byte=3e-6)
    file = msgspec.structs.replace(
        some_file(), allreduce=AllReduce(workers=4, a_s=A_S, b_s_per_byte=B_S, halves=Halves(gather=gather))
    )
    save_network(file, tmp_path / "network.json")
    assert load_network(tmp_path / "network.json") == file
    document = json.loads((tmp_path / "network.json").read_text())
    assert document["allreduce"]["halves"] == {"gather": {"a_s": 0.5, "b_s_per_byte": 3e-6}}
    reduction = file.network(4).reduction
    assert reduction is not None
    assert reduction.halves == MeasuredHalves(gather=GATHER)


def test_one_line_by_hand_is_a_network(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text('{"format": "hocket.network/1", "bandwidth_bps": 1000000000}')
    assert load_network(path).network(4) == Network(bandwidth_bps=1e9, num_workers=4)
    save_network(load_network(path), path)
    assert set(json.loads(path.read_text())) == {
        *("format", "bandwidth_bps", "startup_s", "parse_s_per_byte", "parse_s")
    }


def changed(**changes: Any) -> bytes:
    document = {
        "format": "hocket.network/1",
        "bandwidth_bps": 1e9,
        "allreduce": {"workers": 4, "a_s": 1e-3, "b_s_per_byte": 1e-9},
    }
    return json.dumps({**document, **changes}).encode()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rack": "B4"}, "'rack' is ignored; hocket.network/1 has bandwidth_bps, startup_s,"),
        ({"gpus_per_node": 8, "rack": 1}, "'gpus_per_node', 'rack' are ignored"),
        ({"startup": 1e-5}, "'startup' (did you mean 'startup_s'?) is ignored"),
        (
            {"allreduce": {"workers": 4, "a_s": 0, "b_s_per_byte": 0, "eta": 1}},
            "'allreduce.eta' is ignored",
        ),
        ({f"x{i}": i for i in range(9)}, "'x4', and 4 more are ignored"),
        ({"\x1b[2J": 1}, r"'\x1b[2J' is ignored"),
    ],
)
def test_a_key_that_nothing_reads_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(changed(**changes))
    lines: list[str] = []
    assert load_network(path, lines.append).bandwidth_bps == 1e9
    assert len(lines) == 1
    assert lines[0].startswith(f"{path}: ")
    assert said in lines[0]
    with pytest.warns(UserWarning, match="ignored"):
        load_network(path)


def test_a_network_that_was_written_here_has_no_unknown_key(tmp_path: Path) -> None:
    save_network(some_file(), tmp_path / "network.json")
    load_network(tmp_path / "network.json", pytest.fail)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"format": "hocket.network/1"}', "mine.json: object missing required field `bandwidth_bps`"),
        (b'{"bandwidth_bps": 1e9}', "mine.json: object missing required field `format`"),
        (changed(format="hocket.network/2"), "format: 'hocket.network/2' is not 'hocket.network/1'"),
        (changed(format="hocket.step/1"), "format: 'hocket.step/1' is not 'hocket.network/1'"),
        (changed(bandwidth_bps="1Gbit/s"), "bandwidth_bps: expected `float`, got `str`"),
        (changed(bandwidth_bps=0), "bandwidth_bps: expected `float` >= 1.0"),
        (changed(bandwidth_bps=float("nan")), "bandwidth_bps: nan is not a finite number"),
        (changed(startup_s=-1e-6), "startup_s: expected `float` >= 0.0"),
        (changed(parse_s=True), "parse_s: expected `float`, got `bool`"),
        (changed(parse_s_per_byte=1e300), "parse_s_per_byte: expected `float` <= 1.0"),
        (changed(startup_s=1e-320), "startup 1e-320 s is neither 0 nor between 1e-18 and 3600"),
        (changed(startup_s=86400), "startup_s: expected `float` <= 3600.0"),
        (changed(bandwidth_bps=0.5), "bandwidth_bps: expected `float` >= 1.0"),
        (
            changed(allreduce={"workers": 1, "a_s": 0, "b_s_per_byte": 0}),
            "allreduce.workers: expected `int` >= 2",
        ),
        (
            changed(allreduce={"workers": 2, "a_s": 0}),
            "allreduce: object missing required field `b_s_per_byte`",
        ),
        (changed(fits={}), "fits: object missing required field `transfer`"),
        (changed(host={"torch": 2}), "host.torch: expected `str`, got `int`"),
    ],
)
def test_what_breaks_the_format_gets_one_line(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "mine.json"
    path.write_bytes(data)
    with pytest.raises(FormatError) as refused:
        load_network(path)
    assert message in str(refused.value)
    assert str(refused.value).startswith(f"{path}: ")


def test_a_fit_says_what_its_model_says() -> None:
    fit = Fit(a_s=1.0, b_s_per_byte=2.0, eta_s_per_byte=0.5, rms_error=0.0, max_error=0.0, points=())
    assert fit.seconds(10) == 21.0
    assert fit.seconds(10, 3) == 1.0 + 3 * 20 + 2 * 5
