"""Ranks started on all nodes: their environment, their output, and that all of them end."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from hocket.errors import HocketError
from hocket.lab import Lab, LabNode, node_processes
from tests.lab.conftest import processes
from tests.unit.cli.test_commands import hocket, refused

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-m", "hocket", "lab", "exec", "--name"]


@contextmanager
def execution(lab: Lab, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """``hocket lab exec``; killed where it is left early, and its ranks are left for ``two`` to end."""
    with subprocess.Popen(
        [*COMMAND, lab.name, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def executed(lab: Lab, *arguments: str) -> tuple[int, list[str], str]:
    """Status, sorted lines of standard output, and standard error."""
    ran = hocket("lab", "exec", "--name", lab.name, *arguments)
    return ran.status, sorted(ran.out.splitlines()), ran.err


def lines(process: subprocess.Popen[str], number: int) -> list[str]:
    assert process.stdout is not None
    return sorted(process.stdout.readline().rstrip() for _ in range(number))


def test_each_rank_has_the_environment_that_torchrun_gives(two: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "17")
    monkeypatch.setenv("MASTER_ADDR", "elsewhere")
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    names = (
        "RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE GROUP_RANK GROUP_WORLD_SIZE ROLE_RANK ROLE_WORLD_SIZE"
    )
    names += " ROLE_NAME TORCHELASTIC_RESTART_COUNT TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_USE_AGENT_STORE"
    names += " OMP_NUM_THREADS OWN GLOO_SOCKET_IFNAME"
    shown = " ".join(f"${name}" for name in f"{names} TP_SOCKET_IFNAME MASTER_ADDR".split())
    results = two.run_all(["sh", "-c", f"echo {shown}"], timeout_s=30.0, env={"OWN": "x y"})
    assert [rank.stdout for rank in results] == [
        f"{index} 2 0 1 {index} 2 {index} 2 default 0 0 False 1 x y eth0 eth0 {two.nodes[0].address}\n"
        for index in (0, 1)
    ]
    assert [(rank.node, rank.returncode, rank.stderr) for rank in results] == [(n, 0, "") for n in two.nodes]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    asked = ["sh", "-c", "echo $OMP_NUM_THREADS $RANK $MASTER_PORT"]
    results = two.run_all(asked, timeout_s=30.0, env={"RANK": "5", "MASTER_PORT": "4"})
    assert [rank.stdout for rank in results] == ["3 5 4\n", "3 5 4\n"]


def test_ranks_have_processors_of_their_own_where_they_are_to(two: Lab) -> None:
    mine = os.sched_getaffinity(0)
    told = [sys.executable, "-c", "import os; print(sorted(os.sched_getaffinity(0)))"]
    apart, together = (
        [set(json.loads(rank.stdout)) for rank in two.run_all(told, timeout_s=30.0, own_processors=own)]
        for own in (True, False)
    )
    assert together == [mine, mine]
    if len(mine) > 1:
        assert len(apart[0]) == len(apart[1]) == len(mine) // 2
        assert not apart[0] & apart[1]
    assert os.sched_getaffinity(0) == mine
    status, printed, err = executed(two, "--all", "--own-processors", "--", *told)
    assert (status, printed, err) == (0, [f"[node{k}] {sorted(own)}" for k, own in enumerate(apart)], "")
    for k, own in enumerate(apart):  # a node has the same part by itself
        with execution(two, "--own-processors", f"node{k}", "--", *told) as process:
            assert lines(process, 1) == [str(sorted(own))]


def test_times_of_ranks_are_refused_for_a_command_in_one_node(two: Lab) -> None:
    status, _, err = executed(two, "--grace", "1s", "node0", "--", "true")
    assert (status, err) == (2, "hocket: --grace and --timeout are about ranks; give them with --all\n")


def test_the_ranks_of_a_run_share_an_id_that_no_other_run_has(two: Lab) -> None:
    first, second = (
        [rank.stdout for rank in two.run_all(["sh", "-c", "echo $TORCHELASTIC_RUN_ID"], timeout_s=30.0)]
        for _ in range(2)
    )
    assert len(set(first)) == len(set(second)) == 1
    assert len({"\n", *first, *second}) == 3


def test_the_port_to_meet_at_is_free(two: Lab) -> None:
    listen = "import os, socket; socket.create_server(('', int(os.environ['MASTER_PORT'])))"
    results = two.run_all([sys.executable, "-IS", "-c", listen], timeout_s=30.0)
    assert [(rank.returncode, rank.stderr) for rank in results] == [(0, ""), (0, "")]


def test_lines_come_behind_their_nodes_name(two: Lab) -> None:
    script = r"echo one $RANK; printf 'h\303\244lf\377'; echo error $RANK >&2"
    status, out, err = executed(two, "--all", "--", "sh", "-c", script)
    assert status == 0
    assert out == ["[node0] hälf\\xff", "[node0] one 0", "[node1] hälf\\xff", "[node1] one 1"]
    assert sorted(err.splitlines()) == ["[node0] error 0", "[node1] error 1"]


def test_output_can_be_large_and_never_waits_for_another_stream(two: Lab) -> None:
    script = "import sys; sys.stderr.write('e' * 3_000_000); sys.stdout.write('o' * 3_000_000)"
    results = two.run_all([sys.executable, "-IS", "-c", script], timeout_s=60.0)
    assert {(len(rank.stdout), len(rank.stderr)) for rank in results} == {(3_000_000, 3_000_000)}


def test_one_node_runs_a_command_as_if_it_was_typed_there(two: Lab) -> None:
    script = "echo $GLOO_SOCKET_IFNAME; ip -4 -br addr show eth0; exit 7"
    with execution(two, "node1", "--", "sh", "-c", script) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (7, "")
    assert out.split()[0] == "eth0"
    assert out.split()[-1] == f"{two.nodes[1].address}/24"
    with execution(two, "node0", "--", "sh", "-c", "echo up; exec sleep 60") as process:
        assert lines(process, 1) == ["up"]
        process.terminate()
        assert process.wait(timeout=20) == -signal.SIGTERM


@pytest.mark.parametrize(
    ("script", "grace", "status"),
    [
        ("[ $RANK = 1 ] && exit 3; exec sleep 60", "0s", 3),
        ("[ $RANK = 1 ] && kill -SEGV $$; exec sleep 60", "0.2s", 128 + signal.SIGSEGV),
        ("[ $RANK = 1 ] && exit 3; sleep 0.5; echo mine >&2; exit 4", "30s", 3),
        ("[ $RANK = 1 ] && sleep 0.5 && exit 3; trap '' TERM; sleep 60; sleep 60", "0s", 3),
    ],
    ids=["status", "signal", "an error of its own", "not on SIGTERM"],
)
def test_when_a_rank_fails_the_others_end(
    two: Lab, script: str, grace: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_processes, "TERMINATE", ((signal.SIGTERM, 0.5), (signal.SIGKILL, 10.0)))
    ran, _, err = executed(two, "--all", "--grace", grace, "--", "sh", "-c", script)
    assert ran == status
    assert err.endswith(f"node1 failed first, with status {status}\n")
    assert ("[node0] mine\n" in err) == ("mine" in script)


def test_results_say_how_each_rank_ended(two: Lab) -> None:
    first, second = two.run_all(
        ["sh", "-c", "echo $RANK; [ $RANK = 1 ] && exit 3; exec sleep 60"], timeout_s=30.0, grace_s=0.0
    )
    assert (first.returncode, second.returncode) == (-signal.SIGTERM, 3)
    assert second.stdout == "1\n"
    assert first.duration_s >= second.duration_s


def test_a_run_that_takes_too_long_names_who_had_not_ended(two: Lab) -> None:
    with pytest.raises(HocketError, match=r"^node1 had not ended after 2 s"):
        two.run_all(["sh", "-c", "[ $RANK = 0 ] || sleep 60"], timeout_s=2.0)
    assert processes(two) == []
    ran, out, err = executed(two, "--all", "--timeout", "1s", "--", "sleep", "60")
    assert (ran, out) == (2, [])
    assert "node0, node1 had not ended" in err


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupt_reaches_every_rank_and_waits_for_it(two: Lab, number: int, status: int) -> None:
    script = (
        "import os, signal, sys, time\n"
        "def stop(number, frame):\n"
        "    time.sleep(0.3)\n"
        "    sys.exit(print('got', number, os.environ['RANK']))\n"
        f"signal.signal({number}, stop)\n"
        "print('up')\n"
        "time.sleep(60)"
    )
    with execution(two, "--all", "--", sys.executable, "-c", script) as process:
        assert lines(process, 2) == ["[node0] up", "[node1] up"]
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == status
    assert sorted(out.splitlines()) == [f"[node{rank}] got {number} {rank}" for rank in (0, 1)]
    assert err == ""


def test_a_second_interrupt_kills(two: Lab) -> None:
    script = (
        "import signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "signal.signal(signal.SIGINT, lambda *_: print('told'))\n"
        "print('up')\n"
        "time.sleep(60)"
    )
    with execution(two, "--all", "--grace", "50s", "--", sys.executable, "-c", script) as process:
        assert lines(process, 2) == ["[node0] up", "[node1] up"]
        process.send_signal(signal.SIGINT)
        assert lines(process, 2) == ["[node0] told", "[node1] told"]
        time.sleep(1.1)  # two within a second are one
        assert len(processes(two)) == 2
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert (out, err) == ("", "")


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("rank", [0, 1])
def test_an_interrupt_while_ranks_start_leaves_none(
    two: Lab, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = two.popen

    def popen(node: LabNode, *arguments: Any, **keywords: Any) -> subprocess.Popen[bytes]:
        started = original(node, *arguments, **keywords)
        if node.index == rank:
            os.kill(os.getpid(), signal.SIGINT)  # raises here: nobody is told of the process
        return started

    monkeypatch.setattr(two, "popen", popen)
    with pytest.raises(KeyboardInterrupt):
        two.run_all(["sleep", "60"], timeout_s=30.0)


def test_what_ranks_leave_behind_ends_with_them(two: Lab) -> None:
    # In a session of its own, as torchrun's workers are, and holding its parent's output.
    status, out, _ = executed(two, "--all", "--", "sh", "-c", "setsid sleep 60 & echo $RANK")
    assert (status, out) == (0, ["[node0] 0", "[node1] 1"])


def test_a_run_ends_its_own_processes_only(two: Lab) -> None:
    with two.popen(two.nodes[0], ["sleep", "60"]) as other:
        assert [rank.returncode for rank in two.run_all(["true"], timeout_s=30.0)] == [0, 0]
        assert other.poll() is None
        os.killpg(other.pid, signal.SIGTERM)
        assert other.wait(timeout=20) == -signal.SIGTERM


def test_a_reader_that_leaves_ends_the_run(two: Lab) -> None:
    with execution(two, "--all", "--grace", "1s", "--", "sh", "-c", "while :; do echo y; done") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        process.wait(timeout=30)
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_streams_are_whatever_stands_for_them(two: Lab) -> None:
    with redirect_stdout(io.StringIO()) as out:
        results = two.run_all(["echo", "here"], timeout_s=30.0, output="prefixed")
    assert sorted(out.getvalue().splitlines()) == ["[node0] here", "[node1] here"]
    assert [rank.stdout for rank in results] == ["", ""]


def test_a_command_that_is_none_starts_nothing(two: Lab) -> None:
    for arguments in (["--all", "--", "no-such-command"], ["node0", "--", "no-such-command"]):
        assert "command 'no-such-command'" in refused(hocket("lab", "exec", "--name", two.name, *arguments))
    assert "give one" in refused(hocket("lab", "exec", "--name", two.name, "node0"))
    late = hocket("lab", "exec", "--name", two.name, "--timeout", "1s", "node0", "--", "true")
    assert "--all" in refused(late)


ALL_REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.full((100_000,), float(dist.get_rank() + 1))
dist.all_reduce(total)
print(total.unique().tolist())
dist.destroy_process_group()
"""

WORLD = """
import torch.distributed as dist
dist.init_process_group("gloo")
print(dist.get_rank(), dist.get_world_size(), dist.is_torchelastic_launched())
dist.barrier()  # one that leaves before the other has connected would fail it
dist.destroy_process_group()
"""


def test_a_script_for_torchrun_finds_its_world(name: str, tmp_path: Path) -> None:
    script = tmp_path / "world.py"
    script.write_text(WORLD)
    with Lab(nodes=2, rate_bps=1e9, name=name) as lab:
        status, out, err = executed(lab, "--all", "--timeout", "60s", "--", sys.executable, str(script))
    assert (status, out) == (0, ["[node0] 0 2 True", "[node1] 1 2 True"]), err


def test_gloo_reduces_over_the_lab(two: Lab) -> None:
    results = two.run_all([sys.executable, "-c", ALL_REDUCE], timeout_s=60.0)
    assert [(rank.returncode, rank.stdout) for rank in results] == [(0, "[3.0]\n")] * 2, results[0].stderr


TORCHRUN = (
    "exec {python} -m torch.distributed.run --nnodes 2 --nproc-per-node 1 --node-rank $GROUP_RANK"
    " --master-addr $MASTER_ADDR --master-port $MASTER_PORT {script}"
)


def test_torchrun_reduces_over_the_lab(two: Lab, tmp_path: Path) -> None:
    script = tmp_path / "reduce.py"
    script.write_text(ALL_REDUCE)
    command = TORCHRUN.format(python=sys.executable, script=script)
    results = two.run_all(["sh", "-c", command], timeout_s=90.0)
    assert [(rank.returncode, rank.stdout) for rank in results] == [(0, "[3.0]\n")] * 2, results[0].stderr


def test_torchruns_workers_end_with_it(two: Lab, tmp_path: Path) -> None:
    script = tmp_path / "wait.py"
    script.write_text("import os, time; os.environ['RANK'] == '0' or os._exit(5); time.sleep(60)")
    command = TORCHRUN.format(python=sys.executable, script=script)
    results = two.run_all(["sh", "-c", command], timeout_s=90.0, grace_s=1.0)
    assert results[1].returncode == 1
    assert results[0].returncode != 0
