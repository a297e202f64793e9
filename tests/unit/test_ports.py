"""Ports for processes that are yet to be started."""

from __future__ import annotations

import errno
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from hocket import ports
from hocket.ports import free_port


def told(folder: Path, first: int, last: int) -> Path:
    (folder / "range").write_text(f"{first}\t{last}\n")
    return folder / "range"


@pytest.mark.parametrize(("first", "last"), [(32_768, 60_999), (10_100, 65_535), (1_024, 65_433)])
def test_no_connection_is_given_the_port_nor_the_next_one(tmp_path: Path, first: int, last: int) -> None:
    drawn = {free_port("127.0.0.1", told(tmp_path, first, last)) for _ in range(100)}
    assert len(drawn) > 20
    assert not [port for port in drawn if first <= port <= last or first <= port + 1 <= last]
    assert all(10_000 <= port < 65_535 for port in drawn)


@pytest.mark.parametrize("beside", [0, 1])
def test_a_port_at_which_something_listens_is_not_given(tmp_path: Path, beside: int) -> None:
    only = told(tmp_path, 10_002, 65_535)  # leaves 10000 and 10001
    if free_port("127.0.0.1", only) != 10_000:
        pytest.skip("something else listens there")
    with socket.create_server(("127.0.0.1", 10_000 + beside)):
        assert free_port("127.0.0.1", only) > 10_001


def test_where_connections_may_have_every_port_the_kernel_gives_one(tmp_path: Path) -> None:
    port = free_port("127.0.0.1", told(tmp_path, 1_024, 65_535))
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_another_machines_address_is_an_error() -> None:
    with pytest.raises(OSError, match="assign") as raised:
        free_port("192.0.2.1")
    assert raised.value.errno == errno.EADDRNOTAVAIL


def test_a_node_of_a_lab_runs_it_as_a_script() -> None:
    command = [sys.executable, "-IS", ports.__file__, "127.0.0.1"]
    assert 10_000 <= int(subprocess.run(command, capture_output=True, check=True, timeout=60).stdout) < 65_535
