"""``hocket diagnose``, and the end of an import: sentences that follow from traces, JSON, a page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.test_commands import hocket, refused
from tests.unit.interop.kinds import Training, steps, usual
from tests.unit.interop.synthetic_jobs import Job, Layer
from tests.unit.interop.traces import MAIN
from tests.unit.interop.ways import captured, fsdp

LAYERS = tuple(Layer(forward_us=200, backward_us=400, rows=1024) for _ in range(6))


def job_of(folder: Path, *, ranks: int = 2, written: int = 2, skew: float = 0.0) -> list[str]:
    """Files of a job whose all-reduces take as long as its backward pass."""
    buckets = ((5, 4), (3, 2), (1, 0))
    made = Job(
        layers=LAYERS, buckets=buckets, update_us=150, a_us=200, b_us_per_byte=1e-4, ranks=ranks, skew=skew
    )
    paths = []
    for rank, trace in enumerate(made.traces()[0][:written]):
        document = trace.document()
        document["distributedInfo"]["world_size"] = ranks
        paths.append(folder / f"job.rank{rank}.json")
        paths[-1].write_text(json.dumps(document))
    return list(map(str, paths))


def test_a_job_is_diagnosed_on_its_own_network(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    traces = job_of(tmp_path)
    ran = hocket("diagnose", *traces, "-o", str(page), "--budget", "100ms", "--json")
    assert ran.status == 0, ran.err
    found = json.loads(ran.out)
    times = found["times"]
    parts = sum(times["computing_s"].values()) + sum(times["exposed_s"].values())
    assert parts + times["host_s"] + times["waiting_s"] == pytest.approx(times["elapsed_s"])
    assert sum(times["computing_s"].values()) == pytest.approx(6 * 600e-6 + 150e-6, rel=0.01)
    assert found["ranks"] == 2
    assert [rank["rank"] for rank in found["per_rank"]] == [0, 1]
    assert found["recorded_step_s"] == pytest.approx(found["predicted_step_s"], rel=0.1)
    assert found["bound_s"] <= min(row["iteration_s"] for row in found["ranked"])
    shares = [row["efficiency"] for row in found["scaling"]]
    half = next((row["workers"] for row in found["scaling"] if row["efficiency"] <= 0.5), None)
    assert found["half_at"] == half
    assert shares == sorted(shares, reverse=True)
    text = page.read_text()
    assert "Where a step&#39;s time goes" in text or "Where a step's time goes" in text


def test_the_screen_begins_with_where_time_goes_and_ends_with_a_command(tmp_path: Path) -> None:
    traces = job_of(tmp_path, skew=0.2)
    ran = hocket("diagnose", *traces, "--budget", "100ms")
    lines = ran.out.splitlines()
    assert lines[0].startswith("Of ")
    assert ", the mean of 2 ranks: computing " in lines[0]
    assert "Rank 1 computes for " in ran.out
    assert "least possible with as many transfers" in ran.out or "No order of as many transfers" in ran.out
    assert "for equally fast ranks on links like those between the 2 recorded ranks, whose all-red" in ran.out
    assert lines[-1].startswith("Next: hocket import kineto ")


def test_one_gpu_has_times_alone_until_a_network_is_given(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(steps(Training(), lambda t: usual(t, None))))
    ran = hocket("diagnose", str(path))
    assert "depends on the network, which the trace does not show" in ran.out
    assert "--bandwidth 100Gbit/s" in ran.out.splitlines()[-1]
    ran = hocket("diagnose", str(path), "--bandwidth", "10Gbit/s", "--workers", "8", "--budget", "100ms")
    assert "on 8 workers at 10 Gbit/s" in ran.out


@pytest.mark.parametrize(("one", "reason"), [(fsdp, "is sharded by FSDP"), (captured, "by a CUDA graph")])
def test_a_job_that_cannot_be_planned_has_its_times_and_the_reason(
    one: object, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(steps(Training(), one)))  # type: ignore[arg-type]
    ran = hocket("diagnose", str(path), "-o", str(tmp_path / "page.html"))
    assert ran.status == 0
    assert reason in ran.out
    assert ran.out.startswith("Of ")
    assert (tmp_path / "page.html").is_file()


def waiting(trace: Training) -> None:
    """Gradients averaged by hand, the last of which waits for another rank."""
    trace.forward()
    trace.backward()
    for k, size in enumerate(trace.layers):
        trace.collective("allreduce", size, thread=MAIN, us=3000 if k == 3 else 150)
    trace.update()


def test_a_prediction_that_misses_the_job_says_nothing_of_other_ranks(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    document = steps(Training(layers=(400_000,) * 4), waiting)
    for event in document["traceEvents"]:
        if event["name"].startswith("ncclDevKernel"):
            event["args"]["Group size"] = 2
    path.write_text(json.dumps(document))
    ran = hocket("diagnose", str(path), "--budget", "100ms")
    assert "misses the recorded job, so nothing is said of other numbers of ranks" in ran.out
    assert "Best of " in ran.out
    ran = hocket("diagnose", str(path), "--budget", "100ms", "--workers", "64")
    assert "misses the recorded job, so nothing is said of other numbers of ranks" in ran.out
    assert "Best of " not in ran.out
    assert "64" not in ran.out.split("Next:")[0]


def test_a_trace_without_steps_is_not_called_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(steps(Training(), Training.forward, marked=False)))
    ran = hocket("diagnose", str(path))
    assert ran.out.startswith("Of the 1.2")
    assert "of the whole trace, in which neither profiler.step() nor an optimizer's step says" in ran.out


def test_an_import_ends_with_what_to_do(tmp_path: Path) -> None:
    step = tmp_path / "step.json"
    ran = hocket("import", "kineto", *job_of(tmp_path), "-o", str(step))
    lines = ran.err.splitlines()
    begin = next(k for k, line in enumerate(lines) if line.startswith("Of "))
    assert any(line.startswith("Recorded: 2 ranks, ") for line in lines[begin:])
    assert lines[-1].startswith(f"Next: hocket tune {step}; as a page: hocket diagnose ")


def test_a_page_over_a_trace_is_refused(tmp_path: Path) -> None:
    traces = job_of(tmp_path)
    refused(hocket("diagnose", *traces, "-o", traces[0]))
