"""What an answer holds for is in the answer: above tables, and in ``assumed`` what nobody gave."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hocket.network import save_network
from tests.unit.cli.test_commands import BRANCHES, CARAMEL, hocket, in_tmp, refused
from tests.unit.network.test_measured import some_file

__all__ = ["in_tmp"]

FEW = ("--workers", "2", "--steps", "4")
TUNED = ("--budget", "1ms", "--iterations", "2")


def told(*arguments: str) -> Any:
    ran = hocket(*arguments, "--json")
    assert ran.status == 0, ran.err
    return json.loads(ran.out)


def shown(*arguments: str) -> str:
    ran = hocket(*arguments)
    assert ran.status == 0, ran.err
    return ran.out


@pytest.mark.parametrize(
    ("arguments", "architecture", "mode", "policy"),
    [
        ([], "allreduce", "sync", "ddp"),
        (["--mode", "sync"], "allreduce", "sync", "ddp"),
        (["--pattern", "ring"], "allreduce", "sync", "ddp"),
        (["--policy", "caramel"], "allreduce", "sync", "caramel"),
        (["--plan", CARAMEL], "allreduce", "sync", "caramel"),
        (["--architecture", "ps"], "ps", "async", "fifo"),
        (["--mode", "async"], "ps", "async", "fifo"),
        (["--servers", "1"], "ps", "async", "fifo"),
        (["--servers", "2", "--mode", "sync"], "ps", "sync", "fifo"),
        (["--policy", "tac"], "ps", "async", "tac"),
        (["--window", "off"], "ps", "async", "fifo"),
        (["--spread"], "ps", "async", "fifo"),
        (["--updates", "commit"], "ps", "async", "fifo"),
        (["--backup", "1", "--mode", "sync"], "ps", "sync", "fifo"),
        (["--server-bandwidth", "1Gbit/s"], "ps", "async", "fifo"),
    ],
)
def test_predictions_are_of_synchronous_all_reduce_unless_servers_are_asked_for(
    arguments: list[str], architecture: str, mode: str, policy: str
) -> None:
    (row,) = told("predict", BRANCHES, *FEW, *arguments)
    assert (row["architecture"], row["mode"], row["policy"]) == (architecture, mode, policy)
    assert (row["servers"] > 0) == (architecture == "ps")


def test_a_prediction_names_what_nobody_gave() -> None:
    (row,) = told("predict", BRANCHES, *FEW)
    expected = {
        "architecture": "allreduce",
        "mode": "sync",
        "policy": "ddp",
        "bandwidth_bps": 1e10,
        "startup_s": 0.0,
    }
    expected |= {"parse_s": 0.0, "parse_s_per_byte": 0.0, "pattern": "ring or tree", "skip": 2, "seed": 0}
    assert {key: row["assumed"].get(key) for key in expected} == expected
    given_or_of_servers = {"workers", "steps", "servers", "updates", "window_bytes", "bandwidth", "json"}
    assert not row["assumed"].keys() & given_or_of_servers
    (row,) = told("predict", BRANCHES, *FEW, "--mode", "async", "--bandwidth", "1Gbit/s", "--seed", "3")
    assert row["assumed"]["window_bytes"] == 28e6
    assert (row["assumed"]["servers"], row["assumed"]["updates"]) == ("1", "arrival")
    assert not row["assumed"].keys() & {"mode", "architecture", "bandwidth_bps", "seed", "pattern", "fusion"}


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            ["predict", BRANCHES, *FEW],
            "toy, batches of 4 a worker, gradients not clipped; given"
            ": steps 4; by default: architecture allreduce, mode sync,"
            " policy ddp, bandwidth 10 Gbit/s, startup 0 s, pattern ring or tree by size"
            "; an update: 4 examples a worker, so 8 with 2 workers"
            "; each worker: one device, a link of its own, all steps equally long, so that none waits for a"
            " slower one (--jitter 0.05: they vary)",
        ),
        (
            ["predict", BRANCHES, *FEW, "--policy", "tac", "--latency", "50us", "--parse-beta", "10us"],
            "toy, batches of 4 a worker, gradients not clipped; given"
            ": policy tac, startup 50 µs, parsing 10 µs a message, steps 4;"
            " policy tac: "
            "architecture ps; by default: mode async, window 28 MB, updates on arrival (of"
            " different workers at once), each as long as on the profiled worker, bandwidth 10 Gbit/s"
            "; each worker: one device, a link of its own",
        ),
        (
            ["predict", BRANCHES, *FEW, "--plan", CARAMEL, "--pattern", "tree", "--bandwidth", "10 Mbps"],
            "toy, batches of 4 a worker, gradients not clipped; given"
            f": bandwidth 10 Mbit/s, pattern tree, steps 4; {CARAMEL}:"
            " architecture allreduce, policy caramel; by default: mode sync, startup 0 s"
            "; an update: 4 examples a worker, so 8 with 2 workers"
            "; each worker: one device, a link of its own, all steps equally long, so that none waits for a"
            " slower one (--jitter 0.05: they vary)",
        ),
        (
            ["simulate", BRANCHES, "--policy", "tac", "--workers", "2"],
            "toy, batches of 4 a worker, gradients not clipped; given"
            ": policy tac, workers 2; policy tac: architecture ps;"
            " always: mode "
            "sync; by default: servers 1, window off, bandwidth 10 Gbit/s, startup 0 s",
        ),
        (
            ["tune", BRANCHES, *TUNED, "--window", "28MB"],
            "toy, batches of 4 a worker, gradients not clipped; given"
            ": window 28 MB, budget 1ms, iterations 2; --window:"
            " architecture ps; always: mode sync; by default: workers 4, servers 1, bandwidth 10 Gbit/s,"
            " startup 0 s",
        ),
        (
            ["tune", BRANCHES, *TUNED],
            "toy, batches of 4 a worker, gradients not clipped; given"
            ": budget 1ms, iterations 2; always: mode sync; by default:"
            " architecture allreduce, workers 4, bandwidth 10 Gbit/s,"
            " startup 0 s, pattern ring or tree by size",
        ),
    ],
)
def test_assumptions_are_the_line_below_the_answer(in_tmp: Path, arguments: list[str], line: str) -> None:
    assert shown(*arguments).splitlines()[1] == line


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        (
            ["bench", "plan", BRANCHES, "--policies", "tac", "--repeats", "1"],
            ["workers 8 (default), servers 1"],
        ),
        (
            ["bench", "sim", BRANCHES, "--workers", "1", "--repeats", "1"],
            ["policy tac (default)\nbandwidth 10 "],
        ),
    ],
)
def test_a_benchmarks_table_stands_below_what_it_is_for(
    in_tmp: Path, arguments: list[str], lines: list[str]
) -> None:
    out = shown(*arguments)
    assert out.startswith("\n".join(lines))


def test_a_plan_says_on_standard_error_what_it_is_for(in_tmp: Path) -> None:
    ran = hocket("plan", BRANCHES, "--policy", "search", "--budget", "1ms")
    answer, assumptions = ran.err.splitlines()
    assert answer.startswith(
        "search: 16 s a step on 4 workers at 10 Gbit/s, as long as ddp (buckets of 25 MiB), and no order"
    )
    assert assumptions.startswith(
        "toy, batches of 4 a worker, gradients not clipped; given"
        ": policy search, budget 1ms; always: mode sync; by default: "
    )
    assert json.loads(ran.out)["architecture"] == "allreduce"


def test_numbers_of_a_file_are_the_files(in_tmp: Path) -> None:
    Path("mine.json").write_text('{"format": "hocket.network/1", "bandwidth_bps": 1e9, "parse_s": 1e-5}')
    out = shown("predict", BRANCHES, *FEW, "--network", "mine.json", "--latency", "1ms")
    assert (
        "; given: startup 1 ms, steps 4; mine.json: bandwidth 1 Gbit/s, parsing 10 µs a message; by default: "
        in out
    )
    assert " a byte" not in out.splitlines()[1]  # what is 0 by default is left out
    save_network(some_file(), "timed.json")
    out = shown("predict", BRANCHES, *FEW, "--network", "timed.json")
    assert "; measured, timed.json: bandwidth " in out
    assert "all-reduces as timed between 4 workers; by default: " in out
    # Where an option changes the measured network, all-reduces follow from the numbers.
    out = shown("predict", BRANCHES, *FEW, "--network", "timed.json", "--latency", "1ms")
    assert "pattern ring or tree by size" in out.partition("by default: ")[2]
    (row,) = told("predict", BRANCHES, *FEW, "--network", "timed.json")
    assert not row["assumed"].keys() & {"bandwidth_bps", "startup_s", "pattern"}


def test_a_steps_caveat_is_a_sentence_of_the_answer(in_tmp: Path) -> None:
    Path("step.json").write_text(json.dumps({**json.loads(Path(BRANCHES).read_text()), "caveat": "too long"}))
    made = ["plan", "step.json", "--policy", "ddp", "-o", "plan.json"]
    for command in (["predict", "step.json", *FEW], ["tune", "step.json", *TUNED], made):
        for quiet in ([], ["--quiet"]):
            assert "Caution: too long." in hocket(*command, *quiet).out.splitlines()
    assert "Caution: too long." in shown("simulate", "step.json", "--policy", "ddp").splitlines()
    assert told("predict", "step.json", *FEW)[0]["assumed"]["caveat"] == "too long"
    assert told("simulate", "step.json", "--policy", "ddp")["assumed"]["caveat"] == "too long"
    assert told("tune", "step.json", *TUNED)["assumed"]["caveat"] == "too long"


def test_rows_and_rankings_name_what_nobody_gave(in_tmp: Path) -> None:
    row = told("simulate", BRANCHES, "--policy", "tac", "--bandwidth", "1kbit/s")
    assert row["assumed"]["startup_s"] == 0.0
    assert (row["assumed"]["workers"], row["assumed"]["iterations"]) == (1, 20)
    assert not row["assumed"].keys() & {"policy", "bandwidth_bps", "pattern", "json", "wide"}
    Path("row.json").write_text(json.dumps(row))
    assert hocket("report", "row.json", "-o", "page.html").status == 0
    tuned = told("tune", BRANCHES, *TUNED)
    assert (tuned["assumed"]["architecture"], tuned["assumed"]["workers"]) == ("allreduce", 4)
    assert {each["architecture"] for each in tuned["ranked"]} == {"allreduce"}
    bench = told("bench", "sim", BRANCHES, "--workers", "1", "--repeats", "1")
    assert (bench["assumed"]["policy"], bench["assumed"]["bandwidth_bps"]) == ("tac", 1e10)


def test_servers_and_a_policy_without_any_do_not_fit() -> None:
    for command in (["predict", "--steps", "4"], ["simulate"], ["plan"]):
        line = refused(hocket(command[0], BRANCHES, *command[1:], "--policy", "ddp", "--servers", "2"))
        assert "all-reduce has none to choose" in line
