"""A day of a shared cluster in minutes, on a lab, while ranks, nodes and managers are killed at random.

HOCKET_TEST_SOAK in the environment says how many minutes 24 hours of jobs take, 1.5 by default.
HOCKET_TEST_SEED decides jobs and faults, 0 by default.
"""

from __future__ import annotations

import http.client
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from hocket.cluster.live.manager_address import contact_of
from hocket.cluster.live.manager_messages import AskStatus, ManagerAnswer
from hocket.lab import Lab
from tests.lab.conftest import processes
from tests.lab.soak.audit import Audit
from tests.lab.soak.cluster import GPUS_PER_NODE, TYPES, Soaked
from tests.lab.soak.faults import Faults
from tests.lab.soak.watching import Clients, Watcher, beside
from tests.lab.soak.work import day_of_jobs, rank_command
from tests.unit.cluster.live.clusters import warmed
from tests.unit.cluster.live.http_calls import pinned

MINUTES = float(os.environ.get("HOCKET_TEST_SOAK", "1.5"))
SEED = int(os.environ.get("HOCKET_TEST_SEED", "0"))
NODES = 4
_AFTER_S = 180.0  # until all that was submitted is over


@pytest.mark.long
@pytest.mark.timeout(60 * MINUTES + 600)
def test_a_day_of_kills_loses_no_job_and_gives_no_gpu_twice(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hocket.cluster.live.manager_address._CONNECT_S", 2.0)
    monkeypatch.setattr("hocket.cluster.live.manager_address._ANSWER_S", 4.0)
    warmed()  # what is compiled here managers load
    draw, length_s = random.Random(SEED), 60 * MINUTES
    gpus = [str(number) for number in draw.sample(range(64), NODES * GPUS_PER_NODE)]
    day = day_of_jobs(tmp_path, length_s, len(gpus), draw)
    with Lab(nodes=NODES, rate_bps=1e9, name=name) as lab:
        soaked = Soaked(tmp_path, lab, gpus)
        faults, clients, watcher = Faults(soaked, draw), Clients(soaked, day), Watcher(soaked)
        try:
            soaked.start()
            small = soaked.resident_bytes(), soaked.open_files()
            begin_s = time.monotonic()
            due = faults.schedule(length_s)
            with beside(lambda: clients.submit(begin_s), lambda: clients.cancel(begin_s), watcher.run) as (
                threads,
                errors,
            ):
                while time.monotonic() < begin_s + length_s and not errors:
                    soaked.check_running()
                    faults.look()
                    while due and time.monotonic() >= begin_s + due[0][0]:
                        due.pop(0)[1]()
                    time.sleep(0.05)
                faults.end()
                for thread in threads[:2]:
                    thread.join(60)
                _until_over(soaked)
                watcher.end()
                threads[2].join(60)
                assert not errors, errors
                assert not any(thread.is_alive() for thread in threads)
            took_s = time.monotonic() - begin_s
            large = soaked.resident_bytes(), soaked.open_files()
            metrics = _metrics(soaked)
            soaked.end(signal.SIGINT)
            assert soaked.processes() == {}
            assert processes(lab) == []
        finally:
            soaked.kill()
    audit = Audit(tmp_path, day, clients, faults.log)
    wrong = audit.run(watcher)
    with capsys.disabled():
        print(
            f"\nseed {SEED}, {took_s:.0f} s: {len(day)} jobs, {dict(audit.states())},"
            f" {len(clients.lines)} refused, {audit.attempts()} attempts, {audit.narrow()} of them with fewer"
            f" GPUs, {audit.preemptions()} preemptions, {audit.resizes()} resizes down and up,"
            f" {soaked.starts} managers, {dict(faults.log.counts)};"
            f" processes and status looked at {watcher.rounds} times;"
            f" manager {small[0] / 1e6:.0f} to {large[0] / 1e6:.0f} MB, {small[1]} to {large[1]} files"
        )
    assert wrong == []
    values = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(metrics)
        for sample in family.samples
    }
    assert {state: values["hocket_jobs", state] for state in audit.states()} == dict(audit.states())
    types = [TYPES[k * len(TYPES) // NODES] for k in range(NODES)]
    assert [values["hocket_gpus_used", f"node{k}", types[k]] for k in range(NODES)] == [0] * NODES
    assert audit.preemptions() > 0
    assert audit.narrow() > 0
    assert sum(audit.resizes()) > 0


def _metrics(soaked: Soaked) -> str:
    contact, certificate = contact_of(soaked.state), (soaked.state / "certificate.pem").read_bytes()
    connection = http.client.HTTPSConnection(contact.address, context=pinned(certificate), timeout=30)
    token = (soaked.state / "token").read_text()
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})
    found = connection.getresponse().read().decode()
    connection.close()
    return found


def _until_over(soaked: Soaked) -> None:
    deadline_s = time.monotonic() + _AFTER_S
    while True:
        answer = soaked.ask(AskStatus())
        assert isinstance(answer, ManagerAnswer), answer
        assert answer.status is not None
        left = [f"{job.id} {job.state}: {job.reason}" for job in answer.status.jobs if job.jct_s is None]
        if not left:
            return
        assert time.monotonic() < deadline_s, "\n".join(left)
        time.sleep(0.5)


@pytest.mark.parametrize(
    ("halves", "jobs", "doubles"), [((1, 1), "ab", 0), ((2, 1), "ab", 1), ((1, 1, 1), "abc", 1)]
)
def test_ranks_notice_a_gpu_that_others_hold(
    tmp_path: Path, halves: tuple[int, ...], jobs: str, doubles: int
) -> None:
    for folder in ("said", "gpus"):
        (tmp_path / folder).mkdir()
    told = {**os.environ, "CUDA_VISIBLE_DEVICES": "7,3", "LOCAL_RANK": "1", "RANK": "1"}
    started = []
    for job, half in zip(jobs, halves, strict=True):
        command = rank_command(tmp_path, job, half, 1.0, "ends")
        started.append(subprocess.Popen(command, env={**told, "HOCKET_GATE_ATTEMPT": f"{job}-1"}))
        said = tmp_path / "said" / job
        while not said.exists() or "begin" not in said.read_text():
            time.sleep(0.01)
    assert [process.wait(60) for process in started] == [0] * len(jobs)
    lines = [line for path in (tmp_path / "said").iterdir() for line in path.read_text().splitlines()]
    assert {line.split()[3] for line in lines} == {"3"}
    assert [line.split()[0] for line in lines].count("double") == doubles
