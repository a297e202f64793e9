"""``hocket lab`` where no lab can be made: what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.cli.cluster.live_options import NodeOptions
from hocket.cli.cluster.served_manager import open_nodes
from hocket.errors import HocketError
from hocket.lab import Lab, links
from hocket.lab.lab_users import users_of
from tests.unit.cli.test_commands import hocket, refused

COMMANDS = [["up"], ["down"], ["status"], ["exec", "node0", "--", "true"], ["exec", "--all", "--", "true"]]


@pytest.fixture(autouse=True)
def nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*arguments: object, **_: object) -> None:
        raise AssertionError(f"{arguments} was run")

    monkeypatch.setattr(subprocess, "run", run)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_labs_are_for_root(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "labs are for root, and this is user 1000" in refused(hocket("lab", *command))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_labs_need_iproute2(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(links, "_SYSTEM_PATH", "/nowhere")
    monkeypatch.setenv("PATH", "/nowhere")
    assert "install iproute2" in refused(hocket("lab", *command))


def test_labs_need_linux(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "this is darwin; use Linux" in refused(hocket("lab", "up"))


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        (["--nodes", "1"], "1 nodes make no lab; choose 2 to 250"),
        (["--nodes", "251"], "choose 2 to 250"),
        (["--rate", "999kbit"], "choose 1 Mbit/s to 100 Gbit/s"),
        (["--rate", "101Gbit/s"], "choose 1 Mbit/s to 100 Gbit/s"),
        (["--rate", "0bit"], "not positive"),
        (["--rate", "-1Gbit/s"], "not positive"),
        (["--rate", "fast"], "bandwidth 'fast' is not a number with a unit"),
        (["--rate", "1mbps"], "write 1Mbit/s or 1MB/s"),
        (["--rate", "1000"], "bandwidth '1000' has no unit; write 1000Gbit/s or 1000GB/s"),
        (["--name", ""], "'' names no lab"),
        (["--name", "a/b"], "'a/b' names no lab"),
        (["--name", "-a"], "'-a' names no lab"),
        (["--name", "x" * 33], "1 to 32 letters"),
    ],
)
def test_what_makes_no_lab(options: list[str], rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)  # said before who one has to be
    assert rule in refused(hocket("lab", "up", *options))


def test_a_lab_that_a_manager_uses_is_removed_by_force_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Lab, "find", lambda name: Lab(nodes=2, rate_bps=1e9, name=name))
    removed: list[str] = []
    monkeypatch.setattr("hocket.lab.remove", lambda name: not removed.append(name))
    with open_nodes(tmp_path, NodeOptions(lab="used")), open_nodes(tmp_path, NodeOptions(lab="used-too")):
        said = refused(hocket("lab", "down", "--name", "used"))
        assert f"lab 'used' is used by a cluster's manager (process {os.getpid()}); stop that first" in said
        assert f"kill {os.getpid()}, or give --force" in said
        assert removed == []
        assert hocket("lab", "down", "--name", "other").status == 0
        assert hocket("lab", "down", "--name", "used", "--force").status == 0
    assert hocket("lab", "down", "--name", "used").status == 0
    assert removed == ["other", "used", "used"]


def test_a_manager_that_was_killed_uses_no_lab() -> None:
    code = (
        "import time; from hocket.lab.lab_users import using\n"
        "with using('used'): print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert users_of("used") == [process.pid]
        process.kill()
    assert users_of("used") == []


def test_a_rate_that_is_no_number() -> None:
    with pytest.raises(HocketError, match="a rate of nan bit/s"):
        Lab(nodes=2, rate_bps=float("nan"))


def test_ranks_have_times_that_make_sense() -> None:
    lab = Lab(nodes=2, rate_bps=1e9)
    with pytest.raises(HocketError, match="leaves no time"):
        lab.run_all(["true"], timeout_s=0.0)
    with pytest.raises(HocketError, match="negative"):
        lab.run_all(["true"], grace_s=-1.0)


def test_nodes_are_named_alike_in_every_lab() -> None:
    lab = Lab(nodes=250, rate_bps=1e9, name="n" * 32)
    assert lab.nodes[249].name == "node249"
    assert lab.nodes[249].address == "10.77.0.250"
    assert lab.nodes[249].namespace == f"hocket-{lab.name}-node249"
    assert len({node.address for node in lab.nodes}) == 250
    assert max(len(name) for node in lab.nodes for name in (node.name, node.interface)) <= 15
