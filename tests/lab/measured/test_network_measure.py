"""What ``hocket network measure`` says of links whose rate is known."""

from __future__ import annotations

import json
import sys

import pytest

from hocket.lab import Lab

pytestmark = pytest.mark.slow


ATTEMPTS = 3  # what else runs on the machine makes a measurement worse, and not every one of them


@pytest.mark.timeout(500)
@pytest.mark.parametrize("rate_bps", [250e6, pytest.param(1e9, marks=pytest.mark.long)])  # a fast machine
def test_the_rate_is_measured_though_an_idle_link_passes_a_burst(name: str, rate_bps: float) -> None:
    command = [sys.executable, "-m", "hocket", "network", "measure", "--json"]
    command += ["--largest", "8MB", "--repeats", "5", "--concurrent", "2"]
    found = []
    with Lab(nodes=2, rate_bps=rate_bps, name=name) as lab:
        for _ in range(ATTEMPTS):
            ranks = lab.run_all(command, timeout_s=150.0)
            assert [rank.returncode for rank in ranks] == [0, 0], ranks[0].stderr
            document = json.loads(ranks[0].stdout)
            # With two ranks each sends every byte once.
            shares = (
                document["bandwidth_bps"] / rate_bps,
                document["allreduce"]["b_s_per_byte"] * rate_bps / 8,
            )
            found.append(shares)
            # Ethernet, IP and TCP take 4.3% of the rate; everything else is noise, or the burst.
            if 0.9 < shares[0] < 1.0 and 0.95 < shares[1] < 1.25:
                return
    pytest.fail(f"shares of the rate: {found}")
