"""Examinations between real ranks over gloo: green, and red with one line for each thing that is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hocket.ports import free_port
from tests.multiprocess.launch import run
from tests.multiprocess.test_network_measure import folder, wait_for_workers

__all__ = ["folder"]
pytestmark = pytest.mark.slow

PLAN = Path(__file__).parents[1] / "golden" / "branches.caramel.plan.json"


def examined(tmp_path: Path, **given: Any) -> dict[str, Any]:
    """The document of two ranks' examination."""
    found = run(
        "tests.multiprocess.doctor_cases:examined",
        folder=str(tmp_path),
        **{"plans": ["auto", "auto"], "changed": {}, **given},
    )
    assert found[1] is None
    document: dict[str, Any] = found[0]
    return document


def the_line(document: dict[str, Any], about: str) -> str:
    """The one line about ``about`` of an examination that is red for nothing else."""
    assert not document["green"]
    [finding] = document["findings"]
    assert finding["about"] == about
    line: str = finding["line"]
    return line


def test_two_ranks_train_as_ddp_bit_by_bit(tmp_path: Path) -> None:
    document = examined(tmp_path)
    assert document["findings"] == []
    assert document["green"]
    test = document["self_test"]
    assert test["difference"] == 0.0
    assert test["transfers"] == test["planned"] == 8
    assert 0 < test["peak_bytes"] < 1e9
    assert [each["rank"] for each in document["ranks"]] == [0, 1]
    assert document["clock_offsets_s"][0] == 0.0
    assert abs(document["clock_offsets_s"][1]) < 60.0  # one machine's clock, seen late by a message


@pytest.mark.parametrize("what", ["torch", "hocket"])
def test_a_rank_of_another_version_is_named_and_not_trained_with(what: str, tmp_path: Path) -> None:
    document = examined(tmp_path, changed={what: "9.9.9"})
    line = the_line(document, what)
    assert line.startswith(f"rank 1 has {what} 9.9.9, rank 0 has ")
    assert "all ranks need the same" in line
    assert document["self_test"] is None


def test_ranks_with_other_plans_are_named_and_trained_with(tmp_path: Path) -> None:
    document = examined(tmp_path, plans=["auto", str(PLAN)])
    line = the_line(document, "plan")
    assert line.startswith("rank 1 has plan 'caramel' (digest ")
    assert line.endswith("; give every rank the same file")
    assert document["self_test"]["difference"] == 0.0


def test_an_interface_that_is_not_there_is_named_before_gloo_looks_for_it(tmp_path: Path) -> None:
    document = examined(tmp_path, interface="nowhere0")
    line = the_line(document, "interface")
    assert line.startswith("rank 1: GLOO_SOCKET_IFNAME is nowhere0, and ")
    assert "has no such interface; set it to lo" in line
    assert document["self_test"] is None


def test_shared_memory_that_is_full_or_missing_is_told(tmp_path: Path) -> None:
    full = {"shared_memory_bytes": 67_108_864, "shared_memory_free_bytes": 1_000_000, "machine": "other"}
    document = examined(tmp_path, changed=full | {"gloo_address": "10.0.0.5", "environment": {}})
    # Rank 0's loopback, by which another machine is not reached, is told as well.
    lines = [each["line"] for each in document["findings"] if each["about"] == "shared memory"]
    assert len(lines) == 1
    assert "has 1 MB free of 67.1 MB, and DataLoaders of rank 1 take 100 MB; docker run" in lines[0]


def test_a_machine_without_shared_memory_is_told(tmp_path: Path) -> None:
    document = examined(tmp_path, shared_memory=str(tmp_path / "shm"), changed={"machine": "other"})
    lines = [each["line"] for each in document["findings"] if each["about"] == "shared memory"]
    assert len(lines) == 1
    assert f"has no {tmp_path}/shm" in lines[0]


def command(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hocket", "doctor", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    with process:
        out, err = process.communicate(timeout=240)
    return process.returncode, out, err


def test_alone_it_starts_two_ranks_and_says_so_in_one_screen() -> None:
    status, out, err = ended(command(GLOO_SOCKET_IFNAME="lo", COLUMNS="110"))
    assert status == 0, out + err
    assert out.startswith("Green: 2 ranks can train, on 1 machine; examined in ")
    assert "bit by bit after 12 steps; 8 of 8 transfers seen" in out
    assert len(out.splitlines()) <= 24


@pytest.mark.long
def test_alone_a_wrong_interface_ends_it_with_status_1() -> None:
    status, out, _ = ended(command("--json", GLOO_SOCKET_IFNAME="nowhere0"))
    assert status == 1
    document = json.loads(out)
    assert document["format"] == "hocket.doctor/1"
    assert "nowhere0" in the_line(document, "interface")


def test_under_a_launcher_each_rank_is_one_of_the_job() -> None:
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port("127.0.0.1"))}
    job["GLOO_SOCKET_IFNAME"] = "lo"
    ranks = [command("--json", RANK="0", **job), command("--json", "--plan", str(PLAN), RANK="1", **job)]
    (status, out, _), (other, nothing, err) = map(ended, ranks)
    assert status == 1
    assert the_line(json.loads(out), "plan").startswith("rank 1 has plan 'caramel'")
    assert (other, nothing) == (0, ""), err


def test_a_rank_that_never_comes_is_waited_for_as_long_as_was_asked(folder: Path) -> None:
    job = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port("127.0.0.1"))}
    status, out, _ = ended(command("--timeout", "20s", RANK="0", **job))
    assert status == 1
    assert out.startswith("Red: 1 thing to mend before 2 ranks can train:")
    assert "raise --timeout" in out
    wait_for_workers(folder, 0)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--plan", "nowhere.json"), "hocket: nowhere.json: cannot be read: No such file or directory\n"),
        (("--timeout", "1s"), "hocket: timeout of 1 s is not between 5 and 3600; give e.g. 120s\n"),
    ],
)
def test_what_cannot_be_served_is_refused_with_status_2(arguments: tuple[str, ...], line: str) -> None:
    assert ended(command(*arguments)) == (2, "", line)
