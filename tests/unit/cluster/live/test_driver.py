"""The engine driven by what ranks say: in an emulated world it decides as the simulator does."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import hocket.cluster.engine.engine as engine
import hocket.cluster.live.driver as live
import hocket.cluster.live.engine_decisions as decisions
import hocket.cluster.live.placing_decisions as placing_decisions
import hocket.cluster.simulator.clock as clock
import hocket.cluster.simulator.preemption_clock as preemption_clock
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.live.driver import Driver
from hocket.cluster.simulator.simulate import simulate
from tests.unit.cluster.live.emulated_ranks import CHUNK, CLUSTER, World, ends_as_simulated, job


@pytest.mark.parametrize("startup_s", [0.0, 0.7])
@pytest.mark.parametrize("policy", ["srsf-1", "srsf-2", "ada-srsf", "srpt", "psrsf", "fifo"])
def test_exact_ranks_end_when_the_simulator_says(policy: str, startup_s: float) -> None:
    jobs = [
        job("wide", 6, iterations=4, startup_s=startup_s),
        job("pair", 2, 0.5, size_bytes=2e7, forward_s=0.3, startup_s=0.61 * startup_s),
        job("second pair", 2, 0.7, size_bytes=5e6, startup_s=0.37 * startup_s),
        job("alone", 1, 1.1, iterations=5, startup_s=startup_s),
        job("late", 4, 6.0, size_bytes=1.2e7, memory_bytes=7.0, startup_s=2 * startup_s),
    ]
    ends_as_simulated(World(jobs, policy), jobs)


@pytest.mark.parametrize("policy", ["srsf-1", "strict-fifo"])
def test_jobs_that_have_queued_for_long_hold_gpus_as_in_the_simulator(policy: str) -> None:
    small = [
        job(f"small{k}", 1 + k % 2, 1.0 + 1.3 * k, memory_bytes=6.0, iterations=2 + k % 3) for k in range(20)
    ]
    jobs = [job("first", 4, memory_bytes=6.0), job("wide", 6, 0.5, memory_bytes=6.0), *small]
    ends_as_simulated(World(jobs, policy, starvation_s=3.0, jobs_per_gpu=2), jobs)


@pytest.mark.parametrize("policy", ["srsf-1", "psrsf", "fair-share"])
def test_jobs_with_a_range_have_the_number_of_gpus_that_the_simulator_gives_them(policy: str) -> None:
    ranges = [
        job(
            f"j{k:02}", 2 + k % 5, 0.61 * k, memory_bytes=6.0, iterations=1 + k % 3, size_bytes=1e6 * (k % 4),
            gpus_min=1 + k % 2,
        )
        for k in range(14)
    ]  # fmt: skip
    world = World(ranges, policy, jobs_per_gpu=1)
    ends_as_simulated(world, ranges)
    numbers = [(each.fewest_gpus, len(world.gpus[each.id]), each.gpus) for each in ranges]
    assert any(fewest < num for fewest, num, _ in numbers)
    assert any(num < most for _, num, most in numbers)


def test_a_job_with_a_range_that_is_found_running_has_the_gpus_that_it_has() -> None:
    """It has done 6 iterations of two GPUs before its manager ended, of 4 x 10 iterations of one."""
    driver = Driver(CLUSTER, Scheduling(placement="ls", policy="srsf-1"))
    driver.add([job("a", 4, iterations=10, gpus_min=1)], [12], [False], [0])
    assert driver.progress_of["a"].iterations_done == 12
    driver.adopt("a", [4, 5], 1.0)
    progress = driver.progress_of["a"]
    assert (progress.gpus, progress.iterations, progress.iterations_done) == (2, 20, 6)
    for rank in range(2):
        driver.add_rank("a", rank, 9)
    for now_s in (2.0, 3.0):  # all but one are passed at once
        driver.decide(now_s)
    assert driver.iterations_done("a") == 9


@pytest.mark.parametrize(
    ("policy", "changes"),
    [
        ("srsf-1", {"quotas": {"alice": 3, "*": 4}}),
        ("srsf-1", {"quotas": {"alice": 3}, "starvation_s": 4.0}),
        ("fair-share", {}),
        ("fair-share", {"shares": {"alice": 3, "*": 2}, "quotas": {"bob": 3}}),
        ("fair-share", {"half_life_s": 2.0}),
    ],
)
def test_users_have_what_the_simulator_gives_them(policy: str, changes: dict[str, Any]) -> None:
    owned = [
        job(
            f"j{k:02}", 1 + k % 3, 0.37 * k, memory_bytes=6.0, iterations=1 + k % 4,
            user=("alice", "bob", "")[k * k % 3], priority=k % 5 // 4,
        )
        for k in range(24)
    ]  # fmt: skip
    ends_as_simulated(World(owned, policy, **changes), owned)


@pytest.mark.parametrize("jobs_per_gpu", [None, 1])
def test_jobs_leave_for_others_as_in_the_simulator(jobs_per_gpu: int | None) -> None:
    jobs = [
        job(
            f"j{k:02}", 1 + k * k % 4, 1.37 * k, memory_bytes=6.0, iterations=1 + 9 * (k % 3 == 0) + k % 4,
            checkpoint_s=None if k % 5 == 4 else 0.0,
        )
        for k in range(16)
    ]  # fmt: skip
    world = World(jobs, "srsf-requeue", jobs_per_gpu=jobs_per_gpu)
    ends_as_simulated(world, jobs)
    predicted = simulate(JobSet(jobs=tuple(jobs)), CLUSTER, world.scheduling).preemptions
    assert predicted is not None
    assert predicted.times.tolist() == [world.stops.get(each.id, (0,))[0] for each in jobs]
    assert predicted.times.sum() >= 3


@pytest.mark.parametrize("apart_s", [3.3, 6.1])
def test_jobs_with_a_range_leave_and_go_on_with_another_number_as_in_the_simulator(apart_s: float) -> None:
    jobs = [
        job(
            f"j{k:02}", 2 + k * k % 5, apart_s * k, memory_bytes=6.0,
            iterations=1 + 19 * (k % 3 == 0) + k % 4, gpus_min=1 + k % 2, checkpoint_s=0.0,
        )
        for k in range(16)
    ]  # fmt: skip
    world = World(jobs, "srsf-requeue", jobs_per_gpu=1)
    ends_as_simulated(world, jobs)
    assert sum(preempted for preempted, _, _ in world.stops.values()) >= 3
    assert sum(len(numbers) > 1 for numbers in world.numbers.values()) >= 2


@pytest.mark.parametrize(
    ("placement", "policy", "changes"),
    [
        ("ls", "srsf-1", {}),
        ("lwf-1", "psrsf", {}),
        ("blocks", "srsf-2", {"starvation_s": 9.0}),
        ("ls", "srsf-requeue", {}),
        ("lwf-1", "fair-share", {"quotas": {"*": 5}}),
    ],
)
def test_jobs_shrink_and_grow_as_in_the_simulator(
    placement: str, policy: str, changes: dict[str, Any]
) -> None:
    resizes = 0
    for apart_s, most in ((3.3, 5), (6.1, 6), (9.7, 4)):
        jobs = [
            job(
                f"j{k:02}", 2 + k * k % (most - 1), apart_s * k, memory_bytes=6.0,
                iterations=1 + 19 * (k % 3 == 0) + k % 4, gpus_min=1 + k % 2, user=("alice", "bob")[k % 2],
                checkpoint_s=None if k % 5 == 4 else 0.0,
            )
            for k in range(16)
        ]  # fmt: skip
        world = World(jobs, policy, placement=placement, jobs_per_gpu=1, resize=True, **changes)
        ends_as_simulated(world, jobs)
        predicted = simulate(JobSet(jobs=tuple(jobs)), CLUSTER, world.scheduling).preemptions
        assert predicted is not None
        stops = list(zip(predicted.times, predicted.shrunk, predicted.grown, strict=True))
        assert stops == [world.stops.get(each.id, (0, 0, 0)) for each in jobs]
        resizes += sum(shrunk + grown for _, shrunk, grown in stops)
    assert resizes >= 3


def test_what_users_have_had_counts_for_jobs_that_come_later() -> None:
    driver = Driver(CLUSTER, Scheduling(placement="ls", policy="fair-share", jobs_per_gpu=1))
    driver.set_attained({"alice": 8.0, "bob": 6.0}, 0.0)
    first = job("first", 6, user="carol")
    rest = [job(f"of {user}", 6, 1.0, user=user) for user in ("alice", "bob", "carol")]
    driver.add([first], [0], [False], [0])
    driver.arrive("first")
    driver.decide(0.0)
    driver.add(rest, [0] * 3, [False] * 3, range(1, 4))
    for each in rest:
        driver.arrive(each.id)
    driver.decide(1.0)
    # At 1.1 s Carol has had 6.6 GPU seconds: less than Alice, more than Bob.
    for now_s, ends, begins in ((1.1, "first", "bob"), (2.0, "of bob", "carol"), (3.0, "of carol", "alice")):
        driver.withdraw(ends, now_s)
        assert driver.decide(now_s).placements.keys() == {f"of {begins}"}


def test_the_simulator_and_the_manager_call_the_same_functions() -> None:
    called = vars(decisions) | vars(placing_decisions) | vars(live)
    assert called["end_task"] is engine.end_task  # the clock may end tasks of several workers at once
    ends = ("end_transfer", "stop_transfer", "finish_jobs")
    placing = ("place_queue", "end_placing", "choose_preemption", "preempt", "place_chosen", "save_and_leave")
    resizing = ("choose_shrinking", "go_on_with_fewer", "choose_growing", "go_on_with_more")
    simulated = vars(preemption_clock) | vars(clock)
    for name in (*ends, *placing, *resizing, "submit", "decide_transfers", "start_tasks"):
        assert called[name] is simulated[name]


def test_no_policy_is_decided_outside_of_the_engine() -> None:
    folder = Path(live.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and ".policies" in node.module:
                assert node.module == "hocket.cluster.engine.policies.named_policies", path
            if isinstance(node, ast.ImportFrom) and node.module and ".placement" in node.module:
                assert node.module == "hocket.cluster.engine.placement.named_placements", path
            # Nobody here looks at what a policy orders by, or names one to treat it in another way.
            assert not (isinstance(node, ast.Constant) and node.value == "key"), path


def driven(jobs: list[Job], policy: str = "srsf-1", free_running: bool = False, **done: int) -> Driver:
    driver = Driver(CLUSTER, Scheduling(placement="ls", policy=policy, chunk_bytes=CHUNK))
    driver.add(jobs, [done.get(each.id, 0) for each in jobs], [free_running] * len(jobs), range(len(jobs)))
    for each in jobs:
        driver.arrive(each.id)
    return driver


def test_jobs_that_come_later_change_nothing_of_those_that_are_there() -> None:
    driver = driven([job("a", 4), job("b", 6, memory_bytes=3.0)])
    driver.decide(0.0)
    before = {name: driver.stage(name) for name in driver.progress_of}
    state = driver.state
    gpus = [state.workers["gpu"][state.jobs[driver.progress_of[n].row]["first_worker"]] for n in ("a", "b")]
    driver.withdraw("a", 1.0)
    driver.add([job("c", 2, 2.0), job("d", 2, 2.0, memory_bytes=1.0)], [0, 0], [False, False], [2, 3])
    driver.arrive("c")
    assert driver.decide(2.0).placements.keys() == {"c"}
    driver.arrive("d")
    assert driver.decide(2.5).placements.keys() == {"d"}
    state = driver.state
    assert driver.stage("b") == before["b"] == "computing"
    assert state.workers["gpu"][state.jobs[driver.progress_of["b"].row]["first_worker"]] == gpus[1]
    for name in ("b", "c", "d"):
        driver.withdraw(name, 3.0)
    state = driver.state
    assert set(state.gpus["free"].tolist()) == {10}
    assert state.links["count"].tolist() == [0, 0, 0]
    assert (state.gpus["resident"] == -1).all()


def test_jobs_that_come_later_change_nothing_of_those_with_a_range() -> None:
    """A job that may have 1 to 4 GPUs and has 4 keeps them, and so does the one behind it in the state."""
    driver = driven([job("range", 4, gpus_min=1, memory_bytes=6.0), job("b", 2, 0.1, memory_bytes=6.0)])
    placed = driver.decide(0.0).placements
    assert {name: len(gpus) for name, gpus in placed.items()} == {"range": 4, "b": 2}
    driver.add([job("c", 1, 1.0, memory_bytes=6.0)], [0], [False], [2])
    driver.arrive("c")
    assert driver.decide(1.0).placements == {}
    for name, gpus in placed.items():
        assert driver.state.workers["gpu"][driver.workers(driver.progress_of[name])].tolist() == gpus
    driver.withdraw("range", 2.0)
    assert driver.decide(2.0).placements.keys() == {"c"}
    for name in ("b", "c"):
        driver.withdraw(name, 3.0)
    assert set(driver.state.gpus["free"].tolist()) == {10}
    assert (driver.state.gpus["resident"] == -1).all()


def test_a_rank_that_went_ahead_is_caught_up_with() -> None:
    driver = driven([job("a", 4, iterations=10)])
    driver.decide(0.0)
    for rank in range(4):
        driver.add_rank("a", rank, 7)
    driver.decide(1.0)
    assert driver.iterations_done("a") == 7
    for rank in range(4):
        driver.ask_compute("a", rank, 7, 0)
    assert sorted(driver.decide(1.1).compute) == [("a", rank) for rank in range(4)]


def test_a_job_that_begins_anew_is_not_held() -> None:
    driver = driven([job("a", 2, iterations=10, size_bytes=0.0)], a=8)
    driver.decide(0.0)
    for rank in range(2):
        driver.add_rank("a", rank, 0)
        driver.ask_compute("a", rank, 0, 0)
    assert len(driver.decide(0.1).compute) == 2


def test_a_drained_server_gets_nobody() -> None:
    driver = Driver(CLUSTER, Scheduling(placement="ls", policy="srsf-1"))
    driver.drain(0, on=True)
    driver.add([job("a", 1), job("b", 6, memory_bytes=1.0)], [0, 0], [False, False], [2, 3])
    driver.arrive("a")
    driver.arrive("b")
    placed = driver.decide(0.0).placements
    assert placed.keys() == {"a"}
    assert min(placed["a"]) >= 2
    driver.drain(0, on=False)
    assert driver.decide(1.0).placements.keys() == {"b"}


def test_a_job_waits_for_a_block_unless_none_will_have_room() -> None:
    """Of three servers the first two are a block for four GPUs, and the last one is too small."""
    driver = Driver(CLUSTER, Scheduling(placement="blocks", policy="srsf-1"))
    jobs = [job("a", 2, memory_bytes=9.0), job("b", 4, memory_bytes=9.0)]
    driver.add(jobs, [0, 0], [False, False], range(2))
    driver.arrive("a")
    assert driver.decide(0.0).placements["a"] == [0, 1]
    driver.arrive("b")
    assert not driver.decide(1.0).placements, "four GPUs are free, two of them beyond the block"
    driver.drain(1, on=True)
    assert not driver.decide(2.0).placements
    driver.drain(1, on=False)
    driver.drain(0, on=True)
    assert driver.decide(3.0).placements["b"] == [2, 3, 4, 5]


def test_programs_compute_while_they_transfer() -> None:
    driver = driven([job("a", 4)], free_running=True)
    driver.decide(0.0)
    for rank in range(4):
        driver.add_rank("a", rank, 0)
        driver.note_task_end("a", rank, 0, 1)
        driver.ask_compute("a", rank, 1, 0)
    driver.ask_transfer("a", 0, 8, 8, 0.1)
    actions = driver.decide(0.1)
    assert actions.transfer == ["a"]
    assert len(actions.compute) == 4
    driver.note_transfer_end("a", 0)
    driver.decide(0.2)
    assert driver.iterations_done("a") == 1


def test_programs_that_share_a_gpu_take_turns() -> None:
    driver = driven([job("a", 1), job("b", 6)], free_running=True)
    assert len(driver.decide(0.0).placements) == 2
    where = driver.state.workers["gpu"][driver.state.jobs[driver.progress_of["a"].row]["first_worker"]]
    driver.add_rank("a", 0, 0)
    driver.ask_compute("a", 0, 0, 0)
    for rank in range(6):
        driver.add_rank("b", rank, 0)
        driver.ask_compute("b", rank, 0, 0)
    allowed = driver.decide(0.1).compute
    mates = [("b", rank) for rank in range(6) if rank == where]
    assert ("a", 0) in allowed
    assert mates[0] not in allowed
    assert len(allowed) == 6
    driver.note_task_end("a", 0, 1, 1)
    assert driver.decide(0.2).compute == []  # what is left of "a" goes first
    driver.note_task_end("a", 0, 2, 1)
    assert driver.decide(0.3).compute == mates


@pytest.mark.parametrize("gpus", [1, 4])
def test_an_absence_of_any_length_is_caught_up_with_in_a_few_steps(
    monkeypatch: pytest.MonkeyPatch, gpus: int
) -> None:
    ended: list[int] = []
    end_task = decisions.end_task
    monkeypatch.setattr(decisions, "end_task", lambda *state: ended.append(end_task(*state)))
    driver = driven([job("a", gpus, iterations=10**6)])
    driver.decide(0.0)
    for rank in range(gpus):
        driver.add_rank("a", rank, 900_000)
    driver.decide(1.0)
    assert driver.iterations_done("a") == 900_000
    assert len(ended) == 2 * gpus


@pytest.mark.parametrize("gpus", [1, 4])
def test_iterations_that_are_passed_at_once_count_as_those_passed_one_by_one(
    monkeypatch: pytest.MonkeyPatch, gpus: int
) -> None:
    def caught_up() -> tuple[object, ...]:
        driver = driven([job("a", gpus, iterations=50), job("b", 2, iterations=50)])
        driver.decide(0.0)
        for rank in range(gpus):
            driver.add_rank("a", rank, 0)
            driver.note_task_end("a", rank, 0, 0)
        driver.decide(1.0)
        for rank in range(gpus):
            driver.add_rank("a", rank, 30)
        driver.decide(10.0)
        done, stage, sent = (
            driver.iterations_done("a"),
            driver.stage("a"),
            driver.state.jobs["bytes_sent"].tolist(),
        )
        for rank in range(gpus):
            driver.ask_compute("a", rank, 30, 1)
        allowed = driver.decide(11.0).compute
        return done, stage, sent, allowed, driver.withdraw("a", 12.0), driver.withdraw("b", 12.0)

    at_once = caught_up()
    assert at_once[0] == 30
    monkeypatch.setattr(decisions, "_skip_iterations", lambda *_: None)
    assert at_once == caught_up()


def test_rand_draws_as_in_the_simulator_whoever_has_come_and_gone() -> None:
    jobs = [job(f"j{k}", 2, 100.0 * k, memory_bytes=6.0) for k in range(6)]
    predicted = simulate(
        JobSet(jobs=tuple(jobs)), CLUSTER, Scheduling(placement="rand", policy="srsf-1", seed=3)
    )
    driver = Driver(CLUSTER, Scheduling(placement="rand", policy="srsf-1", seed=3))
    for place, each in enumerate(jobs):
        driver.add([each], [0], [False], [place])
        driver.arrive(each.id)
        gpus = driver.decide(100.0 * place).placements[each.id]
        assert [divmod(g, CLUSTER.gpus_per_server) for g in gpus] == list(predicted.gpus[place])
        driver.withdraw(each.id, 100.0 * place + 50.0)
    assert len(set(predicted.gpus)) > 1
