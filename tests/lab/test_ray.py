"""Ray on a lab: a Ray node in each of its nodes, where the ranks of jobs run; one that ends loses no job."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from hocket.cluster.live.database import Database
from hocket.lab import Lab, LabNode
from hocket.launch.traffic import kept_iterations

pytest.importorskip("ray")

GUIDES = Path(__file__).parents[2] / "docs" / "guides"
PORT = 6379
# Whoever reaches a Ray node's port runs code there, unless it asks for a token.
ENVIRONMENT = {
    **{"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32), "RAY_USAGE_STATS_ENABLED": "0"},
    "OMP_NUM_THREADS": "1",
}
WHERE = "env > $HOCKET_CHECKPOINT/told$RANK && ip -o -4 address show dev eth0 > $HOCKET_CHECKPOINT/$RANK"
ALIVE = """import ray, sys, time
ray.init(sys.argv[1], logging_level='ERROR', log_to_driver=False)
while sum(node['Alive'] for node in ray.nodes()) < int(sys.argv[2]): time.sleep(0.2)"""


def start_ray(lab: Lab, node: LabNode, folder: Path) -> subprocess.Popen[bytes]:
    head = node.index == 0
    place = (
        ("--head", "--port", str(PORT), "--include-dashboard", "false") if head else ("--address", at(lab))
    )
    command = [
        *(str(Path(sys.executable).with_name("ray")), "start", *place, "--node-ip-address", node.address),
        *("--num-cpus", "1", "--object-store-memory", str(80 << 20), "--temp-dir", str(folder / node.name)),
    ]
    # Into a file: what it leaves running would hold a pipe open.
    with open(folder / f"{node.name}.out", "w") as said:
        return lab.popen(node, command, ENVIRONMENT, stdout=said, stderr=said)


def well(started: Sequence[subprocess.Popen[bytes]], folder: Path) -> None:
    for process in started:
        if process.wait(100):
            raise AssertionError([path.read_text() for path in folder.glob("*.out")])


def at(lab: Lab) -> str:
    return f"{lab.nodes[0].address}:{PORT}"


def until(due: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 100
    while not due():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_jobs_run_on_ray_nodes_of_a_lab_and_outlive_one(name: str, folder: Path) -> None:
    times = {"forward_s": 0.02, "backward_s": 0.04, "size_bytes": 4e5, "memory_bytes": 1e10, "model": "m"}
    where = {"id": "where", "gpus": 3, "iterations": 1, "arrival_s": 0.0, "command": ["sh", "-c", WHERE]}
    pair = {"id": "pair", "gpus": 2, "iterations": 60, "arrival_s": 0.5}
    jobs = [where | times, pair | times]
    (folder / "jobs.json").write_text(json.dumps({"format": "hocket.jobs/1", "jobs": jobs}))
    state = folder / "c"
    command = [
        *(sys.executable, "-m", "hocket", "cluster", "run", str(folder / "jobs.json"), "--placement", "ls"),
        *("--policy", "srpt", "--engine", "ray", "--lost-after", "3s", "--restarts", "0", "--json"),
        *("--state", str(state)),
    ]
    with Lab(nodes=3, rate_bps=250e6, name=name) as lab:
        first, *others = lab.nodes
        well([start_ray(lab, first, folder)], folder)
        well([start_ray(lab, node, folder) for node in others], folder)
        well([lab.popen(first, [sys.executable, "-c", ALIVE, at(lab), "3"], ENVIRONMENT)], folder)
        manager = lab.popen(
            first,
            [*command, "--address", at(lab)],
            ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        kept = state / "jobs" / "2" / "iterations"
        until(
            lambda: (
                manager.poll() is not None or (kept.exists() and kept_iterations(kept.read_text(), 2) >= 5)
            )
        )
        assert manager.poll() is None, manager.communicate()
        # All that is in the second node ends, as when its machine does; the first one is the manager's.
        for pid in lab.pids()["node1"]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        said, errors = manager.communicate(timeout=100)
    assert manager.returncode == 0, errors
    assert {job["id"]: sorted(server for server, _ in job["gpus"]) for job in json.loads(said)["jobs"]} == {
        "where": [0, 1, 2],
        "pair": [0, 2],
    }
    seen = [(state / "jobs" / "1" / str(rank)).read_text() for rank in range(3)]
    assert {re.findall(r"10\.77\.0\.\d+", line)[0] for line in seen} == {n.address for n in lab.nodes}
    told = [(state / "jobs" / "1" / f"told{rank}").read_text() for rank in range(3)]
    assert not any(ENVIRONMENT["RAY_AUTH_TOKEN"] in each for each in told)
    database = Database(state)
    one, two = database.jobs()
    database.close()
    assert (one.attempt, one.lost_attempts) == (1, 0)
    assert (two.attempt, two.lost_attempts) == (2, 1)


class Guided:
    """Commands of a guide in nodes of a lab, in ``folder``; ``changes``: what stands for what there."""

    def __init__(self, lab: Lab, folder: Path, page: str, changes: Mapping[str, str]) -> None:
        self._lab, self._folder = lab, folder
        text = (GUIDES / page).read_text()
        for told, here in changes.items():
            assert told in text
            text = text.replace(told, here)
        titled = r'^```text title="([^"]+)"\n(.*?)^```'
        self.blocks = dict(re.findall(titled, text, re.DOTALL | re.MULTILINE))

    def start(self, code: str, node: int = 0) -> subprocess.Popen[str]:
        """Start commands in a node; they print into a file, as what they leave would hold a pipe open."""
        place = self._folder / f"node{node}"
        place.mkdir(exist_ok=True)
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        told = {"PATH": path, "RAY_TMPDIR": str(place), "RAY_USAGE_STATS_ENABLED": "0"}
        with open(self._folder / "said.txt", "a") as said:
            return self._lab.popen(
                self._lab.nodes[node],
                ["bash", "-euc", code],
                told,
                cwd=self._folder,
                text=True,
                stdout=said,
                stderr=said,
            )

    def run(self, code: str, node: int = 0) -> list[str]:
        """Run commands in a node; all lines so far."""
        assert self.start(code, node).wait(200) == 0, self.said()
        return self.said()

    @contextlib.contextmanager
    def serving(self, code: str, state: str) -> Iterator[None]:
        """A manager that these commands end in, until it is stopped by Ctrl-C."""
        manager = self.start(code)
        until(lambda: manager.poll() is not None or (self._folder / state / "contact.json").exists())
        assert manager.poll() is None, self.said()
        yield
        os.killpg(manager.pid, signal.SIGINT)
        manager.wait(100)

    def said(self) -> list[str]:
        """The lines that were printed so far."""
        return (self._folder / "said.txt").read_text().splitlines()


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_commands_for_one_machine_run(name: str, folder: Path) -> None:
    """In a node of a lab, where nobody else has the port that the page names."""
    with Lab(nodes=2, rate_bps=1e9, name=name) as lab:
        guided = Guided(lab, folder, "cluster-on-ray.md", {})
        with guided.serving(guided.blocks["on one machine"], "on-ray"):
            said = guided.run(guided.blocks["in another shell"])
    assert {f"rank {rank} may use GPUs 0,1" for rank in (0, 1)} <= {line.partition("] ")[2] for line in said}


@pytest.mark.long
@pytest.mark.timeout(400)
def test_the_commands_for_two_machines_run(name: str, folder: Path) -> None:
    times = {"forward_s": 1.0, "backward_s": 1.0, "size_bytes": 0.0, "memory_bytes": 1e10, "model": "m"}
    where = {
        "id": "where",
        "gpus": 2,
        "iterations": 1,
        "arrival_s": 0.0,
        "command": ["sh", "-c", "hostname -I"],
    }
    (folder / "where.json").write_text(json.dumps({"format": "hocket.jobs/1", "jobs": [where | times]}))
    with Lab(nodes=2, rate_bps=1e9, name=name) as lab:
        changes = {"10.0.0.5": lab.nodes[0].address, "RAY_AUTH_TOKEN=...": f"RAY_AUTH_TOKEN={'0f' * 32}"}
        guided = Guided(lab, folder, "cluster.md", changes)
        *begin, serve = guided.blocks["first machine"].splitlines()
        guided.run("\n".join(begin))
        guided.run(guided.blocks["second machine, before the last line"], node=1)
        with guided.serving(f"{begin[0]}\n{serve}", "shared"):
            guided.run("hocket cluster submit --state shared where.json")
            said = guided.run(
                "for rank in 0 1; do hocket cluster logs --state shared where --rank $rank --follow; done"
            )
    assert {node.address for node in lab.nodes} <= {line.split()[-1] for line in said if line}
