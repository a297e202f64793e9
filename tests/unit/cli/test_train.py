"""``hocket train``: what torchrun is started with, and what is refused before it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import pytest

from hocket.cli.train import TORCHRUN_FLAGS
from tests.unit.cli.test_commands import CARAMEL, STEP, hocket, in_tmp, refused

__all__ = ["in_tmp"]


class Started(NamedTuple):
    arguments: list[str]
    told: dict[str, str]


class _Replaced(BaseException):
    """The process is another program now."""


@pytest.fixture(autouse=True)
def script(in_tmp: Path) -> None:
    Path("train.py").write_text("")
    Path("network.json").write_text('{"format": "hocket.network/1", "bandwidth_bps": 1e9}')


def started(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Started:
    """What ``hocket train`` becomes."""
    found: list[Started] = []

    def execve(program: str, command: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
        assert [program, *command[1:4]] == [sys.executable, "-P", "-m", "torch.distributed.run"]
        assert environment.keys() >= os.environ.keys()
        assert environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == os.environ.get(
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"
        )
        told = {name: value for name, value in environment.items() if name.startswith("HOCKET_")}
        found.append(Started(list(command[4:]), told))
        raise _Replaced

    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr(sys, "argv", ["hocket", "train", *arguments])
    from hocket.cli.main import main

    with pytest.raises(_Replaced):
        main()
    return found[0]


@pytest.mark.parametrize(
    "arguments",
    [
        ["train.py"],
        ["train.py", "--plan", "its own", "-h", "--", "x"],
        ["--nproc-per-node", "2", "train.py", "--timeline"],
        ["--nproc_per_node=2", "-t", "3", "-r3", "--standalone", "train.py", "train.py"],
        ["--standalone", "--nnodes", "1:2", "--max-restarts", "3", "train.py"],
        ["-m", "package.module", "--plan", "ddp"],
        ["--no-python", "bash", "-c", "true"],
    ],
)
def test_what_is_torchruns_or_the_scripts_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    assert started(monkeypatch, *arguments) == (arguments, {})


def test_our_options_become_variables_wherever_they_stand(
    in_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = started(
        monkeypatch,
        *("--nproc-per-node", "2", "--plan", CARAMEL, "--standalone", "--network=network.json", "-t", "3"),
        *("--timeline", "out.json", "train.py", "--plan", "its own"),
    )
    assert run.arguments == [
        *("--nproc-per-node", "2", "--standalone", "-t", "3"),
        *("train.py", "--plan", "its own"),
    ]
    assert run.told == {
        "HOCKET_PLAN": CARAMEL,
        "HOCKET_NETWORK": str(in_tmp / "network.json"),
        "HOCKET_TIMELINE": str(in_tmp / "out.json"),
    }


def test_a_policy_stays_a_name_and_other_variables_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_NETWORK", "elsewhere.json")
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0")
    assert started(monkeypatch, "--plan", "caramel", "train.py").told == {
        "HOCKET_PLAN": "caramel",
        "HOCKET_NETWORK": "elsewhere.json",
    }


def test_options_without_a_value_are_those_of_torchrun() -> None:
    run = pytest.importorskip("torch.distributed.run")
    actions = run.get_args_parser()._actions
    assert {
        name for action in actions if action.nargs == 0 for name in action.option_strings
    } == TORCHRUN_FLAGS


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument 'SCRIPT'"),
        (["--nnodes", "1"], "Missing argument 'SCRIPT'"),
        (["--nnodes", "1", "--plan"], "Option '--plan' requires an argument"),
        (["other.py"], "other.py: there is no such SCRIPT"),
        (["--plan", "caramell", "train.py"], "'caramell' is unknown; did you mean 'caramel'?"),
        (["--plan", "tac", "train.py"], "choose one of: auto, wfbp, ddp, "),
        (["--plan", "none.json", "train.py"], "none.json: cannot be read"),
        (["--plan", STEP, "train.py"], "is not 'hocket.plan/1'"),
        (["--plan", STEP.replace("step", "tac.plan"), "train.py"], "training takes one for 'allreduce'"),
        (["--network", "none.json", "train.py"], "none.json: cannot be read"),
        (["--network", "train.py", "train.py"], "train.py: is not JSON"),
        (["--timeline", "no/where.json", "train.py"], "does not exist; create it first"),
        (["--timeline", "train.py", "train.py"], "is also an input"),
        (["--network", "network.json", "--timeline", "network.json", "train.py"], "is also an input"),
    ],
)
def test_what_cannot_be_started_gets_one_line(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("torchrun was started"))
    assert message in refused(hocket("train", *arguments))


def test_help_is_ours_before_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("torchrun was started"))
    ran = hocket("train", "--nnodes", "2", "--help", "train.py")
    assert ran.status == 0
    assert "--timeline" in ran.out
