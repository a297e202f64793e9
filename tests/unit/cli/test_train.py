"""``hocket train``: what torchrun is started with, and what is refused before it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import msgspec
import pytest

from hocket.cli import torchrun_options
from hocket.launch import ServedJob
from hocket.launch.credentials import credentials_of
from hocket.launch.processes import SCRIPT
from hocket.network import save_network
from tests.tokens import CREDENTIALS, TOKEN
from tests.unit.cli.test_commands import CARAMEL, STEP, hocket, in_tmp, refused
from tests.unit.cli.test_network import with_error

__all__ = ["in_tmp"]


PS = ["--architecture", "ps"]
P3, TIC = CARAMEL.replace("caramel", "p3"), STEP.replace("step", "tic.plan")


DRAWN = 'give all ranks one that we draw: export HOCKET_TOKEN="$(hocket train --new-token)"'


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
        assert [program, command[1]] == [sys.executable, "-P"]
        assert Path(command[2]).name == "torchrun_launcher.py"
        assert environment.keys() >= os.environ.keys()
        assert environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == os.environ.get(
            "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"
        )
        told = {name: value for name, value in environment.items() if name.startswith("HOCKET_")}
        assert told.pop("HOCKET_CACHE") == "off"  # of all tests
        # Taken away before the script runs, which test_train.py of the processes looks at.
        told.pop("HOCKET_AWAITED", None)
        found.append(Started(list(command[3:]), told))
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
        ["--run-path", "./train.py"],
    ],
)
def test_what_is_torchruns_or_the_scripts_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    script = next((k for k, argument in enumerate(arguments) if argument == "train.py"), None)
    # A file is run by ours, which hears of its exit.
    expected = arguments if script is None else [*arguments[:script], *SCRIPT, *arguments[script:]]
    assert started(monkeypatch, *arguments) == (expected, {})


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
        *(*SCRIPT, "train.py", "--plan", "its own"),
    ]
    assert run.told == {
        "HOCKET_PLAN": CARAMEL,
        "HOCKET_NETWORK": str(in_tmp / "network.json"),
        "HOCKET_TIMELINE": str(in_tmp / "out.json"),
    }


def test_what_was_kept_is_forgotten_where_that_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert started(monkeypatch, "--forget", "train.py").told == {"HOCKET_FORGET": "1"}
    ran = hocket("train", "--forget", "--architecture", "ps", "train.py")
    assert (ran.status, ran.err.count("\n")) == (2, 1)
    assert "--forget is for plans that are tried" in ran.err


def test_a_policy_stays_a_name_and_other_variables_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_NETWORK", "elsewhere.json")
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0")
    assert started(monkeypatch, "--plan", "caramel", "train.py").told == {
        "HOCKET_PLAN": "caramel",
        "HOCKET_NETWORK": "elsewhere.json",
    }


def test_torchruns_options_are_those_of_the_one_installed() -> None:
    from torch.distributed import run

    actions = [action for action in run.get_args_parser()._actions if action.option_strings]
    known = {
        name.replace("_", "-"): action.nargs != 0 for action in actions for name in action.option_strings
    }
    del known["-h"], known["--help"]
    assert {name: bool(each.value) for each in torchrun_options.OPTIONS for name in each.names} == known


@pytest.mark.parametrize(
    ("arguments", "whole"),
    [
        (["--nproc", "2"], ["--nproc-per-node", "2"]),
        (["--nproc_per=2", "--stand"], ["--nproc-per-node=2", "--standalone"]),
        (["--max-r", "1", "--master_port", "0"], ["--max-restarts", "1", "--master_port", "0"]),
    ],
)
def test_an_abbreviation_is_made_whole(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], whole: list[str]
) -> None:
    script = ["train.py", "--nproc"]
    assert started(monkeypatch, *arguments, *script).arguments == [*whole, *SCRIPT, *script]


def test_an_option_that_only_the_installed_torchrun_has_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [each for each in torchrun_options.OPTIONS if each.names[0] != "--role"]
    monkeypatch.setattr(torchrun_options, "OPTIONS", known)
    assert started(monkeypatch, "--role", "r", "train.py").arguments == ["--role", "r", *SCRIPT, "train.py"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument 'SCRIPT'"),
        (["--nnodes", "1"], "Missing argument 'SCRIPT'"),
        (["--nnodes", "1", "--plan"], "Option '--plan' requires an argument"),
        (
            ["--nprc", "2", "train.py"],
            "--nprc: neither hocket train nor torchrun has this option; did you mean",
        ),
        (["--nprc", "2", "train.py"], "did you mean --nproc-per-node? SCRIPT's own stand behind it"),
        (["--rdzv", "x", "train.py"], "short for several of torchrun's options: --rdzv-endpoint, "),
        (["other.py"], "other.py: there is no such SCRIPT"),
        (["--plan", "caramell", "train.py"], "'caramell' is unknown; did you mean 'caramel'?"),
        (["--plan", "tac", "train.py"], "choose one of: auto, wfbp, ddp, "),
        (["--plan", "none.json", "train.py"], "none.json: cannot be read"),
        (["--plan", STEP, "train.py"], "is not 'hocket.plan/1'"),
        (["--plan", STEP.replace("step", "tac.plan"), "train.py"], "training takes one for 'allreduce'"),
        (["--network", "none.json", "train.py"], "none.json: cannot be read"),
        (["--workers", "2", "train.py"], "--workers is for parameter servers; add --architecture ps"),
        (["--policy", "tac", "train.py"], "--policy is for parameter servers"),
        ([*PS, "--nnodes", "2", "train.py"], "--nnodes is torchrun's, which does not start servers"),
        ([*PS, "--policy", "caramel", "train.py"], "'caramel' is a policy for training by AllReduce"),
        ([*PS, "--plan", CARAMEL, "train.py"], "with servers training takes one for 'ps'"),
        ([*PS, "--plan", "p.json", "--policy", "tac", "train.py"], "both say how to plan"),
        ([*PS, "--staleness", "2", "train.py"], "staleness 2 is for mode 'async', not 'sync'"),
        ([*PS, "--mode", "async", "--backup", "1", "train.py"], "backup 1 is for mode 'sync'"),
        ([*PS, "--backup", "2", "--workers", "2", "train.py"], "backup 2 of 2 workers leaves none"),
        ([*PS, "--backup=1", "--workers=2", "--barrier=parameter", "train.py"], "a barrier per step"),
        ([*PS, "--plan", P3, "--barrier", "step", "train.py"], "has barrier 'parameter', not 'step'; leave"),
        ([*PS, "--plan", TIC, "--barrier=parameter", "train.py"], "has barrier 'step', not 'parameter'"),
        ([*PS, "--backup=1", "--workers=2", "--plan", P3, "train.py"], "a plan that has no such barrier"),
        ([*PS, "--workers", "0", "train.py"], "0 workers cannot train"),
        ([*PS, "--servers", "0", "train.py"], "0 servers cannot serve"),
        ([*PS, "--restarts", "1", "train.py"], "--restarts 1 is for mode 'async'"),
        (["--checkpoint", "kept", "train.py"], "--checkpoint is for parameter servers"),
        (
            [*PS, "--mode", "inference", "--checkpoint", "kept", "train.py"],
            "mode 'inference' trains nothing that a checkpoint could hold",
        ),
        ([*PS, "--timeout", "0s", "train.py"], "a timeout of 0.0 s is not between 0 and 1e9"),
        ([*PS, "--mode", "fast", "train.py"], "'fast' is not one of"),
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


def test_a_network_that_lies_on_no_line_is_told_before_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save_network(with_error(0.9), "poor.json")
    started(monkeypatch, "--network", "poor.json", "train.py")
    assert "poor.json: unusable for all-reduces: times are off the fit by 90%" in capsys.readouterr().err
    save_network(with_error(0.9, "transfer"), "poor.json")
    started(monkeypatch, "--network", "poor.json", "train.py")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("poor.json: unusable for transfers: times are off the fit by 90%")
    assert line.endswith("; this training does not go by those, and all that it uses is good")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--nproc-per-node", "2"], True),
        (["--nproc_per_node=auto", "--nnodes", "1"], True),
        (["--nproc", "2"], True),
        (["--nproc-per-node", "1"], False),
        ([], False),
        (["--nnodes", "2", "--nproc-per-node", "2"], False),
        (["--nnodes=1:2", "--nproc-per-node", "2"], False),
        (["--nproc-per-node", "2", "--quiet"], False),
    ],
)
def test_processes_on_one_machine_are_told_that_there_is_little_to_gain(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    told: bool,
) -> None:
    started(monkeypatch, *arguments, "train.py")
    said = capsys.readouterr().err
    assert said.startswith("all processes are on this machine, ") == told
    assert said.count("\n") == told


def test_help_is_ours_before_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("torchrun was started"))
    ran = hocket("train", "--nnodes", "2", "--help", "train.py")
    assert ran.status == 0
    assert "--timeline" in ran.out


def test_a_token_is_drawn_anew_each_time() -> None:
    drawn = [hocket("train", *before, "--new-token") for before in ((), PS)]
    assert [(ran.status, ran.err, ran.out.count("\n")) for ran in drawn] == [(0, "", 1)] * 2
    first, second = (credentials_of(ran.out.strip(), "this", "") for ran in drawn)
    assert first.secret != second.secret
    assert first.served.fingerprint == first.fingerprint != second.fingerprint


def test_a_rank_becomes_a_server_or_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[list[str], Mapping[str, str]]] = []

    def execve(program: str, command: list[str], environment: Mapping[str, str]) -> NoReturn:
        told.append(([program, *command[1:]], environment))
        raise _Replaced

    monkeypatch.setattr(os, "execve", execve)
    outside = {"WORLD_SIZE": "3", "MASTER_ADDR": "10.0.0.7", "MASTER_PORT": "4000", "HOCKET_TOKEN": TOKEN}
    for name, value in outside.items():
        monkeypatch.setenv(name, value)
    from hocket.cli.main import main

    monkeypatch.setattr(
        sys, "argv", ["hocket", "train", *PS, "--workers", "2", "--policy", "tic", "train.py", "--lr", "1"]
    )
    for rank in ("0", "2"):
        monkeypatch.setenv("RANK", rank)
        with pytest.raises(_Replaced):
            main()
    (server, its), (worker, theirs) = told
    assert server == [sys.executable, "-P", "-m", "hocket.runtime.ps.server.server", "0"]
    assert worker == [sys.executable, *SCRIPT, "train.py", "--lr", "1"]
    serves, works = (msgspec.json.decode(each["HOCKET_JOB"], type=ServedJob) for each in (its, theirs))
    assert serves.token == TOKEN
    assert works == serves.for_workers
    assert not any(CREDENTIALS.text in value for value in theirs.values())
    assert "HOCKET_TOKEN" not in theirs
    assert its["HOCKET_STORE"] == "10.0.0.7:4001"
    assert {
        name: theirs[name] for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "HOCKET_PLAN")
    } == {
        "RANK": "1",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "10.0.0.7",
        "MASTER_PORT": "4001",
        "HOCKET_PLAN": "tic",
    }


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (
            {"WORLD_SIZE": "4", "HOCKET_TOKEN": TOKEN},
            "WORLD_SIZE is 4, but 1 servers and 2 workers",
        ),
        ({"WORLD_SIZE": "3"}, f"there is no HOCKET_TOKEN; {DRAWN}"),
        (
            {"WORLD_SIZE": "3", "HOCKET_TOKEN": "0" * 32},
            f"HOCKET_TOKEN holds 32 characters that are no token of Hocket's; {DRAWN}",
        ),
        (
            {"WORLD_SIZE": "3", "RANK": "0", "HOCKET_TOKEN": CREDENTIALS.without_key.text},
            "a token without its private key is for workers; give servers all of it",
        ),
    ],
)
def test_ranks_that_do_not_fit_are_refused(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], message: str
) -> None:
    for name, value in {"RANK": "1", **variables}.items():
        monkeypatch.setenv(name, value)
    assert message in refused(hocket("train", *PS, "--workers", "2", "train.py"))


def job_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> ServedJob:
    """The job of which ``hocket train --architecture ps`` becomes a part."""
    found: list[str] = []

    def execve(_: str, __: list[str], environment: Mapping[str, str]) -> NoReturn:
        found.append(environment["HOCKET_JOB"])
        raise _Replaced

    monkeypatch.setattr(os, "execve", execve)
    outside = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.7", "HOCKET_TOKEN": TOKEN}
    for name, value in outside.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["hocket", "train", *PS, *arguments, "train.py"])
    from hocket.cli.main import main

    with pytest.raises(_Replaced):
        main()
    return msgspec.json.decode(found[0], type=ServedJob)


@pytest.mark.parametrize(
    ("arguments", "barrier"),
    [
        ([], "step"),
        (["--barrier", "parameter"], "parameter"),
        (["--plan", "p3"], "parameter"),
        (["--policy", "p3", "--barrier", "step"], "step"),
        (["--plan", P3], "parameter"),
        (["--plan", P3, "--barrier", "parameter"], "parameter"),
        (["--plan", TIC], "step"),
    ],
)
def test_pulls_wait_for_what_the_plan_has_them_wait_for(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], barrier: str
) -> None:
    assert job_of(monkeypatch, *arguments).rule.barrier == barrier
