"""``hocket lab`` where no lab can be made: what is refused."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hocket.errors import HocketError
from hocket.lab import Lab, links
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
