"""The next command of an answer: no search for an order where none gains, and a doubtful step first."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import hocket
from hocket.graph.step import MEASURE_AGAIN
from tests.unit.cli.test_commands import BRANCHES, in_tmp
from tests.unit.cli.test_commands import hocket as run

__all__ = ["in_tmp"]

SLOW = ("--bandwidth", "1kbit/s", "--latency", "250ms", "--workers", "2")
TUNED = ("--budget", "1s")
NOWHERE = ("--bandwidth", "1bit/s", "--workers", "4")


def screen(*command: str) -> tuple[list[str], str]:
    """The lines of a command's answer, and the command that it says comes next."""
    ran = run(*command)
    assert ran.status == 0, ran.err
    *lines, last = (line for line in ran.out.splitlines() if not line.startswith("Then: "))
    assert last.startswith("Next: ")
    return lines, last.removeprefix("Next: ")


def following(*command: str) -> str:
    return screen(*command)[1]


def test_where_computing_is_all_of_a_step_the_next_commands_end(in_tmp: Path) -> None:
    asked = ("predict", BRANCHES, "--workers", "2,4")
    said = following(*asked, "--steps", "20")
    assert said == (
        f"hocket predict {BRANCHES} --workers 2,4 --jitter 0.05  # computing takes 100% of a step with 4"
        " workers: reordering transfers could save nothing; do steps that vary, as real ones do, wait much?"
    )
    varied = following(*asked, "--jitter", "0.05")
    assert varied.startswith(
        "hocket rent --example-offers > offers.csv  # computing takes 96% and waiting for slower workers 4%"
        " of a step with 4 workers: reordering transfers could save nothing;"
    )
    assert varied.endswith(
        "for updates of 8 examples, as 2 workers have: hocket rent FILE.py:FACTORY --offers offers.csv"
        " --examples 90M --global-batch 8"
    )


def test_the_command_that_rents_derives_the_model_as_the_step_was(in_tmp: Path) -> None:
    way = ("--batch-size", "64", "--precision", "amp", "--channels-last")
    assert run("profile", "resnet18", "--device", "h100", *way, "-o", "step.json").status == 0
    said = following("predict", "step.json", "--gpus-per-node", "8", "--workers", "8", "--jitter", "0.01")
    assert (
        f"hocket rent resnet18 {' '.join(way)} --offers offers.csv --examples 90M --global-batch 512" in said
    )


def test_where_no_order_gains_more_workers_are_asked_about(in_tmp: Path) -> None:
    assert following("tune", BRANCHES, "--workers", "4", *TUNED) == (
        f"hocket predict {BRANCHES} --workers 8,16  # the order of transfers gains nothing: more workers?"
    )


def test_more_workers_that_were_tried_and_are_slower_are_not_asked_about(in_tmp: Path) -> None:
    nodes = ("--gpus-per-node", "2", "--intra-bandwidth", "450GB/s", "--latency", "20s", "--steps", "20")
    said = following("predict", BRANCHES, "--workers", "2,4", *nodes)
    assert said.startswith("hocket tune ")
    assert said.endswith(" --workers 4  # does another plan make 4 faster?")
    said = following("predict", BRANCHES, "--workers", "2,8", *nodes, "--latency", "100s")
    assert said.startswith(f"hocket predict {BRANCHES} --workers 4,8 ")  # 4 were not tried


def test_where_the_network_is_all_of_a_step_a_faster_one_is_asked_about(in_tmp: Path) -> None:
    said = following("tune", BRANCHES, *NOWHERE, *TUNED)
    assert said.startswith(
        f"hocket predict {BRANCHES} --workers 4 --bandwidth 10bit/s  # the order of transfers"
    )
    assert said.endswith(": a faster network?")


def test_where_an_order_gains_it_is_asked_about_and_trained_by(in_tmp: Path) -> None:
    assert following("predict", BRANCHES, *SLOW, "--steps", "20").startswith("hocket tune ")
    assert following("simulate", BRANCHES, *SLOW).startswith("hocket tune ")
    assert following("tune", BRANCHES, *SLOW, *TUNED).startswith("hocket train --plan ")


def test_a_plan_that_gains_nothing_is_followed_by_the_ranking(in_tmp: Path) -> None:
    made = ("plan", BRANCHES, *SLOW, "-o", "plan.json", "--policy")
    assert following(*made, "bytescheduler").startswith("hocket tune ")
    assert following("simulate", BRANCHES, *SLOW, "--plan", "plan.json").startswith("hocket tune ")
    assert following(*made, "caramel").startswith("hocket train --plan plan.json ")


@pytest.mark.parametrize(
    "command",
    [
        ("predict", "--steps", "20"),
        ("tune", *TUNED),
        ("simulate",),
        ("plan", "--policy", "caramel", "-o", "p"),
    ],
)
def test_a_step_to_measure_again_is_measured_again(in_tmp: Path, command: tuple[str, ...]) -> None:
    step = json.loads(Path(BRANCHES).read_text())
    Path("step.json").write_text(
        json.dumps({**step, "caveat": f"measured on a busy machine; {MEASURE_AGAIN}"})
    )
    said = following(command[0], "step.json", *SLOW, *command[1:])
    assert said.startswith("hocket profile ... -o step.json  # once more")


def test_a_step_to_measure_again_is_trained_by_afterwards(in_tmp: Path) -> None:
    step = json.loads(Path(BRANCHES).read_text())
    Path("step.json").write_text(json.dumps({**step, "caveat": f"busy; {MEASURE_AGAIN}"}))
    lines = run("tune", "step.json", *SLOW, *TUNED).out.splitlines()
    assert re.fullmatch(
        r"Then: hocket train --nnodes .* train\.py  # your script, which calls hocket\.distribute, which"
        r" chooses a plan itself \(--plan step\.tuned\.plan\.json would hold this one\)",
        lines[-1],
    )


def test_a_step_to_measure_again_is_not_where_a_faster_one_would_gain_nothing_either(in_tmp: Path) -> None:
    step = json.loads(Path(BRANCHES).read_text())
    Path("step.json").write_text(json.dumps({**step, "caveat": f"busy; {MEASURE_AGAIN}"}))
    lines, said = screen(
        "tune", "step.json", "--bandwidth", "1Mbit/s", "--latency", "0s", "--workers", "2", *TUNED
    )
    caution = next(i for i, line in enumerate(lines) if MEASURE_AGAIN in line)
    assert lines[caution + 1].startswith("One thing it decides: rho is under 0.01, with computing 32 times")
    assert re.fullmatch(
        r"hocket predict step\.json .*  # rho is under 0\.01, with computing 32 times as fast still under"
        r" 0\.5: an order of transfers gains nothing: more workers\?",
        said,
    )


@pytest.mark.parametrize(
    ("bandwidth", "said"),
    [
        ("1kbit/s", r"hocket train --nnodes 2 .*calls hocket\.distribute"),
        ("10kbit/s", r"hocket predict step\.json .*  # the gain may be zero: more workers\?"),
    ],
)
def test_a_plan_whose_gain_may_be_zero_is_not_held(in_tmp: Path, bandwidth: str, said: str) -> None:
    step = json.loads(Path(BRANCHES).read_text())
    for operation in step["operations"]:
        (duration_s,) = operation["duration_s"]
        operation["duration_s"] = [share * duration_s for share in (0.5, 1.0, 1.5)]
    Path("step.json").write_text(json.dumps(step))
    link = ("--bandwidth", bandwidth, "--latency", "250ms", "--workers", "2")
    lines, command = screen("tune", "step.json", *link, *TUNED)
    assert any("so it may be zero" in line for line in lines)
    assert re.fullmatch(said, command)


def test_a_copy_in_each_node_that_is_faster_is_told_by_tune(in_tmp: Path) -> None:
    step = Path(__file__).parents[3] / "examples" / "resnet50_h100.step.json.gz"
    nodes = ("--gpus-per-node", "8", "--workers", "16", "--bandwidth", "10Gbit/s", "--iterations", "2")
    sharded = ("tune", str(step), "--architecture", "fsdp", "--budget", "0.1s", *nodes)
    ran = run(*sharded)
    assert "with one in each node (--shards 8), not ranked here, a step takes " in ran.out
    assert re.search(r"Next: hocket tune .* --shards 8  # a copy in each node", ran.out)
    assert "not ranked here" not in run(*sharded, "--shards", "8").out


def test_what_binds_a_sharded_step_is_told_and_what_sends_less(in_tmp: Path) -> None:
    step = Path(__file__).parents[3] / "examples" / "resnet50_h100.step.json.gz"
    sharded = (str(step), "--architecture", "fsdp", "--steps", "20", "--workers", "64")
    said = following("predict", *sharded, "--bandwidth", "3Gbit/s")
    assert re.fullmatch(
        r"hocket tune .* --workers 64 --architecture fsdp"
        r"  # the network takes 9\d% of a step: units that stay gathered send less",
        said,
    )
    said = following("predict", *sharded, "--bandwidth", "2Gbit/s", "--policy", "fsdp-zero2")
    assert re.search(r" --bandwidth 20Gbit/s .*# the network takes 9\d% of a step: a faster network\?$", said)


def test_a_sharded_step_that_the_network_between_nodes_binds_is_asked_about_with_a_copy_a_node(
    in_tmp: Path,
) -> None:
    step = Path(__file__).parents[3] / "examples" / "resnet50_h100.step.json.gz"
    sharded = ("predict", str(step), "--architecture", "fsdp", "--steps", "20")
    hocket.save_cluster(
        hocket.ClusterFile(gpus_per_node=8, intra_bandwidth_bps=3.6e12, bandwidth_bps=10e9), "c.json"
    )
    nodes = ("--gpus-per-node", "8", "--bandwidth", "10Gbit/s", "--latency", "0s")
    for network in (nodes, ("--cluster", "c.json")):
        said, next_line = screen(*sharded, "--workers", "8,16", *network)
        assert re.search(r"^hocket predict .* --workers 8,16 --shards 8  # ", next_line)
        assert next_line.endswith("# a copy in each node (HSDP) sends less between them")
        # Copies are the answer where they decide, and a remark on it elsewhere.
        copies, whole = sorted(said[:2], key=lambda line: not line.startswith("With a copy "))
        told = re.match(
            r"With a copy .* \(--shards 8\) 16 workers reach (\S+ k examples/s), (\S+) times", copies
        )
        assert ", one copy among all: 16 workers are slower than 8 " in whole
        assert told is not None
        assert (copies == said[0]) == (float(told[2]) >= 1.1)
        grouped, _ = screen(*sharded, "--workers", "16", *network, "--shards", "8")
        assert f": 16 workers reach {told[1]} " in grouped[0]
    for other in (("16", "--shards", "8"), ("8",), ("12",)):
        assert "HSDP" not in following(*sharded, "--workers", *other, *nodes)
    assert "HSDP" not in following(*sharded, "--workers", "8,16", *nodes, "--bandwidth", "1Gbit/s")
    made = ("plan", str(step), "--architecture", "fsdp", "--workers", "16", *nodes)
    following(*made, "--policy", "fsdp", "-o", "plan.json")
    assert "HSDP" not in following(*sharded, "--workers", "16", *nodes, "--plan", "plan.json")


def test_a_plan_of_gpus_that_torch_has_as_a_setting_names_it(in_tmp: Path) -> None:
    step = Path(__file__).parents[3] / "examples" / "resnet50_h100.step.json.gz"
    made = ("plan", str(step), "--architecture", "fsdp", "--workers", "2", "--bandwidth", "10Gbit/s")
    said = following(*made, "-o", "plan.json", "--policy", "fsdp-zero2")
    assert said.endswith(
        "; no GPU has run it; torch's own fully_shard(..., reshard_after_forward=False) is much the same"
    )
    assert "reshard_after_forward" not in following(*made, "-o", "plan.json", "--policy", "fsdp-ibatch")
