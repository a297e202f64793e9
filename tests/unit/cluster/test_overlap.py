"""Jobs whose transfers overlap their computing: worked out by hand, and from steps and plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.placement.earliest import exposed_ticks
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.engine.state import make_state
from hocket.cluster.jobs import Batch, Job, JobSet
from hocket.cluster.jobs_file import read_jobs, write_jobs
from hocket.cluster.overlap import lower_step
from hocket.cluster.simulator.simulate import ClusterRun, TimelineWindow, simulate
from hocket.errors import FormatError
from hocket.graph import Plan, Reduction, StepGraph, save_plan, save_step
from hocket.graph.io import plan_document, step_document
from tests.strategies import operation, parameter, step

ROW = {"id": "j0", "gpus": 2, "iterations": 3, "arrival_s": 0.0, "memory_bytes": 1e9}


def overlapping(name: str, *batches: tuple[float, float, float], **changes: Any) -> Job:
    """One second forward, two backward; batches: GB, seconds until complete, seconds until due."""
    found = tuple(Batch(size_bytes=size * 1e9, ready_s=ready, due_s=due) for size, ready, due in batches)
    fields: dict[str, Any] = {
        **{"id": name, "model": "toy", "gpus": 2, "iterations": 4, "arrival_s": 0.0, "memory_bytes": 1e9},
        **{"forward_s": 1.0, "backward_s": 2.0},
        "size_bytes": sum(batch.size_bytes for batch in found),
        "batches": found,
    }
    return Job(**fields | changes)


def run(*jobs: Job, policy: str = "srsf-1", record: bool = False, per_server: int = 1) -> ClusterRun:
    """On two servers where a GB takes a second."""
    cluster = Cluster(num_servers=2, gpus_per_server=per_server, startup_s=0.0, per_byte_s=1e-9)
    return simulate(
        JobSet(jobs=jobs),
        cluster,
        Scheduling(placement="ff", policy=policy),
        record=TimelineWindow() if record else None,
    )


def test_what_fits_beside_computing_costs_nothing_but_at_the_end() -> None:
    # Complete in the middle of the backward pass, a second before it ends, and due at the beginning.
    one = run(overlapping("a", (1.0, 2.0, 0.0)))
    assert one.finish_s[0] == 12.0
    assert one.transferring_s[0] == one.network_wait_s[0] == 0.0


def test_a_batch_that_is_due_later_travels_beside_the_next_forward_pass() -> None:
    # 3 to 4 s, while the next iteration computes 0 to 1 s of its own; the last one is waited for.
    one = run(overlapping("a", (1.0, 3.0, 1.0)))
    assert one.finish_s[0] == 13.0
    assert one.transferring_s[0] == 1.0


def test_computing_pauses_until_what_it_needs_has_arrived() -> None:
    # Two seconds from 3 s on, due at 0.5 s: computing pauses for a second and a half each time.
    one = run(overlapping("a", (2.0, 3.0, 0.5)))
    assert one.finish_s[0] == 4 * 3 + 3 * 1.5 + 2.0
    assert one.transferring_s[0] == 3 * 1.5 + 2.0
    assert one.computing_s[0] == 12.0
    assert one.gpu_wait_s[0] == 0.0


def test_batches_travel_in_their_order() -> None:
    # The second is complete first, and has to wait for the first all the same.
    one = run(overlapping("a", (0.5, 3.0, 0.0), (0.5, 1.5, 0.0), iterations=2))
    assert one.finish_s[0] == 2 * 4.0


def test_inside_a_server_batches_do_not_matter() -> None:
    one = run(overlapping("a", (5.0, 3.0, 0.0)), per_server=2)
    assert one.finish_s[0] == 12.0


def test_whoever_waits_in_the_middle_of_a_task_leaves_the_gpu() -> None:
    """a waits from 3.5 to 5 s, in the middle of its forward pass; b has its GPU until its task ends."""
    short = Job(
        **{"id": "b", "model": "toy", "gpus": 1, "iterations": 1, "arrival_s": 3.2, "memory_bytes": 1e9},
        **{"forward_s": 1.7, "backward_s": 0.3, "size_bytes": 0.0},
    )
    both = run(overlapping("a", (2.0, 3.0, 0.5), iterations=2), short, policy="fifo")
    assert both.start_s[1] == pytest.approx(3.2)
    # b: forward 3.5 to 5.2 s; a has been ready since 5 s and goes on then, b's backward waits for a's task.
    assert both.finish_s.tolist() == pytest.approx([5.2 + 2.5 + 2.0, 5.2 + 2.5 + 0.3])
    assert both.gpu_wait_s[0] == pytest.approx(0.2)


def test_two_jobs_send_their_batches_in_turns() -> None:
    """Of two alike jobs each batch is admitted by itself, so one's second waits for the other's first."""
    jobs = [overlapping(name, (1.0, 2.0, 0.0), (1.0, 3.0, 0.0), iterations=1) for name in ("a", "b")]
    both = run(*jobs, per_server=1, policy="srsf-1")
    # a computes 0 to 1 and, since it goes first, 1 to 3 s, sends from 2 s on; b computes from 3 on.
    assert both.finish_s.tolist() == [4.0, 7.0]


def test_earliest_counts_what_sticks_out_of_computing_where_links_are_shared() -> None:
    """0.8 s from 2 s on, beside computing until 3 s: nothing sticks out alone, but where it takes longer."""
    cluster = Cluster(num_servers=2, gpus_per_server=1, startup_s=0.0, per_byte_s=1e-9)
    jobs = JobSet(jobs=(overlapping("a", (0.8, 2.0, 0.0)), overlapping("b", size_bytes=0.8e9)))
    state, _, tick_s = make_state(jobs, cluster, Scheduling(placement="earliest", policy="srsf-1"))

    def exposed_s(j: int, slowdown: float) -> float:
        ticks: float = exposed_ticks(state.jobs, state.segments, state.sites.batch_ticks, j, slowdown)
        return ticks * tick_s

    assert state.jobs[0]["reduce"] == 0
    assert [exposed_s(0, times) for times in (1.0, 2.0, 5.0)] == pytest.approx([0.0, 0.6, 3.0])
    # Without batches all of it does, however long it takes.
    assert [exposed_s(1, times) for times in (1.0, 2.0, 5.0)] == pytest.approx([0.8, 1.6, 4.0])


def test_alone_a_job_jumps_over_iterations_that_repeat_themselves() -> None:
    one = run(overlapping("a", (2.0, 3.0, 0.5), iterations=1000))
    assert one.finish_s[0] == pytest.approx(1000 * 3 + 999 * 1.5 + 2.0, abs=1e-9)
    assert one.transferring_s[0] == pytest.approx(999 * 1.5 + 2.0, abs=1e-9)
    assert one.events < 50


@pytest.mark.parametrize("policy", ["srsf-1", "kway", "psrsf", "srpt", "tiresias"])
def test_a_jump_ends_before_somebody_arrives(policy: str) -> None:
    """A recorded run passes all events. One arrival is in the middle of an iteration, one where it begins."""
    jobs = [
        overlapping("a", (2.0, 3.0, 0.5), iterations=400),
        overlapping("b", (0.5, 2.0, 0.0), (0.4, 3.0, 0.7), iterations=20, arrival_s=3.0 + 50 * 4.5),
        overlapping("c", (1.5, 2.5, 0.0), iterations=50, arrival_s=1000.1),
    ]
    jumping, recorded = (run(*jobs, policy=policy, record=record) for record in (False, True))
    assert jumping.finish_s.tolist() == recorded.finish_s.tolist()
    for part in ("gpu_wait_s", "network_wait_s", "transferring_s"):
        assert getattr(jumping, part) == pytest.approx(getattr(recorded, part), abs=1e-9)
    assert jumping.events < recorded.events / 2


def test_spans_show_segments_and_batches() -> None:
    one = run(overlapping("a", (1.0, 2.0, 0.0), iterations=2), record=True)
    assert one.timeline is not None
    backward = [span for span in one.timeline.spans if span.kind == "backward"]
    assert sum(span.end_s - span.start_s for span in backward) == pytest.approx(2 * 2 * 2.0)
    assert [(span.start_s, span.end_s) for span in one.timeline.spans if span.kind == "reduce"] == [
        (2.0, 3.0),
        (2.0, 3.0),
        (5.0, 6.0),
        (5.0, 6.0),
    ]


def chain() -> StepGraph:
    """Two layers; the first one's gradient is complete last."""
    return step(
        [parameter("low", 1000), parameter("high", 3000)],
        [
            operation("f low", 1.0, reads=["low"]),
            operation("f high", [1.0, 3.0], inputs=["f low"], reads=["high"]),
            operation("b high", 2.0, inputs=["f high"], produces=["high"], phase="backward"),
            operation("b low", 3.0, inputs=["b high"], produces=["low"], phase="backward"),
            operation("u high", 0.5, inputs=["b high"], reads=["high"], phase="update"),
        ],
    )


def plan(*reductions: Reduction, **changes: Any) -> Plan:
    return Plan(
        policy="drawn",
        model="toy",
        architecture="allreduce",
        reductions=reductions,
        compute_order=None,
        **changes,
    )


FORWARD = plan(
    Reduction(parameters=("high",), window="forward"), Reduction(parameters=("low",), window="backward")
)


def test_a_step_and_its_plan_are_batches() -> None:
    """Mean durations; an update counts with the operation before which it has to run."""
    found = lower_step(chain(), FORWARD)
    assert (found["forward_s"], found["backward_s"], found["size_bytes"]) == (3.5, 5.0, 4000.0)
    assert found["batches"] == (
        Batch(size_bytes=3000.0, ready_s=5.5, due_s=1.0),
        Batch(size_bytes=1000.0, ready_s=8.5, due_s=0.0),
    )
    whole = lower_step(chain(), plan(Reduction(parameters=("low", "high"), window="forward")))
    assert whole["batches"] == (Batch(size_bytes=4000.0, ready_s=8.5, due_s=0.0),)
    sliced = plan(
        Reduction(parameters=("high",), slice=(0, 1, 4), window="forward"),
        Reduction(parameters=("low",)),
        Reduction(parameters=("high",), slice=(1, 4, 4)),
        issue="ready",
    )
    batches = lower_step(chain(), sliced)["batches"]
    assert [(batch.size_bytes, batch.ready_s, batch.due_s) for batch in batches] == [
        (750.0, 5.5, 1.0),
        (2250.0, 5.5, 0.0),
        (1000.0, 8.5, 0.0),
    ]


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text(json.dumps({"format": "hocket.jobs/1", "jobs": rows}))
    return path


def test_jobs_carry_or_name_steps_and_plans(tmp_path: Path) -> None:
    (tmp_path / "steps").mkdir()
    save_step(chain(), tmp_path / "steps" / "step.json")
    save_plan(FORWARD, tmp_path / "plan.json")
    named = ROW | {"step": "steps/step.json", "plan": "plan.json"}
    carried = ROW | {"id": "j1", "step": step_document(chain()), "plan": plan_document(FORWARD)}
    jobs = read_jobs(write(tmp_path / "jobs.json", named, carried, named | {"id": "j2", "model": "mine"}))
    first, second, third = jobs.jobs
    assert first.batches == second.batches == lower_step(chain(), FORWARD)["batches"]
    assert (first.model, third.model) == ("toy", "mine")
    write_jobs(jobs, tmp_path / "light.json")
    assert read_jobs(tmp_path / "light.json") == jobs
    light = json.loads((tmp_path / "light.json").read_text())["jobs"][0]
    assert light["batches"][0] == {"size_bytes": 3000.0, "ready_s": 5.5, "due_s": 1.0}
    assert "step" not in light


def test_plans_that_no_job_can_run_are_refused(tmp_path: Path) -> None:
    graph = chain()
    ps = msgspec.structs.replace(FORWARD, architecture="ps", reductions=())
    untrained = step([parameter("low", 1)], [operation("f", 1.0, reads=["low"])])
    for target, of, rule in (
        (graph, plan(Reduction(parameters=("low",))), "'high' is missing"),
        (graph, ps, "pulls"),
        (untrained, plan(), "reductions: is empty"),
    ):
        with pytest.raises(FormatError, match=rule):
            lower_step(target, of)
    save_step(graph, tmp_path / "step.json")
    for row, message in (
        ({"step": "step.json"}, "jobs[0].plan: is missing beside step; give both, or neither"),
        ({"plan": "plan.json"}, "jobs[0].step: is missing beside plan"),
        ({"step": "step.json", "plan": "absent.json"}, "absent.json: cannot be read"),
        ({"step": "st\0ep.json", "plan": "plan.json"}, "ep.json: cannot be read: embedded null byte"),
        ({"step": "step.json", "plan": {"policy": 5}}, "jobs[0].plan"),
        ({"step": {"format": "hocket.step/2"}, "plan": "p"}, "jobs[0].step: format: 'hocket.step/2' is not"),
        ({"step": "step.json", "plan": {"policy": "p"}}, "jobs[0].plan: object missing required field `"),
        ({"step": "step.json", "plan": "p", "forward_s": 1.0}, "jobs[0].forward_s: is what the step and"),
        ({}, "jobs[0]: object missing required field `model`"),
    ):
        with pytest.raises(FormatError) as refused:
            read_jobs(write(tmp_path / "jobs.json", ROW | row))
        assert message in str(refused.value)


@pytest.mark.parametrize(
    ("batch", "rule"),
    [
        ({"ready_s": 0.0, "due_s": 0.0}, "batches[0].ready_s: 0.0 is not above 0 and up to"),
        ({"ready_s": 3.1}, "batches[0].ready_s: 3.1 is not above 0 and up to forward_s + backward_s = 3"),
        ({"due_s": 3.0}, "batches[0].due_s: 3.0 is not from 0 to below"),
        ({"ready_s": 1.0, "due_s": 2.0}, "batches[0].due_s: 2.0 is after ready_s 1.0"),
        ({"size_bytes": -1.0}, "batches[0].size_bytes: -1.0 is not"),
        ({"size_bytes": 5.0}, "batches: have 5 bytes and size_bytes is 4; make them agree"),
    ],
)
def test_batches_that_cannot_be_are_refused(batch: dict[str, float], rule: str) -> None:
    job = overlapping("a", (4e-9, 3.0, 0.0))
    changed = msgspec.structs.replace(job.batches[0], **batch)
    with pytest.raises(FormatError) as refused:
        JobSet(jobs=(msgspec.structs.replace(job, size_bytes=4.0, batches=(changed,)),))
    assert rule in str(refused.value)
