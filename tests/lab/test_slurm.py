"""The guide's commands inside a Slurm job, on a Slurm of two nodes of a lab, its accounting included."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from hocket.lab import Lab
from tests.lab.slurm import GPUS, lacking, slurm_on, until

pytest.importorskip("ray")

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "cluster-on-ray.md"
BLOCKS = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', GUIDE.read_text(), re.DOTALL | re.MULTILINE))
WHERE = "echo $(hostname -I) $CUDA_VISIBLE_DEVICES"
# Ends in the attempt after the one that it was cut off in.
KEPT = 'cd "$HOCKET_CHECKPOINT"; [ -e kept ] && exec echo goes on; touch kept; echo began; sleep 1000'
TIMES = {"model": "m", "arrival_s": 0, "forward_s": 0.05, "backward_s": 0.05, "size_bytes": 4e5}


def job_set() -> str:
    where = {"id": "where", "gpus": 2 * GPUS, "iterations": 1, "command": ["sh", "-c", WHERE]}
    pair = {"id": "pair", "gpus": 2, "iterations": 5}
    kept = {"id": "kept", "gpus": 1, "iterations": 1, "command": ["sh", "-c", KEPT]}
    jobs = [each | TIMES | {"memory_bytes": 1e9} for each in (where, pair, kept)]
    return json.dumps({"format": "hocket.jobs/1", "jobs": jobs})


class LoginNode:
    """A shell on the second node, with Slurm's commands and Hocket's."""

    def __init__(self, lab: Lab, folder: Path, slurm: Mapping[str, str]) -> None:
        self._lab, self._folder = lab, folder
        self._told = {
            **slurm,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
        }

    def run(self, code: str) -> str:
        """Run commands; what they print."""
        shell = self._lab.popen(
            self._lab.nodes[1],
            ["bash", "-euc", code],
            self._told,
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said, errors = shell.communicate(timeout=250)
        told = "".join(path.read_text() for path in self._folder.glob("slurm-*.out"))
        assert shell.returncode == 0, f"{code}\n{said}\n{errors}\n{told}"
        return str(said)

    def processes(self) -> list[int]:
        """How many processes there are in each node."""
        return [len(pids) for pids in self._lab.pids().values()]

    def states(self) -> dict[str, str]:
        """What each job is doing."""
        told = json.loads(self.run("hocket cluster status --state shared --all --json"))
        return {job["id"]: job["state"] for job in told["jobs"]}

    def end_slurm_job(self) -> None:
        """End it, to its last process."""
        self.run("scancel --name shared")
        until(lambda: not self.run("squeue --noheader"))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_commands_inside_a_slurm_job_run(name: str, folder: Path) -> None:
    if reason := lacking():
        pytest.skip(reason)
    work = folder / "work"
    work.mkdir()
    (work / "jobs.json").write_text(job_set())
    (work / "shared.sbatch").write_text(BLOCKS["shared.sbatch"])
    with Lab(nodes=2, rate_bps=1e9, name=name) as lab, slurm_on(lab, folder) as slurm:
        login = LoginNode(lab, work, slurm)
        daemons = login.processes()
        login.run(BLOCKS["on the login node"])
        login.run(BLOCKS["on the login node, then"])
        ranks = login.run(
            f"for rank in $(seq 0 {2 * GPUS - 1}); do"
            " hocket cluster logs --state shared where --rank $rank --follow; done"
        )
        login.run("hocket cluster logs --state shared pair --follow")
        until(lambda: "began" in login.run("hocket cluster logs --state shared kept"))
        before = login.states()
        login.end_slurm_job()
        left = login.processes()
        login.run(BLOCKS["on the login node"])
        after = login.run("hocket cluster logs --state shared kept --follow")
        done = login.states()
        login.end_slurm_job()
        simulated = login.run(BLOCKS["on the login node, afterwards"])
    every = ",".join(map(str, range(GPUS)))
    told = [line for line in ranks.splitlines() if every in line]
    assert {line.split()[-2] for line in told} == {node.address for node in lab.nodes}
    assert before | {"kept": ""} == {"where": "finished", "pair": "finished", "kept": ""}
    assert before["kept"] != "finished"
    assert left == daemons
    assert "goes on" in after
    assert set(done.values()) == {"finished"}
    accounted = json.loads((work / "accounted.json").read_text())["jobs"]
    assert [job["gpus"] for job in accounted] == [2 * GPUS, 2 * GPUS]
    assert "srsf-1" in simulated
