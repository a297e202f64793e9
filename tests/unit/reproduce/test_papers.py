"""Each paper on a setting of seconds: what is computed, not what it comes to."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache
from importlib import import_module
from typing import Any

import pytest

from hocket.errors import UnknownNameError
from hocket.graph import StepGraph
from hocket.network import NetworkFile
from hocket.network.file import AllReduce, Fit, Fits, MeasuredPoint
from hocket.reproduce import loopback, papers_of
from hocket.reproduce.caramel import caramel_measurements as caramel
from hocket.reproduce.caramel import systems
from hocket.reproduce.claim import judged
from hocket.reproduce.contention import contention_measurements as contention
from hocket.reproduce.contention.contention_claims import CLAIMS as CONTENTION
from hocket.reproduce.ibatch import ibatch_measurements as ibatch
from hocket.reproduce.ibatch.testbed import matching_default, one_of, rows_of, speedup
from hocket.reproduce.prediction import prediction_measurements as prediction
from hocket.reproduce.prediction.stream_sharing import STREAMS, WINDOW, agreements, multiplexed, partition
from hocket.reproduce.reproduction import Reproduction
from hocket.reproduce.steps import derived
from hocket.reproduce.tictac import tictac_measurements as tictac
from hocket.reproduce.tictac.tictac_claims import TABLE_1
from tests.unit.reproduce.settings import TINY


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})


def network_file() -> NetworkFile:
    """As if measured: 1 ms and a nanosecond a byte, a tenth more for each at once."""
    points = tuple(MeasuredPoint(size_bytes=10**k, seconds=1e-3 + 1e-9 * 10**k) for k in range(3, 8))
    line = Fit(a_s=1e-3, b_s_per_byte=1e-9, rms_error=0.01, max_error=0.02, points=points)
    together = tuple(
        MeasuredPoint(size_bytes=10**6, seconds=1e-3 + k * 1e-3 + (k - 1) * 1e-4, concurrent=k)
        for k in (1, 2, 4, 8)
    )
    contended = Fit(
        a_s=1e-3, b_s_per_byte=1e-9, eta_s_per_byte=1e-10, rms_error=0.01, max_error=0.02, points=together
    )
    return NetworkFile(
        bandwidth_bps=8e9,
        allreduce=AllReduce(workers=2, a_s=1e-3, b_s_per_byte=1e-9, eta_s_per_byte=1e-10),
        fits=Fits(transfer=line, parse=line, allreduce=line, contention=contended),
    )


def made(paper: str) -> Reproduction:
    reproduction: Reproduction = import_module(f"hocket.reproduce.{paper}").reproduce(TINY, None)
    assert reproduction.paper == paper
    assert reproduction.assumptions
    drawn = [figure.number for figure in reproduction.figures]
    assert len(set(drawn)) == len(drawn)
    for figure in reproduction.figures:
        for panel in figure.panels:
            for series in panel.series:
                assert len(series.x) == len(series.y), (figure.number, panel.title, series.name)
    for table in reproduction.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    return reproduction


@lru_cache
def cheap_step(model: str = "", batch_size: int | None = None, **options: Any) -> StepGraph:
    """In place of a step that takes a while to derive or to measure."""
    kept = {key: value for key, value in options.items() if key in ("inference", "samples", "jitter")}
    return derived("alexnet_v2", 4, **kept)


def numbers(things: Iterable[str]) -> set[str]:
    return {thing.split(",")[0] for thing in things}


def test_names_are_papers_or_all_of_them() -> None:
    assert papers_of(["all"]) == ("tictac", "ibatch", "caramel", "prediction", "contention")
    assert papers_of(["caramel", "tictac", "caramel"]) == ("tictac", "caramel")
    with pytest.raises(UnknownNameError, match=r"did you mean 'caramel'.*tictac, ibatch, caramel, .*all"):
        papers_of(["tictac", "caramell"])


def test_tictac_draws_its_figures_and_judges_its_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tictac, "MODELS", ("inception_v2", "inception_v3"))
    monkeypatch.setattr(tictac, "WORKERS", (1, 4))
    monkeypatch.setattr(
        tictac,
        "noisy_step",
        lambda model, inference, jitter, **_: derived(
            {"inception_v2": "alexnet_v2", "inception_v3": "vgg11"}[model],
            4,
            inference=inference,
            samples=5,
            jitter=jitter,
        ),
    )
    reproduction = made("tictac")
    assert [figure.number for figure in reproduction.figures] == [
        "Fig. 4",
        *(f"Fig. {number}" for number in range(9, 16)),
    ]
    (table,) = reproduction.tables
    assert [row[0] for row in table.rows] == ["Inception v2", "Inception v3"]
    assert {row[1] == row[2] for row in table.rows} == {True}
    verdicts = {(row.figure, row.what): row.verdict for row in reproduction.claims}
    assert verdicts["Table 1", "number of parameters, each model"] == "reproduced"
    assert verdicts["Table 1", "MiB of parameters to two decimals, each model"] == "reproduced"


def test_tictacs_gain_is_over_random_orders_in_the_same_place() -> None:
    runs, planning_s = tictac.runs_of("alexnet_v2", True, TINY)
    found = tictac.TicTacMeasurements(zoo=(), runs=tuple(runs), consistency=(), planning_s=planning_s)
    tic = found.select("tic", lambda r: (r.workers, r.servers, r.factor) == (4, 1, 2.0))
    random = found.select("random", lambda r: (r.workers, r.servers, r.factor) == (4, 1, 2.0))
    assert [found.gain(run) for run in tic] == [random[0].step_s / tic[0].step_s - 1]
    assert planning_s > 0
    assert set(TABLE_1) == set(tictac.TABLE_1)


def test_caramel_draws_its_figures_and_judges_its_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caramel, "derived", cheap_step)
    monkeypatch.setattr(caramel, "MODELS", ("inception_v3", "vgg16"))
    reproduction = made("caramel")
    drawn = [figure.number for figure in reproduction.figures]
    assert drawn == ["Fig. 2", "Fig. 4", *(f"Fig. {number}" for number in range(8, 15))]
    assert {row.verdict for row in reproduction.claims if row.figure == "Fig. 13"} >= {"reproduced"}


def test_the_whole_of_caramels_stages_is_caramel() -> None:
    graph, network = derived("alexnet_v2"), systems.reducing("cheapest", "alpha waits", 8)
    by_stage = systems.stages(graph, network)
    assert list(by_stage) == list(systems.STAGES)
    assert by_stage["windows"] == systems.systems(graph, 8, 0)["Caramel"][0]


def test_ibatch_draws_its_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ibatch, "step_of", lambda model, setting: cheap_step())
    reproduction = made("ibatch")
    assert [figure.number for figure in reproduction.figures] == [f"Fig. {number}" for number in range(3, 8)]
    shares = next(figure for figure in reproduction.figures if figure.number == "Fig. 7").panels
    for panel in shares:
        assert sum(series.y[0] or 0 for series in panel.series) == pytest.approx(1, abs=0.02)


def test_a_network_is_found_on_which_the_default_meets_a_speedup() -> None:
    graph = derived("googlenet", 4)
    network = matching_default(graph, 30, 20.0, 335e-6)
    row = rows_of(graph, network, 30, "together")["default"]
    assert speedup(graph, row, 30) == pytest.approx(20.0, rel=1e-3)
    assert one_of(6).bandwidth_bps == 10e9
    assert one_of(32).bandwidth_bps == 2.5e9


def test_prediction_draws_its_figures_and_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction, "measured_network", lambda setting, progress: network_file())
    monkeypatch.setattr(prediction, "derived", cheap_step)
    monkeypatch.setattr(prediction, "TIMED_STEPS", 60)
    monkeypatch.setattr(prediction, "WORKERS", (1, 2, 4, 6, 8))
    monkeypatch.setattr(prediction, "PAIRED_WORKERS", (1, 2))
    reproduction = made("prediction")
    drawn = {figure.number for figure in reproduction.figures}
    assert drawn == {f"Fig. {number}" for number in ("2", "3c", "10", "12", "21", "22", "23", "25")}
    missing = numbers(each.number for each in reproduction.missing)
    assert {"Table 1", "Figs. 13", "Fig. 20"} <= missing
    verdicts = {(row.figure, row.verdict) for row in reproduction.claims}
    assert {("Fig. 12", "reproduced"), ("Fig. 23", "reproduced"), ("Fig. 24", "reproduced")} <= verdicts
    assert {("Fig. 18", "not here"), ("Fig. 20", "not here")} <= verdicts


def test_streams_take_turns_as_the_paper_draws_them() -> None:
    sent = [(chunk.stream, round(chunk.units, 6)) for chunk in multiplexed()]
    first = [(stream, min(units, WINDOW)) for stream, units in STREAMS.items()]
    rest = [(stream, units - WINDOW) for stream, units in STREAMS.items() if units > WINDOW]
    assert sent == first + rest


def test_vgg_11_on_two_servers() -> None:
    larger, smaller = sorted(partition(), reverse=True)
    assert larger + smaller == pytest.approx(506.8, abs=0.1)
    assert len(agreements(2)) < 16
    assert all(agreements(2))


def test_contention_draws_its_figures_and_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "measured_network", lambda setting, progress: network_file())
    monkeypatch.setattr(contention, "derived", cheap_step)
    run_of = contention.run_of
    monkeypatch.setattr(
        contention, "run_of", lambda placement, policy, seed: run_of(placement, policy, seed, num_jobs=12)
    )
    reproduction = made("contention")
    assert [figure.number for figure in reproduction.figures] == ["Fig. 2", "Fig. 4", "Fig. 5", "Fig. 6"]
    assert [table.number for table in reproduction.tables] == ["Table III", "Table IV", "Table V"]


def test_what_gpus_do_adds_up_to_the_clusters_utilization() -> None:
    run = contention.run_of("lwf-1", "srsf-1", 0, num_jobs=12)
    assert sum(run.gpu_utilization) / 64 == pytest.approx(run.run.gpu_utilization)
    assert len(run.jct_s) == 12
    assert sum(run.jct_s) / 12 == pytest.approx(run.run.average_jct_s)


def test_ratios_are_of_means_and_pairs_of_the_same_job_set() -> None:
    runs = [
        contention.run_of(placement, policy, seed, num_jobs=12)
        for placement, policy in (
            *((place, "ada-srsf") for place in ("rand", "ff", "ls", "lwf-1", "lwf-2", "lwf-4", "lwf-8")),
            *(("lwf-1", policy) for policy in ("srsf-1", "srsf-2", "srsf-3")),
        )
        for seed in (0, 1)
    ]
    found = contention.ContentionMeasurements(runs=tuple(runs), steps=(), network=network_file())
    means = {
        placement: sum(each.run.average_jct_s for each in found.of(placement, "ada-srsf")) / 2
        for placement in ("rand", "lwf-1")
    }
    claim = next(each for each in CONTENTION if each.what.endswith("against RAND"))
    assert judged(claim, found).ours == pytest.approx(means["lwf-1"] / means["rand"] - 1)


def test_the_network_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def measure_network(**options: int) -> NetworkFile:
        calls.append(options)
        return network_file()

    loopback._measured.cache_clear()
    monkeypatch.setattr(loopback, "measure_network", measure_network)
    first = loopback.measured_network(TINY, None)
    assert loopback.measured_network(TINY, None) is first
    assert calls == [{"workers": 2, "repeats": 1, "concurrent": 8}]
    loopback._measured.cache_clear()
