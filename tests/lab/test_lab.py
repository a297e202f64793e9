"""Labs made, found and removed: whole or not at all, whatever comes in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from hocket.errors import HocketError, UnknownNameError
from hocket.lab import Lab, holders, labs, links, names, remove
from hocket.lab.traffic_shaping import shaper
from tests.lab.conftest import processes
from tests.unit.cli.test_commands import hocket, refused

COMMAND = [sys.executable, "-m", "hocket", "lab"]


def host() -> str:
    """The machine's own interfaces and routes, which no lab may touch."""
    asked = (["ip", "-o", "addr"], ["ip", "-o", "link", "show", "type", "bridge"], ["ip", "route"])
    return "".join(subprocess.run(a, capture_output=True, text=True, check=True).stdout for a in asked)


def wait_for(path: str) -> None:
    for _ in range(2000):
        if Path(path).exists():
            return
        time.sleep(0.005)
    raise AssertionError(f"{path} does not come")


def test_a_lab_from_up_to_down(name: str) -> None:
    before = host()
    lab = json.loads(hocket("lab", "up", "--nodes", "3", "--rate", "250mbit", "--name", name, "--json").out)
    assert (lab["name"], lab["state"], lab["rate_bps"]) == (name, "up", 250e6)
    assert [node["name"] for node in lab["nodes"]] == ["node0", "node1", "node2"]
    assert len({node["address"] for node in lab["nodes"]}) == 3
    assert host() == before
    assert f"hocket lab down --name {name}" in refused(hocket("lab", "up", "--name", name))
    found = Lab.find(name)
    assert (len(found.nodes), found.rate_bps) == (3, 250e6)
    # Learned neighbours share one table of the whole machine, which a few dozen nodes would fill.
    asked = ["ip", "-n", found.nodes[0].namespace, "-4", "neigh", "show", "nud", "permanent"]
    known = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert all(node.address in known for node in found.nodes)
    with found.popen(found.nodes[1], ["sleep", "60"]) as sleeping:
        wait_for(f"/proc/{sleeping.pid}/ns/net")
        for _ in range(100):
            if sleeping.pid in processes(found):
                break
            time.sleep(0.05)
        status = json.loads(hocket("lab", "status", "--json").out)
        (shown,) = [lab for lab in status["labs"] if lab["name"] == name]
        assert [node["pids"] for node in shown["nodes"]] == [[], [sleeping.pid], []]
        assert str(sleeping.pid) in hocket("lab", "status").out
        ran = hocket("lab", "down", "--name", name)
        assert (ran.status, ran.out) == (0, "")
        assert sleeping.wait(timeout=20) == -signal.SIGTERM
    again = hocket("lab", "down", "--name", name)
    assert again.status == 0
    assert "no lab" in again.err
    assert host() == before


def test_connections_share_links_as_linux_has_it_whatever_the_machine_does(two: Lab) -> None:
    ask = """
import contextlib, socket, sys
asking = socket.socket()
with contextlib.suppress(ConnectionRefusedError):
    asking.connect((sys.argv[1], 9))
print(asking.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(bytes(1)).decode())
"""
    for node, other in (two.nodes, two.nodes[::-1]):
        asked = [sys.executable, "-c", ask, other.address]
        with two.popen(node, asked, stdout=subprocess.PIPE, text=True) as asking:
            assert asking.communicate(timeout=20)[0] == "cubic\n"


def test_every_connection_has_as_much_on_the_way_from_first_to_last(two: Lab) -> None:
    take = """
import socket
with socket.create_server(("", 9000)) as listening:
    print(flush=True)
    taking = listening.accept()[0]
    while taking.recv(1 << 16):
        pass
"""
    send = """
import socket, struct, sys, time
def segments():
    return struct.unpack_from("I", sending.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104), 80)[0]
sending = socket.create_connection((sys.argv[1], 9000))
found = [segments()]
sending.sendall(bytes(2_000_000))
found.append(segments())
time.sleep(3)  # its timer, of a quarter of a second, halves what may be on the way
sending.sendall(bytes(1))
print(*found, segments())
"""
    for taker, sender in (two.nodes, two.nodes[::-1]):
        with two.popen(taker, [sys.executable, "-c", take], stdout=subprocess.PIPE, text=True) as taking:
            assert taking.stdout is not None
            taking.stdout.readline()
            sends = [sys.executable, "-c", send, taker.address]
            with two.popen(sender, sends, stdout=subprocess.PIPE, text=True) as sending:
                assert sending.communicate(timeout=20)[0].split() == ["64"] * 3
            assert taking.wait(timeout=20) == 0


@pytest.mark.parametrize(("tso", "segments"), [((), 5), (("--tso", "64kB"), 44), (("--tso", "2896B"), 2)])
def test_tcp_hands_over_at_once_what_a_lab_says(name: str, tso: tuple[str, ...], segments: int) -> None:
    assert hocket("lab", "up", "--rate", "250mbit", "--name", name, *tso).status == 0
    asked = ["ip", "-n", f"hocket-{name}-node1", "-d", "-j", "link", "show", "eth0"]
    (link,) = json.loads(subprocess.run(asked, capture_output=True, text=True, check=True).stdout)
    assert link["gso_max_segs"] == segments
    assert hocket("lab", "down", "--name", name).status == 0


@pytest.mark.parametrize("tso", ["2895B", "65537B", "1GB"])
def test_what_tcp_cannot_hand_over_at_once_is_refused(name: str, tso: str) -> None:
    error = refused(hocket("lab", "up", "--name", name, "--tso", tso))
    assert "choose 2896 B to 65536 B" in error
    assert name not in names()


def test_another_congestion_control_is_named(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = tmp_path / "known"
    known.write_text("reno bbr\n")
    monkeypatch.setattr(links, "_KNOWN_CONTROLS", known)
    with Lab(nodes=2, rate_bps=1e9, name=name) as lab:
        read = ["cat", "/proc/sys/net/ipv4/tcp_congestion_control"]
        with lab.popen(lab.nodes[1], read, stdout=subprocess.PIPE, text=True) as reading:
            used = reading.communicate(timeout=20)[0].strip()
    said = capsys.readouterr().err
    if used == links.CONGESTION_CONTROL:
        assert said == ""
    else:
        assert said.startswith(
            f"hocket: lab '{name}' is on a kernel that has no cubic: its connections use {used}"
        )
        assert said.count("\n") == 1


def test_a_kernel_that_cannot_tell_packets_apart_is_named(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_u32(*arguments: Any, **options: Any) -> list[str]:
        lines = shaper(*arguments, **options)
        return [line.replace("u32", "u33") for line in lines]

    monkeypatch.setattr(links, "shaper", without_u32)
    with Lab(nodes=2, rate_bps=1e9, name=name):
        assert Lab.find(name).rate_bps == 1e9
        shown = subprocess.run(
            ["tc", "-n", f"hocket-{name}-switch", "qdisc", "show", "dev", "node0"],
            capture_output=True,
            text=True,
            check=True,
        )
    assert "tbf" in shown.stdout
    assert "htb" not in shown.stdout
    said = capsys.readouterr().err
    assert said.startswith(f"hocket: lab '{name}' is on a kernel that has no htb or no u32: ")
    assert said.count("\n") == 1


def test_nodes_reach_each_other_and_nothing_else(two: Lab) -> None:
    reach = "import socket, sys; socket.create_connection((sys.argv[1], 9), timeout=5)"
    for address, answer in (
        ("127.0.0.1", "refused"),  # the loopback is up
        (two.nodes[1].address, "refused"),  # there is a machine
        ("192.0.2.1", "unreachable"),
    ):
        with two.popen(
            two.nodes[0], [sys.executable, "-IS", "-c", reach, address], stderr=subprocess.PIPE, text=True
        ) as probe:
            assert answer in probe.communicate(timeout=20)[1]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_a_lab_ends_with_its_block(name: str, error: type[BaseException]) -> None:
    def block() -> None:
        with lab:
            lab.popen(lab.nodes[0], ["sleep", "60"])
            raise error

    lab = Lab(nodes=2, rate_bps=1e9, name=name)
    with pytest.raises(error):
        block()
    assert name not in names()
    with pytest.raises(HocketError, match="is not up"):
        lab.run_all(["true"])


def test_a_block_refuses_a_name_that_exists_and_leaves_it_alone(two: Lab) -> None:
    with pytest.raises(HocketError, match="exists already"), Lab(nodes=2, rate_bps=1e9, name=two.name):
        pass
    assert two.name in [lab.name for lab in labs()]


def test_unknown_names_list_the_known(two: Lab) -> None:
    with pytest.raises(UnknownNameError, match=two.name):
        Lab.find(f"{two.name}-other")
    assert "node0, node1" in refused(hocket("lab", "exec", "--name", two.name, "node7", "--", "true"))


def test_labs_side_by_side_share_nothing(name: str) -> None:
    with (
        Lab(nodes=2, rate_bps=1e9, name=f"{name}-a") as one,
        Lab(nodes=3, rate_bps=5e8, name=f"{name}-b") as other,
    ):
        ours = [lab for lab in labs() if lab.name.startswith(name)]
        assert [(len(lab.nodes), lab.rate_bps) for lab in ours] == [(2, 1e9), (3, 5e8)]
        # The same address and port, once in each.
        listen = (
            "import socket; server = socket.create_server(('10.77.0.1', 4711));"
            "print('up', flush=True); server.accept()"
        )
        for lab in (one, other):
            server = lab.popen(
                lab.nodes[0], [sys.executable, "-IS", "-c", listen], stdout=subprocess.PIPE, text=True
            )
            assert server.stdout is not None
            assert server.stdout.readline() == "up\n"
        assert len(processes(one)) == len(processes(other)) == 1
        remove(one.name)
        assert len(processes(other)) == 1


@pytest.fixture
def idle_thread() -> Iterator[None]:
    """A thread that may take this process's signals, as libraries have."""
    end = threading.Event()
    thread = threading.Thread(target=end.wait, args=[60.0])
    thread.start()
    yield
    end.set()
    thread.join()


@pytest.mark.usefixtures("idle_thread", "ctrl_c")
@pytest.mark.parametrize("before", [True, False])
def test_an_up_that_is_interrupted_at_any_call_leaves_nothing(
    name: str, before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, done, chosen = links._call, 0, 0

    def interrupted(*arguments: str, **script: list[str]) -> str:
        nonlocal done
        done += 1
        if done == chosen and before:
            raise KeyboardInterrupt
        said = original(*arguments, **script)
        if done == chosen:
            os.kill(os.getpid(), signal.SIGINT)
        return said

    with monkeypatch.context() as patched:
        patched.setattr(links, "_call", interrupted)
        Lab(nodes=2, rate_bps=1e9, name=name).up()
        calls = done
        assert remove(name)
        for chosen in range(1, calls + 1):  # noqa: B007
            done = 0
            with pytest.raises(KeyboardInterrupt):
                Lab(nodes=2, rate_bps=1e9, name=name).up()
            assert name not in names()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_up_that_is_stopped_leaves_nothing(name: str, number: int, status: int) -> None:
    command = [*COMMAND, "up", "--nodes", "30", "--name", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as up:
        wait_for(f"/run/netns/hocket-{name}-node20")
        up.send_signal(number)
        out, err = up.communicate(timeout=60)
    assert (up.returncode, out, err) == (status, "", "")


def test_what_a_killed_up_left_is_shown_and_removed(name: str) -> None:
    command = [*COMMAND, "up", "--nodes", "30", "--name", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as up:
        wait_for(f"/run/netns/hocket-{name}-node20")
        up.kill()
    assert f"lab '{name}' is not whole" in hocket("lab", "status").err
    status = json.loads(hocket("lab", "status", "--json").out)
    assert {"name": name, "state": "not whole"} in status["labs"]
    assert "is not whole" in refused(hocket("lab", "exec", "--name", name, "node0", "--", "true"))
    assert "exists already" in refused(hocket("lab", "up", "--name", name))
    assert hocket("lab", "down", "--name", name).status == 0


@pytest.mark.parametrize("nodes", [2, 3])
def test_a_lab_that_lacks_its_last_node_is_refused_by_its_name(name: str, nodes: int, folder: Path) -> None:
    lab = Lab(nodes=nodes, rate_bps=1e9, name=name)
    lab.up()
    assert f"lab '{name}': node 'node9' is unknown" in refused(
        hocket("lab", "exec", "--name", name, "node9", "--", "true")
    )
    subprocess.run(["ip", "netns", "delete", lab.nodes[-1].namespace], check=True)
    again = f"hocket lab down --name {name}, then hocket lab up --name {name} --nodes {nodes} --rate 1000mbit"
    with pytest.raises(HocketError, match=f"lab '{name}' lacks node{nodes - 1}; make it anew: {again}"):
        lab.command(lab.nodes[-1], ["true"])
    for command in (
        ("lab", "exec", "--name", name, "node0", "--", "true"),
        ("cluster", "serve", "--state", str(folder), "--lab", name, "--placement", "ls", "--policy", "srpt"),
    ):
        said = refused(hocket(*command))
        assert f"lab '{name}' is not whole; remove what is left: hocket lab down --name {name}" in said
    assert f"lab '{name}' is not whole" in hocket("lab", "status").err
    assert hocket("lab", "down", "--name", name).status == 0


@contextmanager
def holder(name: str) -> Iterator[subprocess.Popen[str]]:
    """A process within the block of a lab of its own, where it runs programs."""
    code = (
        "import os, sys, time; from hocket.lab import Lab\n"
        f"with Lab(nodes=2, rate_bps=1e9, name={name!r}) as lab:\n"
        "    lab.popen(lab.nodes[0], ['sleep', '60'])\n"
        "    lab.popen(lab.nodes[1], ['sh', '-c', 'echo up; sleep 60']).wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        yield process
        process.kill()


def test_what_a_killed_block_left_is_removed_when_its_name_is_used_again(name: str) -> None:
    with holder(name) as process:
        with pytest.raises(HocketError, match="exists already"):
            Lab(nodes=2, rate_bps=1e9, name=name).up()
        left = processes(Lab.find(name))
        assert len(left) >= 2
        process.kill()
        process.wait()
        with Lab(nodes=3, rate_bps=250e6, name=name) as lab:
            found = Lab.find(name)
            assert (found.nodes, found.rate_bps) == (lab.nodes, 250e6)
            assert processes(lab) == []
    assert not any(Path(f"/proc/{pid}/ns/net").exists() for pid in left)


def test_a_process_is_told_from_a_later_one_of_its_number() -> None:
    pid, numbering, started = holders.own_holder().split()
    assert not holders.has_ended(f"{pid} {numbering} {started}")
    assert holders.has_ended(f"{pid} {numbering} {int(started) + 1}")
    assert not holders.has_ended(f"{pid} pid:[1] {int(started) + 1}")  # another container's
    assert not holders.has_ended("a user's own words")


def test_what_a_killed_process_left_is_found_and_removed(name: str) -> None:
    with holder(name) as process:
        process.kill()
        lab = Lab.find(name)
        left = processes(lab)
        assert len(left) >= 2
        assert remove(name)
    assert not any(Path(f"/proc/{pid}/ns/net").exists() for pid in left)


def test_a_failing_call_is_one_line_with_what_the_tool_said(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        links, "shaper", lambda device, *_, **__: [f"qdisc add dev {device} root nosuch rate 1mbit"]
    )
    error = refused(hocket("lab", "up", "--name", name))
    assert "qdisc add dev eth0 root nosuch" in error
    assert "nosuch" in error.split("failed: ")[1]
    monkeypatch.undo()
    monkeypatch.setattr(links, "_BRIDGE", "a-name-that-is-too-long")
    assert "'ip link add a-name-that-is-too-long type bridge' failed" in refused(
        hocket("lab", "up", "--name", name)
    )
