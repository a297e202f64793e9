"""Networks measured between real processes: whole files, one line for what goes wrong, nobody left behind."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hocket.errors import HocketError
from hocket.network import load_network, reduction_s
from hocket.network.file import AllReduce, Fits, MeasuredPoint, MeasurementHost, NetworkFile
from hocket.network.fit import fit_line
from hocket.ports import free_port
from hocket.profiler import measure_network
from hocket.profiler._exchange import (
    LEAD_BYTES,
    ROW_BYTES,
    ExchangeRequest,
    Task,
    messages_in_a_row,
    repeats_within,
    row_bytes,
    sent_bytes,
)
from hocket.profiler._ranks import _failure
from hocket.profiler.network_measurement import MEASURING
from tests.multiprocess.launch import run
from tests.unit.cli.test_commands import BRANCHES, Ran, hocket

pytestmark = pytest.mark.slow

SMALL = ("--largest", "4MB", "--repeats", "5", "--concurrent", "3")
BIN = Path(sys.executable).parent


def measuring(folder: Path, rank: str = "") -> list[int]:
    """The processes, or that of one rank, that measure now and leave what they measure below ``folder``."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdecimal():
                arguments = (process / "cmdline").read_text()
                if str(folder) in arguments and f'{{"rank":{rank}' in arguments:
                    found.append(int(process.name))
        except OSError:
            continue  # it has ended meanwhile
    return found


def wait_for_workers(folder: Path, count: int) -> None:
    for _ in range(600):
        if len(measuring(folder)) == count:
            return
        time.sleep(0.05)
    raise AssertionError(f"{measuring(folder)} measure, not {count}")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where this test's workers leave what they measure; in the end neither they nor it are left."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path / "temporary"
    # One whose start an interrupt cut short leaves by itself, once it runs.
    wait_for_workers(tmp_path / "temporary", 0)
    assert list((tmp_path / "temporary").glob("hocket-*")) == []


def command(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "hocket", "network", "measure", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def ended(process: subprocess.Popen[str]) -> Ran:
    with process:
        out, err = process.communicate(timeout=60)
    return Ran(process.returncode, out, err)


def check(document: dict[str, Any], workers: int, where: Sequence[str]) -> None:
    assert document["format"] == "hocket.network/1"
    assert document["host"]["workers"] == document["allreduce"]["workers"] == workers
    assert document["host"]["where"] in where
    assert document["host"]["repeats"] == 5
    assert 1e3 < document["bandwidth_bps"] < 1e18
    costs = [document[key] for key in ("startup_s", "parse_s_per_byte", "parse_s")]
    costs += [document["allreduce"][key] for key in ("a_s", "b_s_per_byte", "eta_s_per_byte")]
    assert all(0 <= cost < 10 for cost in costs)
    fits = document["fits"]
    assert [len(fits[name]["points"]) for name in fits] == [7, 7, 9, 3, 5, 5, 5]
    for name, half in document["allreduce"]["halves"].items():
        assert half == {key: fits[name][key] for key in ("a_s", "b_s_per_byte")}
        assert half["b_s_per_byte"] > 0
    assert list(document["allreduce"]["halves"]) == ["gather", "scatter", "exchange"]
    for name, fit in fits.items():
        errors = []
        for point in fit["points"]:
            k, size = point["concurrent"], point["size_bytes"]
            assert 0 < point["seconds"] < 60
            model_s = fit["a_s"] + (k * fit["b_s_per_byte"] + (k - 1) * fit["eta_s_per_byte"]) * size
            errors.append(abs(model_s / point["seconds"] - 1))
        assert fit["max_error"] == pytest.approx(max(errors))
        assert fit["rms_error"] == pytest.approx(math.sqrt(sum(e * e for e in errors) / len(errors)))
        assert [point["concurrent"] for point in fit["points"]] == (
            [1, 2, 3] if name == "contention" else [1] * len(fit["points"])
        )
    # What commands take is what was fitted.
    assert document["bandwidth_bps"] == pytest.approx(8 / fits["transfer"]["b_s_per_byte"])
    assert document["startup_s"] == fits["transfer"]["a_s"]
    assert (document["parse_s"], document["parse_s_per_byte"]) == (
        *(fits["parse"][key] for key in ("a_s", "b_s_per_byte")),
    )
    assert document["allreduce"]["a_s"] == fits["allreduce"]["a_s"] == fits["contention"]["a_s"]
    assert document["allreduce"]["eta_s_per_byte"] == fits["contention"]["eta_s_per_byte"]


def test_processes_here_measure_a_network_that_commands_take(tmp_path: Path) -> None:
    written = tmp_path / "network.json.zst"
    ran = hocket("network", "measure", *SMALL, "--workers", "3", "-o", str(written), "--json")
    assert ran.status == 0, ran.err
    document = json.loads(ran.out)
    check(document, 3, ["loopback"])

    network = load_network(written).network(3)
    assert reduction_s(network, 1e6) == pytest.approx(
        document["allreduce"]["a_s"] + 1e6 * document["allreduce"]["b_s_per_byte"]
    )
    row = hocket(
        "simulate", BRANCHES, "--policy", "ddp", "--network", str(written), "--workers", "3", "--json"
    )
    assert row.status == 0, row.err
    assert json.loads(row.out)["communication_s"] > 0


@pytest.mark.long
def test_ranks_that_a_launcher_started_meet_and_the_first_prints(tmp_path: Path) -> None:
    rendezvous = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port("127.0.0.1"))}
    arguments = (*SMALL, "--json", "-o", str(tmp_path / "network.json"))
    processes = [command(*arguments, RANK=str(rank), **rendezvous) for rank in range(2)]
    first, second = (ended(process) for process in processes)
    assert (first.status, second) == (0, Ran(0, "", "")), first.err
    check(json.loads(first.out), 2, [socket.gethostname()])
    assert json.loads((tmp_path / "network.json").read_text()) == json.loads(first.out)


def test_a_rank_that_never_comes_ends_the_wait(folder: Path) -> None:
    rendezvous = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port("127.0.0.1"))}
    ran = ended(command("--timeout", "1s", RANK="0", **rendezvous))
    assert measuring(folder) == []
    assert ran == Ran(2, "", ran.err)
    said, refusal = ran.err.splitlines()
    assert said.startswith("measuring: 11 rounds of 503 MB a worker, so at least 44.3 s at 1 Gbit/s; fewer")
    assert refusal.startswith("hocket: not all 2 workers met within 1 s; ")
    assert "GLOO_SOCKET_IFNAME" in refusal


def test_measuring_that_takes_too_long_is_ended(folder: Path) -> None:
    with pytest.raises(HocketError, match=r"measuring took longer than 4 s|not all 2 workers met"):
        measure_network(largest_bytes=128_000_000, concurrent=16, timeout_s=4.0)
    assert measuring(folder) == []


@pytest.mark.parametrize(
    ("one_s", "left_s", "made"), [(0.1, 100.0, 10), (5.0, 100.0, 10), (12.0, 100.0, 4), (80.0, 100.0, 1)]
)
def test_a_slow_link_is_measured_as_often_as_the_time_allows(one_s: float, left_s: float, made: int) -> None:
    assert repeats_within(10, one_s, left_s) == made


def test_fewer_repeats_than_asked_for_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    line = fit_line(
        [MeasuredPoint(size_bytes=1000, seconds=1.0), MeasuredPoint(size_bytes=2000, seconds=2.0)]
    )
    measured = NetworkFile(
        bandwidth_bps=8000.0,
        allreduce=AllReduce(workers=2, a_s=0.0, b_s_per_byte=1e-3),
        fits=Fits(transfer=line, parse=line, allreduce=line, contention=line),
        host=MeasurementHost(torch="2", backend="gloo", workers=2, where="loopback", repeats=4),
    )
    monkeypatch.setattr("hocket.profiler.measure_network", lambda **_: measured)
    assert "each size was timed 4 times, not 10 times: on this link" in hocket("network", "measure").err
    assert "was timed" not in hocket("network", "measure", "--repeats", "4").err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_ends_everybody(tmp_path: Path, folder: Path, number: int, status: int) -> None:
    process = command("--repeats", "10000", "-o", str(tmp_path / "network.json"))
    wait_for_workers(folder, 2)
    process.send_signal(number)
    ran = ended(process)
    assert (ran.status, ran.out) == (status, "")
    assert "Traceback" not in ran.err
    assert not (tmp_path / "network.json").exists()


def test_workers_do_not_outlive_who_started_them(folder: Path) -> None:
    process = command("--repeats", "10000")
    wait_for_workers(folder, 2)
    process.kill()
    assert ended(process).status == -signal.SIGKILL
    wait_for_workers(folder, 0)
    shutil.rmtree(folder)
    folder.mkdir()


def test_a_worker_that_is_killed_is_named_and_the_others_end(folder: Path) -> None:
    process = command("--repeats", "10000")
    wait_for_workers(folder, 2)
    time.sleep(1.0)
    os.kill(*measuring(folder, "1"), signal.SIGKILL)
    ran = ended(process)
    assert ran == Ran(2, "", ran.err)
    said, refusal = ran.err.splitlines()
    assert said.startswith("measuring: 10001 rounds of 503 MB a worker, so at least 11.2 h at 1 Gbit/s")
    assert refusal == "hocket: worker 1 was ended by signal 9 while measuring"
    assert measuring(folder) == []


def test_what_a_rank_says_when_it_fails_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rendezvous = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "door"}
    for name, value in rendezvous.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(HocketError, match=r"worker 1 failed while measuring: ValueError: .*'door'"):
        measure_network()


def test_times_are_those_of_the_clock_of_the_device_that_exchanges() -> None:
    measured, _ = run("tests.multiprocess.exchange_cases:by_another_clock")
    seconds = {kind: [point["seconds"] for point in measured[kind]] for kind in ("allreduce", "contention")}
    assert seconds == {"allreduce": [0.25 / 4], "contention": [0.25, 0.25]}
    assert [point["seconds"] for point in measured["transfer"]] == [0.25 / 1000]
    assert [point["seconds"] for point in measured["parse"]] == [0.25]


@pytest.mark.parametrize(("method", "told"), [("env://", True), ("file:///tmp/meeting", False)])
def test_a_loopback_that_stands_for_another_machine_is_told(tmp_path: Path, method: str, told: bool) -> None:
    task = Task(transfer_bytes=[4], reduced_bytes=[4], shared_bytes=4, concurrent=1, repeats=1)
    request = ExchangeRequest(
        rank=1, workers=2, init_method=method, timeout_s=1.0, deadline_s=0.0, folder=str(tmp_path), task=task
    )
    said = "RuntimeError: connectFullMesh failed: Connection refused, remote=[127.0.0.1]:48046"
    (tmp_path / "1.failed").write_text(said)
    line = _failure(MEASURING, 1, request)
    assert line.startswith("worker 1 failed while measuring: ")
    assert line.endswith(said)
    assert ("GLOO_SOCKET_IFNAME" in line) == told


@pytest.mark.parametrize("burst_bytes", [0, 262_144, 524_288])
def test_a_burst_that_an_idle_link_passes_at_once_is_spent_before_the_clock_starts(burst_bytes: int) -> None:
    rate_bps, way_s, message_s = 1e9, 1e-4, 2e-5

    def arrives_s(num_bytes: int) -> float:
        """When so many bytes have left a full token bucket, and come a way without a limit."""
        return way_s + max(0, num_bytes - burst_bytes) * 8 / rate_bps

    sizes = [*(1000 * 4**k for k in range(8)), 32_000_000]
    points = []
    for size in sizes:
        count = messages_in_a_row(size, ROW_BYTES)
        row_s = arrives_s(LEAD_BYTES + count * size) - arrives_s(LEAD_BYTES)
        points.append(MeasuredPoint(size_bytes=size, seconds=row_s / count + message_s))
    fit = fit_line(points)
    assert 8 / fit.b_s_per_byte == pytest.approx(rate_bps)
    assert fit.a_s == pytest.approx(message_s)
    # What was timed behind nothing would follow the bucket.
    alone = fit_line([MeasuredPoint(size_bytes=size, seconds=arrives_s(size)) for size in sizes])
    assert (8 / alone.b_s_per_byte > 1.05 * rate_bps) == (burst_bytes > 0)


def test_a_round_sends_its_rows_and_each_collectives_share_with_what_goes_before_it() -> None:
    task = Task(transfer_bytes=[1000], reduced_bytes=[64, 400], shared_bytes=80, concurrent=2, repeats=9)
    rows = LEAD_BYTES + 1000 * 1000
    all_reduces = 2 * LEAD_BYTES + 5 * (64 + 400)
    of_shares = 400 * (5 + 5 + 2 * 3)  # every other size; exchanges are two at once
    at_once = 2 * LEAD_BYTES + 80 + 2 * 80
    for workers, once in ((2, 1 / 2), (4, 3 / 4)):
        expected = rows + 2 * once * (all_reduces + at_once + 3 * LEAD_BYTES) + once * of_shares
        assert sent_bytes(task, workers) == pytest.approx(expected)


def test_a_row_is_of_four_megabytes_where_that_is_not_too_many_messages() -> None:
    sizes = (1000, 100_000, 250_000, 1_000_000, 32_000_000)
    assert [messages_in_a_row(size, ROW_BYTES) for size in sizes] == [1000, 40, 16, 4, 1]


@pytest.mark.parametrize(
    ("message_s", "expected"),
    [(0.8, ROW_BYTES), (0.16, ROW_BYTES), (0.016, 40_000_000), (1e-6, 128_000_000), (0.0, 128_000_000)],
)
def test_a_row_takes_long_beside_the_waking_of_a_thread(message_s: float, expected: int) -> None:
    assert row_bytes(32_000_000, message_s) == pytest.approx(expected, rel=1e-6)


def test_the_ranks_of_torchrun_measure_and_write_one_file(tmp_path: Path) -> None:
    arguments = [BIN / "hocket", "network", "measure", *SMALL, "--json", "-o", tmp_path / "network.json"]
    torchrun = [BIN / "torchrun", "--standalone", "--nproc-per-node", "2", "--no-python"]
    ran = subprocess.run([*torchrun, *arguments], capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    check(json.loads(ran.stdout), 2, [socket.gethostname()])
    assert load_network(tmp_path / "network.json").host is not None
