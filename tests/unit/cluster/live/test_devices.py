"""GPUs: which a machine leaves to us, and that no two nodes or jobs have the same one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.cluster.live.devices import shared_out, visible_devices
from hocket.cluster.live.nodes import local_nodes
from hocket.errors import HocketError
from tests.unit.cluster.live.clusters import live_job, running


@dataclass(frozen=True)
class Node:
    """A node of a machine."""

    name: str
    machine: str = "red"
    devices: tuple[str, ...] | None = None


@pytest.mark.parametrize(
    ("mask", "gpus", "found"),
    [
        (None, 0, None),
        (None, 2, ("0", "1")),
        ("", 4, ()),
        ("-1", 4, ()),
        ("4,5,6,7", 8, ("4", "5", "6", "7")),
        (" 5 , 3", 8, ("5", "3")),
        ("0,9,1", 4, ("0",)),  # as in CUDA, nothing counts behind what is not there
        ("1,-1,2", 4, ("1",)),
        ("2,2,3", 4, ("2", "3")),
        ("GPU-7a1b,GPU-99", 2, ("GPU-7a1b", "GPU-99")),
        ("4,5", 0, ("4", "5")),  # GPUs' files may be elsewhere
    ],
)
def test_a_mask_says_what_is_ours(
    tmp_path: Path, mask: str | None, gpus: int, found: tuple[str, ...] | None
) -> None:
    for name in (*(f"nvidia{k}" for k in range(gpus)), "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    environment = {} if mask is None else {"CUDA_VISIBLE_DEVICES": mask}
    assert visible_devices(environment, tmp_path) == found


def test_nodes_of_one_machine_share_its_gpus_out() -> None:
    seen = ("4", "5", "6", "7")
    nodes = [Node("a", devices=seen), Node("b", "blue", ("0", "1")), Node("c", devices=seen)]
    assert shared_out(nodes, 2) == [("4", "5"), ("0", "1"), ("6", "7")]


def test_more_gpus_than_there_are_is_refused_with_the_ids() -> None:
    nodes = [Node(name, devices=("4", "5", "6", "7")) for name in ("node0", "node1")]
    with pytest.raises(HocketError, match=r"node0, node1: 8 GPUs on one machine, which has 4 \(4, 5, 6, 7\)"):
        shared_out(nodes, 4)


def test_where_no_gpu_is_seen_slots_have_numbers_of_their_own() -> None:
    assert shared_out([Node("a"), Node("b"), Node("c", "blue")], 2) == [("0", "1"), ("2", "3"), ("0", "1")]


def test_an_empty_mask_leaves_slots_without_gpus() -> None:
    assert shared_out([Node("a", devices=()), Node("b", devices=())], 4) == [(), ()]


@given(
    st.lists(st.tuples(st.sampled_from("rgb"), st.integers(0, 8)), min_size=1, max_size=6),
    st.integers(1, 4),
)
def test_no_gpu_is_given_twice(machines: list[tuple[str, int]], gpus: int) -> None:
    of_machine = dict(machines)
    nodes = [
        Node(f"n{k}", machine, tuple(f"{machine}{d}" for d in range(of_machine[machine])))
        for k, (machine, _) in enumerate(machines)
    ]
    try:
        given_to = shared_out(nodes, gpus)
    except HocketError:
        assert any(0 < of_machine[m] < gpus * sum(n.machine == m for n in nodes) for m in of_machine)
        return
    every = [gpu for each in given_to for gpu in each]
    assert len(set(every)) == len(every)
    assert all(len(each) in (0, gpus) for each in given_to)


def shown(tmp_path: Path, job: int) -> str:
    return (tmp_path / "jobs" / str(job) / "gpus").read_text().strip()


def test_two_exclusive_jobs_on_one_machine_see_four_gpus_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "8,9,10,11,4,5,6,7")
    show = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES > $HOCKET_CHECKPOINT/gpus; sleep 1")
    jobs = [live_job(name, gpus=4, command=show, memory_bytes=10.0) for name in "ab"]
    with running(tmp_path, jobs, servers=2, gpus=4) as cluster:
        assert {record.state for record in cluster.join().values()} == {"finished"}
    assert {shown(tmp_path, 1), shown(tmp_path, 2)} == {"8,9,10,11", "4,5,6,7"}


def test_a_manager_that_has_too_few_gpus_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")
    with pytest.raises(HocketError, match="8 GPUs on one machine"), running(tmp_path, servers=2, gpus=4):
        pass


def test_running_jobs_keep_the_gpus_that_they_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    job = live_job("a", gpus=2, command=("sleep", "60"))
    with running(tmp_path, [job], servers=1, until_idle=False, keep=True) as cluster:
        cluster.until(lambda status: cluster.manager.records[0].state == "running")
    nodes = cluster.nodes
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with (
        pytest.raises(HocketError, match=r"jobs run on GPUs 4,5 of node0, which would have 0,1 now"),
        running(tmp_path, servers=1, nodes=local_nodes(tmp_path, 1)),
    ):
        pass
    with running(tmp_path, servers=1, nodes=nodes, until_idle=False) as cluster:  # as it was
        assert cluster.status().jobs[0].state == "running"
