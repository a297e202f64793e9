"""The parts of a step's time: what each moment is spent on, against sums by hand and moment by moment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hocket.interop.kineto.frameworks import every_collective
from hocket.interop.kineto.step_times import (
    OF_GRADIENTS,
    busy_s,
    collective_uses,
    mean_times,
    operation_uses,
    step_times,
)
from hocket.interop.kineto.traced_job import TracedJob, read_job
from hocket.interop.kineto.traced_operations import TracedStep
from tests.unit.interop.kinds import MIB, Training, steps, usual
from tests.unit.interop.test_kineto_exchange import IMPORTED, Make
from tests.unit.interop.traces import ddp
from tests.unit.interop.ways import fully_sharded, tensor_parallel


def job_of(document: object, folder: Path) -> TracedJob:
    path = folder / "trace.json"
    path.write_text(json.dumps(document))
    return read_job([path])


def test_the_parts_of_a_small_step(tmp_path: Path) -> None:
    times = step_times(job_of(ddp().document(), tmp_path).kept[0][1])
    assert times.elapsed_s == pytest.approx(1000e-6)
    assert times.computing_s == pytest.approx({"forward": 220e-6, "backward": 180e-6, "update": 50e-6})
    assert times.exposed_s == pytest.approx({OF_GRADIENTS: 200e-6})
    # Kernels at 1030, 1320 and 1705, launched until 1022, 1312 and 492 before.
    assert times.host_s == pytest.approx(267e-6 + 62e-6)
    assert times.waiting_s == pytest.approx(8e-6 + 8e-6 + 5e-6)


def by_moments(step: TracedStep) -> tuple[int, int, int]:
    """Microseconds of a step of computing, of collectives alone, and of nothing: looked at one by one."""
    computing = [o.gpu for o in step.operations if o.collective is None]
    sending = [collective.gpu for collective in every_collective(step)]
    found = [0, 0, 0]
    for at in range(int(step.from_us), int(step.until_us)):
        middle = at + 0.5
        if any(gpu.start_us < middle < gpu.end_us for gpu in computing):
            found[0] += 1
        elif any(gpu.start_us < middle < gpu.end_us for gpu in sending):
            found[1] += 1
        else:
            found[2] += 1
    return found[0], found[1], found[2]


@pytest.mark.parametrize("make", [row[1] for row in IMPORTED], ids=[row[0] for row in IMPORTED])
def test_every_moment_counts_once(make: Make, tmp_path: Path) -> None:
    for step in job_of(make(), tmp_path).kept[0][:1]:
        times = step_times(step)
        idle_s = times.host_s + times.waiting_s
        assert times.computed_s + times.communication_s + idle_s == pytest.approx(times.elapsed_s)
        expected = by_moments(step)
        assert (times.computed_s * 1e6, times.communication_s * 1e6, idle_s * 1e6) == pytest.approx(expected)
        assert busy_s(step) == pytest.approx(times.elapsed_s - idle_s)


def test_collectives_by_what_they_are_for(tmp_path: Path) -> None:
    job = job_of(steps(Training(), tensor_parallel), tmp_path)
    uses = collective_uses(job.samples, mean_times(job.samples))
    assert {use.name: (use.count, use.size_bytes) for use in uses} == {
        OF_GRADIENTS: (2, MIB),
        "all-reduces (group tp)": (2, 2 * 8 * 4096 * 4),
    }


def test_operations_are_counted_by_step(tmp_path: Path) -> None:
    uses = operation_uses(job_of(steps(Training(), usual), tmp_path).samples)
    assert [(use.name, use.count) for use in uses][:2] == [
        ("backward/AddmmBackward0", 4),
        ("forward/addmm", 4),
    ]
    assert uses[0].took_s == pytest.approx(800e-6)


def test_what_cannot_be_planned_has_its_times(tmp_path: Path) -> None:
    job = job_of(steps(Training(), fully_sharded), tmp_path)
    assert job.reason
    names = {use.name for use in collective_uses(job.samples, mean_times(job.samples))}
    assert names == {"all-gathers (group default_pg)", "reduce-scatters (group default_pg)"}
