"""Each option that decides an answer is named beside it: in the line of assumptions and in ``given``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from hocket.cli.main import app
from hocket.network import save_network
from tests.unit.cli.test_commands import BRANCHES, Ran, hocket, in_tmp
from tests.unit.network.test_measured import some_file

__all__ = ["in_tmp"]

ALL_REDUCE = "--workers 2,4 --steps 8"
ASYNC = "--workers 2 --steps 8 --mode async"
SYNC = "--workers 2 --steps 8 --mode sync --servers 1"
FEW = "--budget 1ms --iterations 3"
TAC = "--policy tac --iterations 3"

# The option, what the line says of it, and a command that it decides.
DECIDING = {
    "predict": [
        ("--mode async", "mode async", "--workers 2 --steps 8"),
        ("--architecture ps", "architecture ps", "--workers 2 --steps 8"),
        ("--policy caramel", "policy caramel", ALL_REDUCE),
        ("--bandwidth 1Gbit/s", "bandwidth 1 Gbit/s", ALL_REDUCE),
        ("--latency 1ms", "startup 1 ms", ALL_REDUCE),
        ("--parse-alpha 1e-9", "1 ns a byte", ALL_REDUCE),
        ("--parse-beta 1ms", "parsing 1 ms a message", ALL_REDUCE),
        ("--pattern tree", "pattern tree", ALL_REDUCE),
        ("--clip", "clip", ALL_REDUCE),
        ("--memory 1GB", "memory 1GB", f"{ALL_REDUCE} --architecture fsdp"),
        ("--shards 2", "shards 2", f"{ALL_REDUCE} --architecture fsdp"),
        ("--fusion 64MB", "fusion 64MB", f"{ALL_REDUCE} --policy horovod"),
        ("--budget 1ms", "budget 1ms", f"{ALL_REDUCE} --policy search"),
        ("--racks 2", "racks 2", ALL_REDUCE),
        ("--oversubscription 4", "oversubscription 4", f"{ALL_REDUCE} --racks 2"),
        ("--background 0.5", "background 0.5", ALL_REDUCE),
        ("--speed 1,1,1,0.5", "speed 1,1,1,0.5", ALL_REDUCE),
        ("--worker-bandwidth 1Gbit/s", "worker bandwidth 1Gbit/s", ALL_REDUCE),
        ("--server-bandwidth 1Gbit/s", "server bandwidth 1Gbit/s", ASYNC),
        ("--updates commit", "updates on commit (one worker's after another's)", ASYNC),
        ("--window 1MB", "window 1 MB", ASYNC),
        ("--spread", "spread", ASYNC),
        ("--barrier parameter", "barrier parameter", SYNC),
        ("--backup 1", "backup 1", SYNC),
        ("--steps 8", "steps 8", "--workers 2"),
        ("--skip 3", "skip 3", ALL_REDUCE),
        ("--max-steps 9", "max steps 9", ALL_REDUCE),
        ("--repeats 2", "repeats 2", ALL_REDUCE),
        ("--seed 3", "seed 3", ALL_REDUCE),
        ("--jitter 0.05", "jitter 0.05", ALL_REDUCE),
        ("--price-per-worker-hour 0.9", "price per worker hour 0.9", ALL_REDUCE),
        ("--price-per-server-hour 0.25", "price per server hour 0.25", ASYNC),
    ],
    "tune": [
        ("--architecture ps", "architecture ps", FEW),
        ("--barrier step", "barrier step", FEW),
        ("--workers 3", "workers 3", FEW),
        ("--servers 1", "servers 1", f"{FEW} --architecture ps"),
        ("--bandwidth 1Gbit/s", "bandwidth 1 Gbit/s", FEW),
        ("--latency 1ms", "startup 1 ms", FEW),
        ("--parse-alpha 1e-9", "1 ns a byte", FEW),
        ("--parse-beta 1ms", "parsing 1 ms a message", FEW),
        ("--pattern tree", "pattern tree", FEW),
        ("--clip", "clip", FEW),
        ("--memory 1GB", "memory 1GB", f"{FEW} --architecture fsdp"),
        ("--shards 2", "shards 2", f"{FEW} --architecture fsdp"),
        ("--window 1MB", "window 1 MB", FEW),
        ("--fusion 64MB", "fusion 64MB", FEW),
        ("--budget 1ms", "budget 1ms", "--iterations 3"),
        ("--iterations 3", "iterations 3", "--budget 1ms"),
        ("--seed 3", "seed 3", FEW),
    ],
    "simulate": [
        ("--policy tac", "policy tac", ""),
        ("--architecture ps", "architecture ps", TAC),
        ("--barrier parameter", "barrier parameter", TAC),
        ("--workers 3", "workers 3", TAC),
        ("--servers 1", "servers 1", TAC),
        ("--bandwidth 1Gbit/s", "bandwidth 1 Gbit/s", TAC),
        ("--latency 1ms", "startup 1 ms", TAC),
        ("--parse-alpha 1e-9", "1 ns a byte", TAC),
        ("--parse-beta 1ms", "parsing 1 ms a message", TAC),
        ("--pattern tree", "pattern tree", "--policy ddp"),
        ("--clip", "clip", "--policy ddp"),
        ("--memory 1GB", "memory 1GB", "--policy fsdp"),
        ("--shards 2", "shards 2", "--policy fsdp"),
        ("--window 1MB", "window 1 MB", TAC),
        ("--fusion 64MB", "fusion 64MB", "--policy horovod"),
        ("--budget 1ms", "budget 1ms", "--policy search"),
        ("--iterations 3", "iterations 3", "--policy tac"),
        ("--seed 3", "seed 3", TAC),
    ],
    "plan": [
        ("--policy tac", "policy tac", ""),
        ("--architecture ps", "architecture ps", "--policy tac"),
        ("--barrier parameter", "barrier parameter", "--policy tac"),
        ("--workers 3", "workers 3", "--policy tac"),
        ("--servers 1", "servers 1", "--policy tac"),
        ("--bandwidth 1Gbit/s", "bandwidth 1 Gbit/s", "--policy tac"),
        ("--latency 1ms", "startup 1 ms", "--policy tac"),
        ("--parse-alpha 1e-9", "1 ns a byte", "--policy tac"),
        ("--parse-beta 1ms", "parsing 1 ms a message", "--policy tac"),
        ("--pattern tree", "pattern tree", "--policy ddp"),
        ("--clip", "clip", "--policy ddp"),
        ("--memory 1GB", "memory 1GB", "--policy fsdp"),
        ("--shards 2", "shards 2", "--policy fsdp"),
        ("--window 1MB", "window 1 MB", "--policy tac"),
        ("--fusion 64MB", "fusion 64MB", "--policy horovod"),
        ("--budget 1ms", "budget 1ms", "--policy search"),
        ("--seed 3", "seed 3", "--policy tac"),
    ],
}
for _command, _with in {
    "predict": ALL_REDUCE,
    "tune": FEW,
    "simulate": "--policy ddp --iterations 3",
    "plan": "--policy ddp",
}.items():
    _pairs = f"{_with} --gpus-per-node 2 --intra-bandwidth 1GB/s"
    DECIDING[_command] += [
        ("--gpus-per-node 2", "2 GPUs a node", f"{_with} --intra-bandwidth 1GB/s"),
        ("--intra-bandwidth 1GB/s", "1 GB/s inside", f"{_with} --gpus-per-node 2"),
        ("--nics-per-node 2", "2 NICs a node", _with),
        ("--intra-latency 1us", "startup inside 1 µs", _pairs),
        ("--in-switch", "switches inside sum up", _pairs),
        ("--machines-per-rack 1", "1 machine a rack", _with),
        ("--oversubscription 2", "oversubscription 2", f"{_with} --machines-per-rack 2"),
    ]

# A file is named as the source of what it says. Columns of the table are the numbers of machines of a
# prediction. The rest decides what is written, printed or compared with, and where it is computed.
ELSEWHERE = {"--anyway", "--network", "--cluster", "--plan"}
OF_OUTPUT = {"--output", "--report", "--timeline", "--plot", "--measured", "--engine", "--wide", "--json"}
OF_OUTPUT |= {"--help", "--help-all", "--quiet", "--verbose"}
COLUMNS = {"predict": {"--workers", "--servers"}}
CASES = [(command, *case) for command, cases in DECIDING.items() for case in cases]


def ran(command: str, *options: str) -> Ran:
    written = ("-o", "plan.json") if command in ("plan", "tune") else ()
    found = hocket(command, BRANCHES, *written, *" ".join(options).split())
    assert found.status == 0, found.err
    return found


def given_of(line: str) -> list[str]:
    """What a line of assumptions has as given, option by option."""
    clauses = [clause for clause in line.split("; ") if clause.startswith("given: ")]
    return clauses[0].removeprefix("given: ").split(", ") if clauses else []


def line_of(out: str) -> str:
    return next(line for line in out.splitlines() if line.startswith("toy, batches of 4 a worker"))


@pytest.mark.parametrize(("command", "option", "said", "others"), CASES)
def test_an_option_that_decides_an_answer_is_beside_it(
    in_tmp: Path, command: str, option: str, said: str, others: str
) -> None:
    line = line_of(ran(command, others, option).out)
    assert f", {said}," in f", {', '.join(given_of(line))},", line


@pytest.mark.parametrize("command", DECIDING)
def test_every_option_is_one_that_decides_or_known_not_to(command: str) -> None:
    params = typer.main.get_command(app).commands[command].loaded.params  # type: ignore[attr-defined]
    options = {max(param.opts, key=len) for param in params if param.param_type_name == "option"}
    deciding = {option.split()[0] for option, _, _ in DECIDING[command]}
    assert options - ELSEWHERE - OF_OUTPUT - COLUMNS.get(command, set()) <= deciding
    assert deciding <= options


@pytest.mark.parametrize("command", DECIDING)
def test_what_is_only_printed_or_written_is_not_among_them(in_tmp: Path, command: str) -> None:
    needed = {"predict": ALL_REDUCE, "tune": FEW}.get(command, "--policy ddp")
    assert given_of(line_of(ran(command, needed, "--wide -v").out)) == given_of(
        line_of(ran(command, needed).out)
    )


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        (
            f"predict {ASYNC} --spread --price-per-worker-hour 0.9 --speed 1,0.5",
            {"mode": "async", "spread": True, "price_per_worker_hour": 0.9, "speed": "1,0.5", "steps": 8},
        ),
        (
            f"predict {ALL_REDUCE} --racks 2 --oversubscription 4 --bandwidth 1Gbit/s --skip 3",
            {"racks": 2, "oversubscription": 4.0, "bandwidth_bps": 1e9, "steps": 8, "skip": 3},
        ),
        ("simulate --policy tac --barrier parameter", {"policy": "tac", "barrier": "parameter"}),
        (f"tune {FEW} --seed 3", {"budget": "1ms", "iterations": 3, "seed": 3}),
    ],
)
def test_a_document_has_what_was_given(in_tmp: Path, arguments: str, given: dict[str, Any]) -> None:
    command, _, options = arguments.partition(" ")
    found = json.loads(ran(command, options, "--json").out)
    document = found[0] if isinstance(found, list) else found
    assert document["given"] == given
    assert not document["assumed"].keys() & given.keys()


def test_a_document_names_the_files_that_were_given(in_tmp: Path) -> None:
    save_network(some_file(), "timed.json")
    (row,) = json.loads(ran("predict", "--workers 2 --steps 8 --network timed.json --json").out)
    assert row["given"] == {"network": "timed.json", "steps": 8}


@pytest.mark.parametrize(
    ("racks", "others", "idle", "pattern"),
    [
        # Uplinks as fast as a link, and a ring is what would run: nothing changes.
        ("--racks 2", "", True, "--racks: pattern ring"),
        ("--racks 2", "--pattern ring", True, "pattern ring"),
        ("--racks 2 --oversubscription 1.5", "--workers 4", True, "--racks: pattern ring"),
        # An uplink slower than a link, and a ring where a tree would take less.
        ("--racks 2 --oversubscription 4", "", False, "--racks: pattern ring"),
        ("--racks 2", "--latency 60s --workers 8", False, "--racks: pattern ring"),
    ],
)
def test_racks_say_whether_they_change_an_all_reduce(
    racks: str, others: str, idle: bool, pattern: str
) -> None:
    def rates(found: Ran) -> list[float]:
        return [row["throughput"] for row in json.loads(found.out)]

    slow, note = f"{ALL_REDUCE} --bandwidth 1kbit/s", "--racks has no effect on an all-reduce ring here: "
    found = ran("predict", slow, others, racks, "--json")
    assert (note in found.err) == idle
    assert (rates(found) == rates(ran("predict", slow, others, "--json"))) == idle
    shown = ran("predict", slow, others, racks)
    assert (note in shown.err) == idle
    assert pattern in line_of(shown.out)
    assert "ring or tree" not in line_of(shown.out)


def test_racks_of_servers_are_not_told_of_a_ring() -> None:
    found = ran("predict", ASYNC, "--racks 2")
    assert "no effect" not in found.err
    assert "pattern" not in line_of(found.out)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "all-reduces as timed between 4 workers"),
        ("--racks 2", "--racks: pattern ring"),
        ("--background 0.5", "pattern ring or tree by size"),
        ("--worker-bandwidth 1Mbit/s", "pattern ring or tree by size"),
    ],
)
def test_a_timed_all_reduce_is_named_only_where_it_is_used(in_tmp: Path, options: str, said: str) -> None:
    save_network(some_file(), "timed.json")
    line = line_of(ran("predict", "--workers 2,4 --steps 8 --network timed.json", options).out)
    assert said in line
    assert ("as timed" in line) == ("as timed" in said)
