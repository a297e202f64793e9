"""Ten thousand HTTP requests of strangers: whoever knows the token is answered as ever."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hocket.cluster.live.manager_address import ADDRESS_VARIABLE, TOKEN_VARIABLE
from hocket.launch.job import split_address
from tests.strangers import resident_bytes
from tests.tokens import TOKEN
from tests.unit.cluster.live.clusters import live_job, running
from tests.unit.cluster.live.http_calls import call

ROOT = Path(__file__).parents[4]
REQUESTS = 10_000
# In a process of its own: two threads of the manager's would wait for Python's lock as well. It asks on a
# connection that it keeps and on new ones, until it is told to end, and prints how long each took.
FRIEND = """import json, select, sys, time
from hocket.cluster.live.manager_address import ManagerLine, ask_manager, contact_of
from hocket.cluster.live.manager_messages import AskStatus
contact, took_s = contact_of(None), {"kept": [], "new": []}
line = ManagerLine(contact)
line.ask(AskStatus())
print("ready", flush=True)
while not select.select([sys.stdin], [], [], 0.02)[0]:
    for kind, ask in (("kept", line.ask), ("new", lambda request: ask_manager(contact, request))):
        begin_s = time.perf_counter()
        ask(AskStatus())
        took_s[kind].append(time.perf_counter() - begin_s)
print(json.dumps(took_s))"""


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_strangers_do_not_make_friends_wait(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = [live_job(f"late-{k}", arrival_s=1e6) for k in range(100)]
    with running(tmp_path, jobs, until_idle=False) as cluster:
        address = cluster.manager.address
        told = {**os.environ, ADDRESS_VARIABLE: address, TOKEN_VARIABLE: TOKEN}
        pipe = subprocess.PIPE
        friend = subprocess.Popen(
            [sys.executable, "-c", FRIEND], cwd=ROOT, env=told, stdin=pipe, stdout=pipe, text=True
        )
        try:
            assert friend.stdout is not None
            assert friend.stdout.readline() == "ready\n"
            before_bytes, begin_s = resident_bytes(), time.monotonic()
            host, port = split_address(address)
            strangers = [sys.executable, "-m", "tests.http_strangers", host, str(port), str(REQUESTS)]
            subprocess.run(strangers, cwd=ROOT, check=True, timeout=400)
            took_s, grown_bytes = time.monotonic() - begin_s, resident_bytes() - before_bytes
            found, _ = friend.communicate("\n", timeout=60)
        finally:
            friend.kill()
            friend.wait()
        assert friend.returncode == 0
        assert call(address, "/v1/jobs").status == 200
    p99_ms = {kind: 1e3 * float(np.percentile(each, 99)) for kind, each in json.loads(found).items()}
    load = os.getloadavg()[0]
    with capsys.disabled():
        print(
            f"\n{REQUESTS} requests of strangers in {took_s:.0f} s (load {load:.1f}); of a friend's 99 of 100"
            f" take {p99_ms['kept']:.0f} ms on a connection that is kept, {p99_ms['new']:.0f} ms on new ones;"
            f" memory grew by {grown_bytes / 1e6:.0f} MB"
        )
    # Shares of the time that all strangers take, as other tests use the machine as well.
    assert p99_ms["kept"] < 1e3 * took_s / 250
    assert p99_ms["new"] < 1e3 * took_s / 100  # it stands in line with the strangers' connections
    assert grown_bytes < 60e6
