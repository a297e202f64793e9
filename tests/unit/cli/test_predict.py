"""``hocket predict``: one JSON list, answers beside it, and one line for what makes no sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hocket.cli.list_options import bandwidths, counts, speeds
from hocket.errors import HocketError
from tests.unit.cli.test_commands import BRANCHES, CARAMEL, STEP, Ran, hocket, in_tmp, refused

__all__ = ["in_tmp"]

FAST = ("--bandwidth", "1kbit/s", "--steps", "40", "--servers", "1")
FIRST_KEYS = ["workers", "servers", "mode", "throughput", "step_s", "events", "wall_s"]


def predict(*arguments: str, step: str = BRANCHES) -> Ran:
    return hocket("predict", step, *FAST, *arguments)


def rows(*arguments: str) -> list[dict[str, Any]]:
    ran = predict(*arguments, "--json")
    assert ran.status == 0, ran.err
    found: list[dict[str, Any]] = json.loads(ran.out)
    return found


def test_it_prints_one_list_with_the_documented_keys() -> None:
    found = rows("--workers", "1-3")
    assert [row["workers"] for row in found] == [1, 2, 3]
    assert list(found[0])[:7] == FIRST_KEYS
    assert {(row["mode"], row["policy"], row["servers"]) for row in found} == {("async", "fifo", 1)}


def test_people_get_a_table_and_the_answers() -> None:
    ran = predict("--workers", "1,2")
    assert ran.status == 0
    answer, assumptions, exchange, headings, one, two, *legend = ran.out.splitlines()
    assert legend[-2].startswith("Note: the profile has a single sampled step: workers that start together")
    assert answer.startswith(
        "1 server, asynchronous, at 1 kbit/s: no number tried reaches one worker alone, without servers,"
        " 0.286 examples/s. Throughput still grows at 2 workers, 0.152 examples/s"
    )
    assert answer.endswith("; pessimistic, as workers stay in lockstep: see the note.")
    assert assumptions.startswith(
        "toy, batches of 4 a worker, gradients not clipped; given"
        ": bandwidth 1 kbit/s, steps 40; --servers: architecture ps"
    )
    assert exchange.startswith(
        "Each step pulls 1.5 kB to each worker and pushes 1.5 kB from it; with 2 workers and "
    )
    assert exchange.endswith(")")
    assert "Busiest" in headings
    assert (one.split()[0], two.split()[0]) == ("1", "2")
    assert legend[-1].startswith("Next: hocket predict ")
    assert "cynthia" in predict("--workers", "1,2", "--wide").out
    assert predict("--workers", "1,2", "-q").out == f"{answer}\n"
    assert ran.err == ""
    assert "lockstep" in predict("--workers", "1,2", "--json").err
    assert "Note:" not in predict("--workers", "1").out


def test_sixteen_workers_are_the_default() -> None:
    assert [row["workers"] for row in rows()] == list(range(1, 17))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("4", [4]),
        ("1,2,4", [1, 2, 4]),
        ("1-4,8,16", [1, 2, 3, 4, 8, 16]),
        ("8,1-2", [8, 1, 2]),
        ("2,1-3,2", [2, 1, 3]),
        ("3-3", [3]),
        (" 1 - 2 , 100000 ", [1, 2, 100_000]),
    ],
)
def test_lists_and_ranges_of_workers_are_read(text: str, expected: list[int]) -> None:
    assert counts(text, "workers") == expected


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "'' is no count or range"),
        ("1,,2", "'' is no count or range"),
        ("a", "'a' is no count"),
        ("-3", "'-3' is no count"),
        ("1.5", "'1.5' is no count"),
        ("1-2-3", "is no count"),
        ("٣", "is no count"),
        ("0", "not within 1 to 100000"),
        ("0-4", "not within 1 to 100000"),
        ("100001", "not within 1 to 100000"),
        ("99999999999", "is no count"),
        ("4-1", "goes down; write e.g. 1-16"),
    ],
)
def test_what_is_no_number_of_machines(text: str, rule: str) -> None:
    with pytest.raises(HocketError, match=rule):
        counts(text, "workers")


def test_lists_of_speeds_and_bandwidths() -> None:
    assert speeds("1,1,0.5") == (1.0, 1.0, 0.5)
    assert bandwidths("10Gbit/s,1Gbit/s", "worker bandwidth") == (1e10, 1e9)
    with pytest.raises(HocketError, match="speed '1,,2': '' is not a number"):
        speeds("1,,2")
    with pytest.raises(HocketError, match="worker bandwidth '1GB': bandwidth '1GB' has the unit"):
        bandwidths("1GB", "worker bandwidth")


def test_every_combination_of_workers_and_servers_has_a_row() -> None:
    found = rows("--workers", "1,4", "--servers", "1,2")
    assert [(row["workers"], row["servers"]) for row in found] == [(1, 1), (4, 1), (1, 2), (4, 2)]


def operation(name: str, phase: str, **links: list[str]) -> dict[str, Any]:
    nothing: dict[str, Any] = {"inputs": [], "reads": [], "produces": []}
    return {"name": name, "phase": phase, "duration_s": 0.05, **nothing, **links}


def test_the_window_is_28_mb_unless_it_is_off(in_tmp: Path) -> None:
    # A small parameter behind a large one comes earlier where that one is interrupted.
    sizes = {"large": 90_000_000, "small": 1_000_000}
    reads = [operation(f"read {name}", "forward", reads=[name]) for name in sizes]
    inputs = ["read large", "read small"]
    produces = [operation(f"of {name}", "backward", inputs=inputs, produces=[name]) for name in sizes]
    document = {
        "format": "hocket.step/1",
        "model": "two sizes",
        "batch_size": 1,
        "device": "cpu",
        "parameters": [
            {"name": name, "shape": [size // 4], "dtype": "float32", "bytes": size}
            for name, size in sizes.items()
        ],
        "operations": [*reads, *produces],
    }
    Path("sizes.json").write_text(json.dumps(document))

    def throughput(*options: str) -> float:
        ran = hocket(
            "predict", "sizes.json", "--workers", "1", "--servers", "1", "--steps", "40", *options, "--json"
        )
        assert ran.status == 0, ran.err
        return float(json.loads(ran.out)[0]["throughput"])

    assert throughput() == throughput("--window", "28MB") > throughput("--window", "off")
    assert throughput("--mode", "sync") == throughput("--mode", "sync", "--window", "off")


def test_synchronous_all_reduce_and_backup_workers() -> None:
    assert {row["mode"] for row in rows("--workers", "2,4", "--mode", "sync")} == {"sync"}
    found = rows("--workers", "2,4", "--architecture", "allreduce")
    assert {(row["architecture"], row["servers"]) for row in found} == {("allreduce", 0)}
    assert {row["policy"] for row in found} == {"ddp"}
    assert [row["workers"] for row in rows("--workers", "3", "--mode", "sync", "--backup", "1")] == [3]
    planned = rows("--workers", "2", "--plan", CARAMEL)
    assert planned[0]["policy"] == json.loads(Path(CARAMEL).read_text())["policy"]


def test_machines_that_differ_are_slower() -> None:
    (alike,) = rows("--workers", "2")
    for slower in (
        ("--speed", "0.5"),
        ("--worker-bandwidth", "1kbit/s,100bit/s"),
        ("--server-bandwidth", "500bit/s"),
        ("--background", "0.5"),
    ):
        assert rows("--workers", "2", *slower)[0]["throughput"] < alike["throughput"]


def test_few_steps_skip_half_of_them_unless_told() -> None:
    assert rows("--workers", "1", "--steps", "1")[0]["events"] > 0
    assert "skip 50 is not from 0 to below the 40 steps" in refused(predict("--skip", "50"))


def test_prices_give_the_cheapest() -> None:
    priced = ("--workers", "1,2", "--price-per-worker-hour", "0.9", "--price-per-server-hour", "0.1")
    for row in rows(*priced):
        hourly = 0.9 * row["workers"] + 0.1
        assert row["cost_per_example"] == pytest.approx(hourly / 3600 / row["throughput"])
    ran = predict(*priced)
    assert "Cost" in ran.out
    assert ran.out.splitlines()[1].startswith("Cheapest of these rows: ")


def test_repeats_give_intervals() -> None:
    (row,) = rows("--workers", "2", "--policy", "random", "--repeats", "3")
    assert row["throughput_low"] < row["throughput"] < row["throughput_high"]


def test_measured_points_are_compared_and_drawn(in_tmp: Path) -> None:
    throughput = {row["workers"]: row["throughput"] for row in rows("--workers", "1,2")}
    Path("m.csv").write_text(f"workers,throughput\n1,{throughput[1]}\n2,{throughput[2] / 1.1}\n")
    ran = predict("--workers", "1,2", "--measured", "m.csv", "--plot", "page.html")
    assert ran.status == 0, ran.err
    assert "m.csv: mean error at 2 measured points: Hocket 5.0%, lin " in ran.err
    assert "Measured" in ran.out
    assert "Against measurements" in Path("page.html").read_text()


def test_a_timeline_of_the_most_machines(in_tmp: Path) -> None:
    ran = predict("--workers", "1,3", "--timeline", "t.json", "--json")
    assert ran.status == 0, ran.err
    document = json.loads(Path("t.json").read_text())
    assert document["format"] == "hocket.timeline/1"
    processes = {e["args"]["name"] for e in document["traceEvents"] if e["name"] == "process_name"}
    assert {"worker 0", "worker 1", "worker 2"} <= processes


def test_inputs_are_never_overwritten(in_tmp: Path) -> None:
    Path("m.csv").write_text("workers,throughput\n1,5\n")
    Path("s.json").write_bytes(Path(STEP).read_bytes())
    for output in ("m.csv", "s.json"):
        for option in ("--plot", "--timeline"):
            ran = predict("--measured", "m.csv", option, output, step="s.json")
            assert "is also an input" in refused(ran)
    assert "name two files" in refused(predict("--plot", "x", "--timeline", "./x"))


def test_no_output_is_written_where_another_fails(in_tmp: Path) -> None:
    ran = predict("--architecture", "allreduce", "--workers", "2", "--plot", "p.html", "--timeline", "t.json")
    assert "steps that overlap" in refused(ran)
    assert list(in_tmp.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", ""], "workers '': '' is no count or range"),
        (["--servers", "0"], "servers '0'"),
        (["--workers", "1-20000", "--servers", "1-2"], "40000 combinations and repeats are more than 10000"),
        (["--policy", "best"], "policy 'best' is unknown"),
        (["--policy", "tac", "--architecture", "allreduce"], "is not for architecture 'allreduce'"),
        (["--policy", "tac", "--plan", CARAMEL], "beside a plan, which has its own"),
        (["--plan", CARAMEL, "--architecture", "ps"], "is for 'allreduce', not 'ps'"),
        (["--plan", CARAMEL, "--barrier", "step"], "has its own; change it there"),
        (["--plan", STEP], "is not 'hocket.plan/1'"),
        (["--mode", "async", "--architecture", "allreduce"], "mode 'async' needs parameter servers"),
        (["--servers", "1,2", "--architecture", "allreduce"], "all-reduce has none to choose"),
        (["--barrier", "step"], "asynchronous training has none"),
        (["--backup", "1"], "asynchronous training waits for nobody"),
        (["--backup", "2", "--mode", "sync", "--workers", "2"], "leave none to wait for"),
        (["--backup", "-1", "--mode", "sync"], "-1 backup workers"),
        (["--window", "big"], "size 'big' is not a number with a unit; write it like 28MB or 4MiB, or off"),
        (["--window", "-1MB"], "size '-1MB' is negative"),
        (["--speed", "1,nan"], "speed nan is not between"),
        (["--speed", "1,x"], "speed '1,x': 'x' is not a number"),
        (["--speed", "1,1", "--workers", "3"], "2 speeds for 3 workers"),
        (["--worker-bandwidth", "fast"], "worker bandwidth 'fast'"),
        (["--server-bandwidth", "1MB/s,1MB/s", "--servers", "3"], "2 server bandwidths for 3 servers"),
        (["--worker-bandwidth", ""], "worker bandwidth ''"),
        (["--racks", "0"], "0 racks"),
        (["--oversubscription", "nan", "--racks", "2"], "oversubscription nan is not between"),
        (["--oversubscription", "4"], "oversubscription 4.0 of one rack, whose uplink nothing crosses"),
        (
            ["--server-bandwidth", "1MB/s", "--architecture", "allreduce"],
            "a bandwidth of servers: all-reduce",
        ),
        (["--price-per-server-hour", "1", "--policy", "ddp"], "price 1.0 of a server: all-reduce has none"),
        (["--background", "nan"], "background nan is not a fraction"),
        (["--background", "1"], "background 1.0 is not a fraction"),
        (["--steps", "0"], "0 steps are no run"),
        (["--steps", "-5"], "-5 steps are no run"),
        (["--steps", "9" * 20], "99999999999999999999 steps are more than 1000000000"),
        (["--skip", "-1"], "skip -1 is not from 0"),
        (["--repeats", "0"], "0 repeats are no run"),
        (["--price-per-worker-hour", "nan"], "price nan is not between"),
        (["--price-per-server-hour", "-1"], "price -1.0 is not between"),
        (["--pattern", "ring"], "is one of all-reduce"),
        (["--fusion", "64MB"], "is Horovod's"),
        (["--engine", "slurm"], "--engine"),
        (["--mode", "both"], "--mode"),
        (["--network", "nowhere.json"], "cannot be read"),
        (["--measured", "nowhere.csv"], "cannot be read"),
        (["--plot", "no/where.html"], "does not exist; create it first"),
        (["--timeline", "."], "is a folder"),
    ],
)
def test_what_makes_no_sense_gets_one_line(in_tmp: Path, arguments: list[str], message: str) -> None:
    outputs = [] if {"--plot", "--timeline"} & set(arguments) else ["--plot", "page.html"]
    assert message in refused(predict(*outputs, *arguments))
    assert list(in_tmp.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "line 1: needs one column 'workers'"),
        (b"workers\n1\n", "line 1: needs one column 'throughput'"),
        (b"1,50\n2,100\n", "begin with workers,throughput"),
        (b"workers,workers,throughput\n1,1,5\n", "needs one column 'workers'"),
        (b"workers,throughput\n", "holds no measured point"),
        (b"workers,throughput\n1\n", "line 2: has 1 cells, its header 2"),
        (b"workers,throughput\none,5\n", "line 2: workers 'one' is not a number"),
        (b"workers,throughput\n1.5,5\n", "line 2: workers 1.5 is not a count"),
        (b"workers,throughput\n\n1,nan\n", "line 3: throughput nan is not"),
        (b"workers,throughput\n1,-3\n", "line 2: throughput -3 is not"),
        (b"workers,throughput\n1,0\n", "line 2: throughput 0 is no measurement"),
        (b"workers,throughput\n3,5\n", "line 2: 3 workers and 1 server are not asked for"),
        (b"workers,servers,throughput\n1,2,5\n", "line 2: 1 worker and 2 servers are not asked for"),
        (b"workers,throughput\n1,\xff\n", "is not UTF-8"),
        (b'workers,throughput\n1,"5\n', "is not CSV"),
    ],
)
def test_measurements_that_do_not_read(in_tmp: Path, content: bytes, message: str) -> None:
    Path("m.csv").write_bytes(content)
    line = refused(predict("--workers", "1,2", "--measured", "m.csv", "--plot", "page.html"))
    assert line.startswith("hocket: m.csv: ")
    assert message in line
    assert not Path("page.html").exists()


def test_servers_must_be_in_the_csv_where_there_are_several(in_tmp: Path) -> None:
    Path("m.csv").write_text("workers,throughput\n1,5\n")
    several = ("--workers", "1", "--servers", "1,2", "--measured", "m.csv")
    assert "needs a column 'servers'" in refused(predict(*several))
    Path("m.csv").write_text("servers,workers,throughput,day\n2,1,5,monday\n")
    assert predict(*several).status == 0


def test_a_server_that_has_most_of_the_bytes_is_said(in_tmp: Path) -> None:
    step = json.loads(Path(BRANCHES).read_text())
    largest = max(step["parameters"], key=lambda parameter: parameter["bytes"])
    largest |= {"shape": [25_000], "bytes": 100_000}
    Path("large.json").write_text(json.dumps(step))
    said = "Of 2 servers one has 100% of the bytes, as each parameter is on one server: --policy p3 cuts"
    asked = ["predict", "large.json", "--servers", "1,2", "--workers", "2", "--steps", "40"]
    assert said in hocket(*asked).out
    assert "of the bytes" not in hocket(*asked, "--policy", "p3").out
    assert "of the bytes" not in hocket("predict", BRANCHES, *asked[2:]).out


def test_jitter_makes_workers_wait_for_each_other(in_tmp: Path) -> None:
    few = ("--workers", "4", "--steps", "40", "--json")
    (alike,) = json.loads(hocket("predict", BRANCHES, *few).out)
    (varied,) = json.loads(hocket("predict", BRANCHES, *few, "--jitter", "0.1").out)
    assert varied["throughput"] < 0.95 * alike["throughput"]
    assert (alike["assumed"]["jitter"], varied["given"]["jitter"]) == (0.0, 0.1)
    assert "never" not in hocket("predict", BRANCHES, *few[:-1], "--jitter", "0.1").out


def test_workers_that_are_gpus_are_called_so_for_people_alone() -> None:
    step = str(Path(__file__).parents[3] / "examples" / "resnet50_h100.step.json.gz")
    command = (
        "predict",
        step,
        "--steps",
        "20",
        "--workers",
        "8",
        "--gpus-per-node",
        "8",
        "--bandwidth",
        "1Gbit/s",
    )
    told = hocket(*command)
    assert told.status == 0, told.err
    assert "worker GPUs 100%" in told.out
    assert "worker processors" not in told.out
    (row,) = json.loads(hocket(*command, "--json").out)
    assert row["bottleneck"] == "worker processors"
    assert "worker processors" in hocket("predict", BRANCHES, "--steps", "20", "--workers", "1").out
