"""``--network FILE`` on the commands that plan for a network, and requests that cannot be measured."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from hocket.network import NetworkFile, save_network
from tests.unit.cli.test_commands import BRANCHES, STEP, Ran, hocket, in_tmp, refused
from tests.unit.network.test_measured import some_file

__all__ = ["in_tmp"]

SERVERS = {"format": "hocket.network/1", "bandwidth_bps": 1e3, "startup_s": 0.25}
MEETING = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
REDUCED = {**SERVERS, "allreduce": {"workers": 2, "a_s": 0.5, "b_s_per_byte": 0.004}}


@pytest.fixture(autouse=True)
def files(in_tmp: Path) -> None:
    Path("servers.json").write_text(json.dumps(SERVERS))
    Path("reduced.json").write_text(json.dumps(REDUCED))


def iteration_s(*arguments: str) -> float:
    ran = hocket("simulate", BRANCHES, "--workers", "2", *arguments, "--json")
    assert ran.status == 0, ran.err
    return float(json.loads(ran.out)["iteration_s"])


def test_a_file_is_the_network_that_its_options_describe() -> None:
    tac = iteration_s("--policy", "tac", "--bandwidth", "1kbit/s", "--latency", "250ms")
    assert iteration_s("--policy", "tac", "--network", "servers.json") == tac
    assert iteration_s("--policy", "tac", "--network", "reduced.json") == tac
    assert iteration_s("--policy", "tac") < tac


@pytest.mark.parametrize(
    "command",
    [
        ["simulate", BRANCHES, "--policy", "tac"],
        ["plan", BRANCHES, "--policy", "tac"],
        ["predict", BRANCHES, "--steps", "4"],
        ["tune", BRANCHES, "--budget", "1ms"],
        ["bench", "sim", BRANCHES, "--repeats", "1"],
        ["bench", "plan", BRANCHES, "--policies", "tac", "--repeats", "1"],
    ],
)
def test_a_key_that_nothing_reads_is_named_once(command: list[str]) -> None:
    Path("mine.json").write_text(json.dumps({**SERVERS, "gpus_per_node": 8, "startup": 1e-5}))
    ran = hocket(*command, "--network", "mine.json")
    assert ran.status == 0
    assert ran.err.count("mine.json: 'gpus_per_node', 'startup' (did you mean 'startup_s'?) are ignored") == 1
    assert "ignored" not in ran.out


def test_what_is_given_wins_over_the_file() -> None:
    given = ("--bandwidth", "2kbit/s", "--latency", "0s")
    for policy in ("tac", "ddp"):
        expected = iteration_s("--policy", policy, *given)
        assert iteration_s("--policy", policy, "--network", "reduced.json", *given) == expected
    both = iteration_s("--policy", "tac", "--bandwidth", "2kbit/s", "--latency", "250ms")
    assert iteration_s("--policy", "tac", "--network", "servers.json", "--bandwidth", "2kbit/s") == both


def test_all_reduces_cost_what_was_measured_until_an_option_says_otherwise() -> None:
    # DDP's one bucket: 4 gradients of branches.step.json, after all of the backward pass.
    sizes = [parameter["bytes"] for parameter in json.loads(Path(BRANCHES).read_text())["parameters"]]
    free = iteration_s("--policy", "ddp", "--bandwidth", "1e18bit/s", "--latency", "0s")
    measured = iteration_s("--policy", "ddp", "--network", "reduced.json")
    assert measured == pytest.approx(free + 0.5 + 0.004 * sum(sizes), rel=1e-6)
    ring = ("--policy", "ddp", "--pattern", "ring")
    computed = iteration_s(*ring, "--bandwidth", "1kbit/s", "--latency", "250ms")
    assert iteration_s(*ring, "--network", "reduced.json") == computed
    parsing = iteration_s("--policy", "ddp", "--network", "reduced.json", "--parse-beta", "1s")
    expected = ("--bandwidth", "1kbit/s", "--latency", "250ms", "--parse-beta", "1s")
    assert parsing == iteration_s("--policy", "ddp", *expected)


@pytest.mark.parametrize("policy", ["wfbp", "ddp", "horovod", "caramel", "search", "exact"])
def test_every_planner_of_all_reduces_takes_measured_ones(policy: str) -> None:
    arguments = (
        BRANCHES,
        "--policy",
        policy,
        "--network",
        "reduced.json",
        "--workers",
        "4",
        "--budget",
        "1s",
    )
    ran = hocket("plan", *arguments, "-o", "plan.json", "--architecture", "allreduce")
    assert ran.status == 0, ran.err
    predicted = json.loads(Path("plan.json").read_text())["predicted"]
    assert predicted["bound_s"] <= predicted["iteration_s"] * (1 + 1e-9)


def test_tune_takes_a_file() -> None:
    ran = hocket(
        *(
            "tune",
            BRANCHES,
            "--network",
            "reduced.json",
            "--architecture",
            "allreduce",
            "--budget",
            "1s",
            "--json",
        )
    )
    assert ran.status == 0, ran.err
    document = json.loads(ran.out)
    assert all(row["bound_s"] <= row["iteration_s"] * (1 + 1e-9) for row in document["ranked"])


def test_no_output_goes_over_the_file() -> None:
    before = Path("servers.json").read_bytes()
    network = ("--network", "servers.json")
    for arguments in (
        ("plan", STEP, "--policy", "tac", *network, "-o", "servers.json"),
        ("simulate", STEP, "--policy", "tac", *network, "--timeline", "servers.json"),
        ("tune", STEP, *network, "-o", "servers.json"),
        ("tune", STEP, *network, "--report", "servers.json"),
    ):
        assert "is also an input" in refused(hocket(*arguments))
    assert Path("servers.json").read_bytes() == before


def with_error(rms_error: float, fit: str = "allreduce") -> NetworkFile:
    """A measured network, one of whose fits is off by so much."""
    file = some_file()
    assert file.fits is not None
    changed = msgspec.structs.replace(getattr(file.fits, fit), rms_error=rms_error, max_error=2 * rms_error)
    return msgspec.structs.replace(file, fits=msgspec.structs.replace(file.fits, **{fit: changed}))


def measure(monkeypatch: pytest.MonkeyPatch, file: NetworkFile, *arguments: str) -> Ran:
    monkeypatch.setattr("hocket.profiler.measure_network", lambda **_: file)
    ran = hocket("network", "measure", *arguments)
    assert ran.status == 0, ran.err
    return ran


@pytest.mark.parametrize(
    ("workers", "said"),
    [
        ("", "NCCL is measured between processes with a GPU each; start them with torchrun"),
        ("1", "between 1 workers there is no network; give at least 2"),
        ("2", "torch finds no GPU here, and process 0 of this machine needs its own"),
    ],
)
def test_nccl_is_not_measured_without_a_gpu_for_each_of_torchruns_processes(
    monkeypatch: pytest.MonkeyPatch, workers: str, said: str
) -> None:
    launched = {"RANK": "0", "WORLD_SIZE": workers, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
    for name, value in launched.items() if workers else ():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    ran = hocket("network", "measure", "--backend", "nccl")
    assert ran.status == 2
    assert said in refused(ran)


def test_what_was_measured_is_a_table_for_people(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = measure(monkeypatch, some_file(), "-o", "net.json")
    answer, setup, headings, *rows = ran.out.splitlines()
    assert answer == (
        "9.38 Gbit/s and 100 µs a transfer between 4 workers on loopback; fits of transfers and all-reduces "
        "are within 0.1% (rms) of what was timed: plan by them."
    )
    assert setup.startswith("loopback, gloo, torch 2.13.0")
    assert headings.split() == ["Fit", "Of", "Value", "Points", "Rms", "error", "Largest"]
    words = [row.split() for row in rows]
    assert ["transfers", "bandwidth", "9.38", "Gbit/s", "10", "0.0%", "0.0%"] in words
    assert ["startup", "100", "µs"] in words
    assert ["all-reduces", "a", "669", "µs", "10", "0.0%", "0.0%"] in words
    assert ["all-reduces", "at", "once", "eta,", "a", "byte", "0.234", "ns", "8", "0.0%", "0.0%"] in words
    assert rows[-1] == "Next: hocket predict step.json --network net.json"
    assert measure(monkeypatch, some_file(), "-q").out == f"{answer}\n"


@pytest.mark.parametrize(
    ("rms_error", "said"), [(0.26, "plan by it with care"), (0.822, "do not plan by it")]
)
def test_a_measurement_that_lies_on_no_line_says_so(
    monkeypatch: pytest.MonkeyPatch, rms_error: float, said: str
) -> None:
    ran = measure(monkeypatch, with_error(rms_error), "-o", "net.json")
    off = f"all-reduces is off by up to {rms_error:.0%} (rms; one time by {2 * rms_error:.0%}): {said}"
    assert off in ran.out.splitlines()[0]
    assert ran.out.splitlines()[-1] == "Next: hocket network measure -o net.json --repeats 50 --timeout 600s"
    assert off in measure(monkeypatch, with_error(rms_error), "--json").err


def test_where_time_allowed_few_timings_more_time_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    file = with_error(0.8)
    assert file.host is not None
    file = msgspec.structs.replace(file, host=msgspec.structs.replace(file.host, repeats=1))
    ran = measure(monkeypatch, file, "-o", "net.json", "--timeout", "60s")
    lines = ran.out.splitlines()
    assert lines[0].endswith(": do not plan by it, measure again while nothing else runs.")
    assert lines[-1] == "Next: hocket network measure -o net.json --repeats 10 --timeout 600s"
    assert "each size was timed 1 time, not 10 times" in ran.err
    assert "raise that" not in ran.err


@pytest.mark.parametrize(
    "command",
    [
        ["simulate", BRANCHES, "--policy", "ddp"],
        ["plan", BRANCHES, "--policy", "ddp"],
        ["predict", BRANCHES, "--steps", "4", "--workers", "2"],
        ["tune", BRANCHES, "--budget", "1ms"],
        ["simulate", BRANCHES, "--policy", "ddp", "-q"],
    ],
)
def test_a_file_that_nothing_can_be_planned_by_says_so_wherever_it_is_given(command: list[str]) -> None:
    save_network(with_error(0.822), "net.json")
    save_network(with_error(0.25), "good.json")
    ran = hocket(*command, "--network", "net.json")
    assert ran.status == 0
    warning = "net.json: unusable for all-reduces: times are off the fit by 82% (rms, at most 164%)"
    assert ran.err.count(warning) == 1
    assert "rms" not in hocket(*command, "--network", "good.json").err


def test_fits_that_options_replace_are_not_warned_of() -> None:
    save_network(with_error(0.3), "reductions.json")
    save_network(with_error(0.3, "transfer"), "transfers.json")
    command = ("simulate", BRANCHES, "--policy", "ddp")
    assert "rough for all-reduces" in hocket(*command, "--network", "reductions.json").err
    assert "rough for transfers" in hocket(*command, "--network", "transfers.json").err
    for option in (("--latency", "1ms"), ("--pattern", "ring")):
        assert "rms" not in hocket(*command, "--network", "reductions.json", *option).err
    both = ("--bandwidth", "1Gbit/s", "--latency", "1ms")
    assert "rms" not in hocket(*command, "--network", "transfers.json", *both).err


@pytest.mark.parametrize("command", ["plan", "simulate"])
def test_a_file_that_is_no_network_is_refused(command: str) -> None:
    for name, message in ((STEP, "is not 'hocket.network/1'"), ("nowhere.json", "cannot be read")):
        assert message in refused(hocket(command, STEP, "--policy", "tac", "--network", name))
    assert "is not 'hocket.network/1'" in refused(hocket("tune", STEP, "--network", STEP))
    assert "is not 'hocket.network/1'" in refused(hocket("demo", "--network", STEP, "-o", "there"))
    assert not Path("there").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--workers", "1"], "between 1 workers there is no network"),
        (["--workers", "65"], "measure its scheduler"),
        (["--largest", "1kB"], "largest message of 1000 B is not between 1MB and 4GB"),
        (["--largest", "5GB"], "is not between 1MB and 4GB"),
        (["--largest", "big"], "size 'big' is not a number"),
        (["--repeats", "0"], "0 repeats are not between 1 and 10000"),
        (["--concurrent", "0"], "0 concurrent reductions are not between 1 and 64"),
        (["--timeout", "0s"], "timeout of 0 s is not between 1 and 86400"),
        (["-o", "no/where.json"], "does not exist; create it first"),
        (["-o", "."], "is a folder"),
    ],
)
def test_what_cannot_be_measured_gets_one_line(in_tmp: Path, arguments: list[str], message: str) -> None:
    before = sorted(in_tmp.iterdir())
    assert message in refused(hocket("network", "measure", *arguments))
    assert sorted(in_tmp.iterdir()) == before


@pytest.mark.parametrize(
    ("environment", "arguments", "message"),
    [
        ({"RANK": "0"}, [], "RANK is set but WORLD_SIZE is not"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}, [], "MASTER_PORT is not"),
        ({"RANK": "2", "WORLD_SIZE": "2", **MEETING}, [], "RANK 2 of WORLD_SIZE 2 is no place"),
        ({"RANK": "0", "WORLD_SIZE": "two", **MEETING}, [], "WORLD_SIZE two is no place"),
        ({"RANK": "0", "WORLD_SIZE": "1", **MEETING}, [], "between 1 workers there is no network"),
        (
            {"RANK": "0", "WORLD_SIZE": "4", **MEETING},
            ["--workers", "2"],
            "torchrun started 4 workers, not 2",
        ),
    ],
)
def test_a_launcher_that_makes_no_sense_gets_one_line(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], arguments: list[str], message: str
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert message in refused(hocket("network", "measure", *arguments))
