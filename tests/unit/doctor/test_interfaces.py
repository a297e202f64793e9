"""Interfaces as the kernel tells of them."""

from __future__ import annotations

import socket
from pathlib import Path

from hocket.doctor.interfaces import interfaces


def test_the_loopback_is_there() -> None:
    own = {each.name: each for each in interfaces()}
    assert own["lo"].loopback
    assert own["lo"].up
    assert "127.0.0.1" in own["lo"].addresses
    assert own["lo"].rate_bps is None
    assert set(own) == {name for _, name in socket.if_nameindex()}


def test_a_rate_is_what_the_driver_says(tmp_path: Path) -> None:
    (tmp_path / "lo").mkdir()
    for text, rate_bps in (("25000\n", 25e9), ("-1\n", None), ("", None)):
        (tmp_path / "lo" / "speed").write_text(text)
        assert {each.name: each.rate_bps for each in interfaces(tmp_path)}["lo"] == rate_bps
