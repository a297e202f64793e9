"""What a made-up job's traces become: the step, the network and the step's time that they were made from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hocket.graph import load_step
from hocket.interop.kineto.kineto_step import import_kineto
from hocket.network import Network, load_network
from hocket.predictor.recorded_check import check_recorded
from tests.unit.cli.test_commands import hocket, refused
from tests.unit.interop.synthetic_jobs import Job, Layer

LAYERS = tuple(
    Layer(forward_us=200 + 30 * i, backward_us=400 + 60 * i, rows=512 * (1 + i % 4)) for i in range(8)
)
BUCKETS = ((7,), (6, 5), (4, 3, 2), (1, 0))


def job(ranks: int, **options: float) -> Job:
    costs = {"a_us": 40.0, "b_us_per_byte": 1.2e-4}
    return Job(layers=LAYERS, buckets=BUCKETS, update_us=150.0, ranks=ranks, **(costs | options))  # type: ignore[arg-type]


def written(made: Job, folder: Path, ranks: int | None = None) -> tuple[list[Path], float]:
    traces, step_us = made.traces()
    paths = []
    for rank, trace in enumerate(traces[:ranks]):
        document = trace.document()
        document["distributedInfo"]["world_size"] = made.ranks
        paths.append(folder / f"job.rank{rank}.json")
        paths[-1].write_text(json.dumps(document))
    return paths, step_us


JOBS = [
    *((ranks, {}) for ranks in (2, 4, 8)),
    (2, {"skew": 0.03, "noise": 0.01}),
    (4, {"skew": 0.02, "noise": 0.02}),
    (8, {"skew": 0.02, "noise": 0.02}),
    (8, {"a_us": 900.0, "b_us_per_byte": 1e-5, "skew": 0.02}),
    (4, {"a_us": 5.0, "b_us_per_byte": 6e-4, "noise": 0.02}),
]


@pytest.mark.parametrize(("ranks", "options"), JOBS)
def test_a_job_comes_back(ranks: int, options: dict[str, float], tmp_path: Path) -> None:
    made = job(ranks, **options)
    paths, step_us = written(made, tmp_path)
    graph, _ = import_kineto(paths)
    assert graph.parameter_bytes.sum() == 4 * sum(layer.elements for layer in LAYERS)
    assert graph.num_parameters == len(LAYERS)
    computing_us = 150 + sum(layer.forward_us + layer.backward_us for layer in LAYERS)
    middle = 1 + made.skew / 2
    assert graph.durations_s.sum(axis=0).mean() * 1e6 == pytest.approx(computing_us * middle, rel=0.01)
    recorded = graph.recorded
    assert recorded is not None
    assert recorded.workers == ranks
    assert [len(names) for names in recorded.reductions] == [len(bucket) for bucket in BUCKETS]
    reduction = recorded.network["allreduce"]  # type: ignore[index]
    for size in (1e6, 20e6):
        expected = made.a_us + made.b_us_per_byte * size
        assert (reduction["a_s"] + reduction["b_s_per_byte"] * size) * 1e6 == pytest.approx(
            expected, rel=0.03
        )
    assert recorded.step_s * 1e6 == pytest.approx(step_us, rel=0.02)
    network = network_of(recorded.network, ranks, tmp_path)
    check = check_recorded(graph, network)
    assert check is not None
    assert check.predicted_s * 1e6 == pytest.approx(step_us, rel=0.02)
    assert check.agrees


def network_of(document: object, workers: int, folder: Path) -> Network:
    (folder / "network.json").write_text(json.dumps(document))
    return load_network(folder / "network.json").network(workers)


def test_one_rank_of_several_is_fitted_by_its_lower_quarter(tmp_path: Path) -> None:
    paths, _ = written(job(4, skew=0.02, noise=0.01), tmp_path, ranks=1)
    graph, notes = import_kineto(paths)
    assert any(
        "the lower quarter of one rank's times, in which waiting for others may be left" in n for n in notes
    )
    assert graph.recorded is not None
    assert graph.recorded.workers == 4


def test_a_job_of_one_rank_has_no_network(tmp_path: Path) -> None:
    paths, step_us = written(job(1), tmp_path)
    graph, _ = import_kineto(paths)
    assert graph.recorded is None
    assert graph.durations_s.sum(axis=0).mean() * 1e6 == pytest.approx(step_us, rel=0.02)
    out = tmp_path / "network.json"
    ran = hocket("import", "kineto", str(paths[0]), "-o", str(tmp_path / "s.json"), "--network-out", str(out))
    assert "there is no network to write; leave --network-out out" in refused(ran)


def test_the_network_is_written_and_used_where_none_is_given(tmp_path: Path) -> None:
    paths, _ = written(job(4), tmp_path)
    step, out = tmp_path / "step.json", tmp_path / "network.json"
    ran = hocket("import", "kineto", *map(str, paths), "-o", str(step), "--network-out", str(out))
    assert "Recorded: 4 ranks, " in ran.err
    assert "; predicted for 4 ranks: " in ran.err
    assert load_network(out).allreduce is not None
    own = hocket("simulate", str(step), "--policy", "ddp", "--workers", "4", "--json")
    given = hocket(
        "simulate", str(step), "--policy", "ddp", "--workers", "4", "--network", str(out), "--json"
    )
    assert json.loads(own.out)["iteration_s"] == json.loads(given.out)["iteration_s"]
    said = hocket("predict", str(step), "--workers", "4,8", "--steps", "100")
    assert "as recorded with the step" in said.out
    assert "Recorded: 4 ranks, " in said.out
    typed = hocket("predict", str(step), "--workers", "4", "--steps", "100", "--bandwidth", "10Gbit/s")
    assert "as recorded" not in typed.out
    assert "(on the network that is given)" in typed.out


def test_a_prediction_that_misses_the_recorded_job_goes_no_further(tmp_path: Path) -> None:
    paths, _ = written(job(4), tmp_path)
    step = tmp_path / "step.json"
    hocket("import", "kineto", *map(str, paths), "-o", str(step))
    document = json.loads(step.read_text())
    document["recorded"]["step_s"] *= 1.5
    document["recorded"]["exposed_s"] = document["recorded"]["step_s"] / 2
    step.write_text(json.dumps(document))
    more = ("predict", str(step), "--workers", "8", "--steps", "100")
    line = refused(hocket(*more))
    assert "by exposed communication: recorded" in line
    assert "says nothing of 8 workers; describe the network, or give --anyway" in line
    assert hocket(*more, "--anyway").status == 0
    assert hocket("predict", str(step), "--workers", "4", "--steps", "100").status == 0
    assert load_step(step).recorded is not None
