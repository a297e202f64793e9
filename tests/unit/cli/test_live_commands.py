"""``hocket cluster run`` and its companions: the simulator's document of real jobs; one line for errors."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hocket.cli.cluster.served_manager import stopped_line
from hocket.cluster.jobs import JobSet
from hocket.cluster.jobs_file import read_jobs, write_jobs
from hocket.cluster.live.job_record import JobState, Record
from hocket.cluster.live.runnable_jobs import read_live_jobs
from tests.unit.cli.test_cluster import JOB_KEYS, KEYS, job
from tests.unit.cli.test_commands import hocket, in_tmp, refused
from tests.unit.cluster.live.clusters import live_job, warmed

__all__ = ["in_tmp"]

SETTING = ("--placement", "ls", "--policy", "srsf-1")
QUICK = {"iterations": 3, "forward_s": 0.02, "backward_s": 0.02, "size_bytes": 1e5}


@pytest.fixture
def jobs(in_tmp: Path) -> str:
    warmed()  # processes that we start find the kernels compiled
    write_jobs(JobSet(jobs=(job("wide", 2, **QUICK), job("late", 1, 0.2, **QUICK))), "jobs.json")
    return "jobs.json"


def test_run_prints_what_simulate_does(jobs: str) -> None:
    # In a process of its own: signals are for the main thread of one.
    command = [sys.executable, "-m", "hocket", "cluster", "run", jobs, *SETTING, "--servers", "2", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    # Progress shows on a machine that takes over a second to load the engine, and nothing else does.
    noted = [line for line in ran.stderr.splitlines() if not line.startswith("loading the engine: ")]
    assert (ran.returncode, noted) == (0, [])
    row = json.loads(ran.stdout)
    assert set(row) >= KEYS
    assert (row["placement"], row["policy"], row["servers"], row["gpus_per_server"]) == ("ls", "srsf-1", 2, 1)
    assert [each["id"] for each in row["jobs"]] == ["wide", "late"]
    for each in row["jobs"]:
        assert set(each) >= JOB_KEYS
        assert each["arrival_s"] <= each["start_s"] < each["finish_s"]
    wide, late = row["jobs"]
    assert sorted(wide["gpus"]) == [[0, 0], [1, 0]]
    assert wide["transferring_s"] > 0
    assert late["arrival_s"] - wide["arrival_s"] == pytest.approx(0.2, abs=0.01)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--servers", "1"), "needs 2 GPUs and the cluster has 1"),
        (("--lab", "l", "--engine", "ray"), "--lab runs processes"),
        (("--address", "10.0.0.1:6379"), "give --engine ray with it"),
        (("--listen", "nowhere"), "'nowhere' is not host:port"),
        (("--listen", "203.0.113.1:1", "--servers", "2"), "cannot listen at 203.0.113.1:1"),
        (("--policy", "best"), "policy 'best' is unknown"),
        (("--servers", "2", "--lost-after", "0s"), "--lost-after 0s is over at once"),
    ],
)
def test_what_cannot_be_run_is_refused(jobs: str, arguments: tuple[str, ...], said: str) -> None:
    assert said in refused(hocket("cluster", "run", jobs, *SETTING, *arguments))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"command": []}, "jobs[0]: command: is empty"),
        ({"command": ["a"], "step": "s", "plan": "p"}, "two programs"),
        ({"step": "s"}, "plan: is missing"),
        ({"command": "train.py"}, "jobs[0].command: expected `array | null`, got `str`"),
    ],
)
def test_programs_are_checked(jobs: str, changes: dict[str, object], said: str) -> None:
    document = json.loads(Path(jobs).read_text())
    document["jobs"][0] |= changes
    Path(jobs).write_text(json.dumps(document))
    assert said in refused(hocket("cluster", "run", jobs, *SETTING))


def test_commands_say_which_cluster_they_lack(jobs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOCKET_CLUSTER", raising=False)
    assert "which cluster?" in refused(hocket("cluster", "status"))
    # The one that is started may still compile: then a second one would be the wrong advice.
    none = refused(hocket("cluster", "submit", jobs, "--state", "."))
    assert "start one, hocket cluster serve --state ., or wait until it says 'manager at'" in none


@pytest.mark.slow
def test_a_cluster_is_served_used_and_goes_on(jobs: str) -> None:
    command = [sys.executable, "-m", "hocket", "cluster", "serve", *SETTING, "--servers", "2", "--state", "c"]
    long = job("long", 2, **QUICK | {"iterations": 40_000})
    write_jobs(JobSet(jobs=(long, job("next", 1, **QUICK))), "more.json")

    def served() -> subprocess.Popen[str]:
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        line = process.stderr.readline()
        while line.startswith("loading the engine"):  # said where that takes seconds
            line = process.stderr.readline()
        assert "page at http://127.0.0.1:" in line
        return process

    def status() -> dict[str, dict[str, object]]:
        return {
            each["id"]: each
            for each in json.loads(hocket("cluster", "status", "--state", "c", "--json").out)["jobs"]
        }

    def until(name: str, state: str) -> None:
        deadline = time.monotonic() + 60
        while status()[name]["state"] != state:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    manager = served()
    try:
        assert "wide: queued" in hocket("cluster", "submit", jobs, "--state", "c").err
        until("late", "finished")
        assert hocket("cluster", "submit", "more.json", "--state", "c").status == 0
        until("long", "running")
        for file in ("token", "contact.json"):
            assert stat.S_IMODE(os.stat(f"c/{file}").st_mode) == 0o600
        assert "long" in hocket("cluster", "status", "--state", "c").out
        assert "node1: no job is placed" in hocket("cluster", "drain", "node1", "--state", "c").err
        manager.send_signal(signal.SIGKILL)
        manager.wait(20)
        manager = served()
        assert status()["long"]["attempt"] == 1
        assert "long: cancelled" in hocket("cluster", "cancel", "long", "--state", "c").err
        manager.send_signal(signal.SIGKILL)
        manager.wait(20)
        manager = served()
        until("long", "cancelled")
        until("next", "finished")
        assert status()["next"]["gpus"] == [[0, 0]]
        manager.send_signal(signal.SIGTERM)
        _, said = manager.communicate(timeout=20)
        assert manager.returncode == 128 + signal.SIGTERM
        assert said.endswith("stopped: no job is left; the same command starts it again in c\n")
    finally:
        manager.kill()
        manager.wait(20)


def test_a_manager_that_is_stopped_says_what_becomes_of_its_jobs() -> None:
    states: tuple[JobState, ...] = ("finished", "running", "queued", "running")
    records = [
        Record(number=number, job=live_job(f"j{number}"), arrival_s=0.0, state=state)
        for number, state in enumerate(states, 1)
    ]
    kept = Path("shared")
    assert stopped_line(records, kept) == (
        "stopped: 3 jobs left, 2 running without it and 1 queued in shared;"
        " the same command goes on with them"
    )
    assert "1 job left, 1 running without it; the same" in stopped_line(records[:2], kept)
    assert stopped_line(records[:1], kept).startswith("stopped: no job is left; the same command starts it")
    assert "3 jobs ended and forgotten; with --state FOLDER" in stopped_line(records, None)
    assert "nothing of it is kept; with --state FOLDER" in stopped_line([], None)


def test_a_step_and_its_plan_say_what_a_job_takes(jobs: str) -> None:
    document = json.loads(Path(jobs).read_text())
    row = {key: document["jobs"][0][key] for key in ("id", "gpus", "iterations", "arrival_s", "memory_bytes")}
    golden = Path(__file__).parents[2] / "golden"
    row |= {"step": str(golden / "branches.step.json"), "plan": str(golden / "branches.ddp.plan.json")}
    Path(jobs).write_text(json.dumps({"format": document["format"], "jobs": [row]}))
    (simulated,), (live,) = read_jobs(jobs).jobs, read_live_jobs(jobs)
    assert simulated.batches
    assert not live.batches
    assert not live.is_traffic
    assert (live.forward_s, live.size_bytes) == (simulated.forward_s, simulated.size_bytes)


def test_batches_without_a_program_are_refused(jobs: str) -> None:
    document = json.loads(Path(jobs).read_text())
    job = document["jobs"][0]
    job["batches"] = [{"size_bytes": job["size_bytes"], "ready_s": job["backward_s"], "due_s": 0.0}]
    Path(jobs).write_text(json.dumps(document))
    assert "batches: are simulated only" in refused(hocket("cluster", "run", jobs, *SETTING))


@pytest.mark.slow
def test_no_rank_is_left_however_often_it_is_interrupted(jobs: str) -> None:
    script = (
        "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "open('new', 'w').write(str(os.getpid())); os.replace('new', 'begun'); time.sleep(300)"
    )
    document = json.loads(Path(jobs).read_text())
    document["jobs"] = [document["jobs"][1] | {"command": [sys.executable, "-c", script]}]
    Path(jobs).write_text(json.dumps(document))
    command = [sys.executable, "-m", "hocket", "cluster", "run", jobs, *SETTING]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as running:
        deadline = time.monotonic() + 60
        while not Path("begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for _ in range(2):
            running.send_signal(signal.SIGINT)
            time.sleep(1.5)  # two within a second are one
        _, said = running.communicate(timeout=60)
        assert running.returncode == 128 + signal.SIGINT
    assert b"stopped: 1 job ended and forgotten; with --state FOLDER" in said
    left = Path("/proc", Path("begun").read_text(), "cmdline")
    assert not left.exists() or not left.read_bytes()  # at most its parent has yet to hear of it
