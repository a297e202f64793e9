"""Variables that launchers set, damaged: one line that names them."""

from __future__ import annotations

import pytest

from hocket.errors import HocketError
from hocket.launch import JOB_VARIABLE, job_of_environment
from hocket.launch.environment import whole_number
from hocket.launch.gate import GATE_VARIABLE, first_iteration, gate_of_environment
from hocket.launch.job import split_address
from tests.tokens import TOKEN

LONG = "a" * 70


@pytest.mark.parametrize("text", ["", " ", "x", "-1", "1.5", "\u0663", "9" * 30, "0x10"])
def test_what_is_no_number_is_refused_by_name(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("RANK", text)
    with pytest.raises(HocketError, match=r"RANK is .*, no whole number"):
        whole_number("RANK", 0)


def test_a_variable_is_a_whole_number_or_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert whole_number("RANK", 7) == 7
    monkeypatch.setenv("RANK", " 3")
    assert whole_number("RANK", 7) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"address": 3}',
        f'{{"address": "{LONG}:90", "token": "{TOKEN}", "rule": {{}}}}',
        '{"address": "a:1", "token": "short", "rule": {}}',
        f'{{"address": "a:1", "token": "{LONG}", "rule": {{}}}}',
        f'{{"address": "a:1", "token": "{TOKEN}", "rule": {{"workers": 0}}}}',
        "\udcff\udcfe",  # bytes that are no text
    ],
)
def test_a_damaged_job_is_refused_in_one_line(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(JOB_VARIABLE, text)
    with pytest.raises(HocketError) as refused:
        job_of_environment()
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "address",
    [f"{LONG}:80", "a..b:80", "host", "host:", ":80", "host:\u0663", "h:65536"],
)
def test_what_cannot_be_looked_up_is_no_address(address: str) -> None:
    with pytest.raises(HocketError, match=r"no host|not host:port"):
        split_address(address)


@pytest.mark.parametrize(
    "host", ["10.0.0.1", "::1", "fe80::1%eth0", "node-0.cluster.example", "m\u00fcnchen.example"]
)
def test_hosts_are_taken_as_they_are(host: str) -> None:
    assert split_address(f"[{host}]:80" if ":" in host else f"{host}:80") == (host, 80)


def test_a_gate_without_its_rank_or_with_a_wrong_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GATE_VARIABLE, "127.0.0.1:1")
    monkeypatch.setenv("HOCKET_GATE_ATTEMPT", "1-1")
    monkeypatch.setenv("HOCKET_GATE_TOKEN", LONG)
    monkeypatch.delenv("RANK", raising=False)
    with pytest.raises(HocketError, match="RANK is not; leave them"):
        gate_of_environment(0)
    monkeypatch.setenv("RANK", "first")
    with pytest.raises(HocketError, match="RANK is 'first'"):
        gate_of_environment(0)
    monkeypatch.setenv("HOCKET_BEGIN", "later")
    with pytest.raises(HocketError, match="HOCKET_BEGIN is 'later'"):
        first_iteration()


def test_a_gate_elsewhere_is_known_by_its_certificate(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        GATE_VARIABLE: "127.0.0.1:1",
        "HOCKET_GATE_ATTEMPT": "1-1",
        "HOCKET_GATE_TOKEN": LONG,
        "RANK": "0",
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("HOCKET_GATE_FINGERPRINT", raising=False)
    with pytest.raises(HocketError, match="HOCKET_GATE_FINGERPRINT is not; leave them"):
        gate_of_environment(0)
