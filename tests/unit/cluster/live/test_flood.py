"""Ten thousand HTTP requests of strangers: whoever knows the token is answered as ever."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hocket.cluster.live.manager_address import Contact, ManagerLine, ask_manager
from hocket.cluster.live.manager_messages import AskStatus
from hocket.launch.job import split_address
from tests.strangers import resident_bytes
from tests.tokens import TOKEN
from tests.unit.cluster.live.clusters import live_job, running
from tests.unit.cluster.live.http_calls import call

ROOT = Path(__file__).parents[4]
REQUESTS = 10_000


def seconds_of(ask: Callable[[], object]) -> float:
    begin_s = time.perf_counter()
    ask()
    return time.perf_counter() - begin_s


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_strangers_do_not_make_friends_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if (load := os.getloadavg()[0]) > 2 * (os.cpu_count() or 1):
        pytest.skip(f"others load this machine ({load:.0f}): what they take would count as the strangers'")
    jobs = [live_job(f"late-{k}", arrival_s=1e6) for k in range(100)]
    with running(tmp_path, jobs, until_idle=False) as cluster:
        address = cluster.manager.address
        contact = Contact(address=address, token=TOKEN)
        line = ManagerLine(contact)
        line.ask(AskStatus())
        before_bytes = resident_bytes()
        command = [
            sys.executable,
            "-m",
            "tests.http_strangers",
            *map(str, split_address(address)),
            str(REQUESTS),
        ]
        begin_s = time.monotonic()
        strangers = subprocess.Popen(command, cwd=ROOT)
        kept_s, new_s = [], []
        try:
            while strangers.poll() is None:
                kept_s.append(seconds_of(lambda: line.ask(AskStatus())))
                new_s.append(seconds_of(lambda: ask_manager(contact, AskStatus())))
                time.sleep(0.02)
        finally:
            strangers.kill()
            strangers.wait()
        took_s = time.monotonic() - begin_s
        assert strangers.returncode == 0
        assert call(address, "/v1/jobs").status == 200
        grown_bytes = resident_bytes() - before_bytes
        line.close()
    p99_ms = {name: 1e3 * float(np.percentile(each, 99)) for name, each in (("kept", kept_s), ("new", new_s))}
    with capsys.disabled():
        print(
            f"\n{REQUESTS} requests of strangers in {took_s:.0f} s; {len(kept_s)} of a friend on each kind of"
            f" connection, 99th percentile: {p99_ms['kept']:.0f} ms kept, {p99_ms['new']:.0f} ms new; "
            f"memory grew by {grown_bytes / 1e6:.0f} MB"
        )
    assert p99_ms["kept"] < 100
    assert p99_ms["new"] < 200
    assert grown_bytes < 50e6
