"""GPUs: which a machine leaves to us, and that no two nodes or jobs have the same one."""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.cluster.gpu_type import type_of_name
from hocket.cluster.live.devices import (
    BY_BUS,
    known_types,
    listed_devices,
    shared_out,
    split_evenly,
    types_of_slots,
    visible_devices,
)
from hocket.cluster.live.manager_messages import AskWhy, Cancel, Drain, Submit
from hocket.cluster.live.nodes import LocalNode, local_nodes
from hocket.cluster.live.nvml import gpu_memory
from hocket.errors import HocketError
from tests.unit.cluster.live.clusters import live_job, running


@dataclass(frozen=True)
class Node:
    """A node of a machine."""

    name: str
    machine: str = "red"
    devices: tuple[str, ...] | None = None
    slots: int | None = None
    types: tuple[str, ...] = ()  # of each of them

    def type_of(self, device: str) -> str:
        return self.types[(self.devices or ()).index(device)] if self.types else ""


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
        cluster.until_ranks_run()
    nodes = cluster.nodes
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with (
        pytest.raises(HocketError, match=r"jobs run on GPUs 4,5 of node0, which would have 0,1 now"),
        running(tmp_path, servers=1, nodes=local_nodes(tmp_path, 1)),
    ):
        pass
    with running(tmp_path, servers=1, nodes=nodes, until_idle=False) as cluster:  # as it was
        assert cluster.status().jobs[0].state == "running"


def named(folder: Path, count: int, gpus: str) -> list[LocalNode]:
    """The nodes of ``--servers COUNT --gpus GPUS``."""
    nodes = local_nodes(folder, count)
    for node in nodes:
        node.have_devices(listed_devices(gpus))
    for node, slots in zip(nodes, split_evenly(nodes), strict=True):
        node.slots = slots
    return nodes


def test_jobs_of_two_managers_on_one_machine_see_exactly_their_own_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6,7")  # the managers' own, which decides nothing here
    show = (
        "sh",
        "-c",
        "echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER $LOCAL_RANK > $HOCKET_CHECKPOINT/$RANK; sleep 2",
    )
    first = [live_job(name, gpus=k, command=show, memory_bytes=10.0) for name, k in (("a", 2), ("b", 1))]
    second = [live_job(name, command=show, memory_bytes=10.0) for name in "cd"]
    red, blue = tmp_path / "red", tmp_path / "blue"
    with (
        running(red, first, nodes=named(red, 1, "0,2,5"), gpus=3) as one,
        running(blue, second, nodes=named(blue, 2, "1,GPU-7a"), gpus=1) as two,
    ):
        status = two.until(lambda s: all(job.gpus for job in s.jobs))
        assert status.devices == (("1",), ("GPU-7a",))
        for cluster in (one, two):
            assert {record.state for record in cluster.join().values()} == {"finished"}
    seen = {path: path.read_text().split() for path in tmp_path.glob("*/jobs/*/*")}
    assert {line[1] for line in seen.values()} == {"PCI_BUS_ID"}
    of_job = {(path.parts[-4], path.parts[-2]): line[0] for path, line in seen.items()}
    assert sorted(",".join(of_job["red", number] for number in "12").split(",")) == ["0", "2", "5"]
    assert len(of_job["red", "1"].split(",")) == 2
    assert sorted(of_job["blue", number] for number in "12") == ["1", "GPU-7a"]
    assert {line[2] for path, line in seen.items() if path.name == "1"} == {"1"}


def test_nodes_of_unequal_size_get_what_they_have(tmp_path: Path) -> None:
    show = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES >> $HOCKET_CHECKPOINT/gpus")
    jobs = [live_job("all", gpus=3, command=show, memory_bytes=10.0)]
    with running(tmp_path, jobs, nodes=named(tmp_path, 2, "0,2,5"), gpus=2, until_idle=False) as cluster:
        status = cluster.until(lambda s: s.jobs[0].state == "finished")
        assert status.gpus_of_node == (2, 1)
        assert sorted(status.jobs[0].gpus) == [(0, 0), (0, 1), (1, 0)]
        assert set((tmp_path / "jobs" / "1" / "gpus").read_text().split()) == {"0,2", "5"}
        with pytest.raises(HocketError, match=r"needs 4 GPUs .* and of the cluster's 3 3 can have it"):
            cluster.ask(Submit((live_job("more", gpus=4),)))
        cluster.ask(Drain("node0", True))
        cluster.ask(Submit((live_job("wide", gpus=2),)))
        (line,) = cluster.ask(AskWhy("wide")).notes
        assert line == "wide: waits for 2 GPUs; 1 is free on node1; node0 is drained"


def test_gpus_are_named_as_they_can_be() -> None:
    assert listed_devices("0, 2:A100,5") == {"0": "", "2": "a100", "5": ""}
    assert listed_devices("GPU-7a1b-3") == {"GPU-7a1b-3": ""}
    for text, said in (
        ("0,,1", "'' is no GPU"),
        ("0,-1", "'-1' is no GPU"),
        ("1,1", "1 is there twice"),
        ("0:A 1", "'A 1': a type is named"),
    ):
        with pytest.raises(HocketError, match=said):
            listed_devices(text)


def test_a_machines_gpus_are_split_evenly() -> None:
    assert split_evenly([Node("a", devices=("0", "2", "5")), Node("b", devices=("0", "2", "5"))]) == [2, 1]
    assert split_evenly([Node("a"), Node("b", "blue", ("0", "1"))]) == [1, 2]
    with pytest.raises(
        HocketError, match=r"1 GPU \(3\) for 2 nodes on one machine; give at most --servers 1"
    ):
        split_evenly([Node(name, devices=("3",)) for name in "ab"])


class FakeNvml(types.ModuleType):
    """NVIDIA's library with two GPUs, of 16 and 40 bytes, of which 12 and 39 are free."""

    NVMLError = RuntimeError

    def __init__(self, *names: str | bytes) -> None:
        super().__init__("pynvml")
        self.nvmlInit = self.nvmlShutdown = lambda: None
        self.nvmlDeviceGetCount = lambda: 2
        self.nvmlDeviceGetHandleByIndex = lambda number: number
        self.nvmlDeviceGetUUID = lambda number: f"GPU-{number}"
        self.nvmlDeviceGetName = lambda number: names[number]
        self.nvmlDeviceGetMemoryInfo = lambda number: types.SimpleNamespace(
            total=(16, 40)[number], free=(12, 39)[number]
        )


def test_jobs_get_the_memory_that_gpus_have_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml("NVIDIA A100", "NVIDIA A100"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert gpu_memory(free=False) == {"0": 16, "GPU-0": 16, "1": 40, "GPU-1": 40}
    show = ("sh", "-c", "echo $CUDA_VISIBLE_DEVICES > $HOCKET_CHECKPOINT/gpus")
    job = live_job("a", command=show, memory_bytes=14.0)
    nodes = local_nodes(tmp_path, 1)
    assert nodes[0].devices == ("0", "1")
    with running(tmp_path, [job], nodes=nodes, gpus=2, memory=20.0, until_idle=False) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "finished")
        assert shown(tmp_path, 1) == "1"
        with pytest.raises(
            HocketError, match="needs 2 GPUs with 14 B of memory each, and of the cluster's 2 1"
        ):
            cluster.ask(Submit((live_job("b", gpus=2, memory_bytes=14.0),)))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("Tesla V100-SXM2-16GB", "v100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA RTX A6000", "rtxa6000"),
        ("NVIDIA L40S", "l40s"),
        ("A10G", "a10g"),
        ("AMD_Instinct_MI300X", "mi300x"),
        ("", ""),
    ],
)
def test_a_gpus_type_is_its_model(name: str, found: str) -> None:
    assert type_of_name(name) == found


def test_a_clusters_types_are_its_nodes() -> None:
    mixed = Node("a", devices=("0", "1"), types=("a100", "v100"))
    small = Node("b", "blue", ("0",), 1, ("v100",))
    none = Node("c", "green")
    found = types_of_slots([mixed, small, none], 2)
    assert [(each.name, each.num_gpus) for each in found] == [("a100", 1), ("v100", 3), ("unknown", 2)]
    assert types_of_slots([none, Node("d", "red", ("0", "1"))], 2) == ()


def test_types_are_nvmls_where_numbers_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml("Tesla V100-SXM2-16GB", b"NVIDIA A100"))
    by_uuid = {"GPU-0": "v100", "GPU-1": "a100"}
    assert known_types({}) == {"0": "v100", "1": "a100", **by_uuid}
    assert known_types({"CUDA_VISIBLE_DEVICES": "1"}) == by_uuid, "CUDA may have the fastest one first"
    assert known_types({"CUDA_VISIBLE_DEVICES": "1", **BY_BUS}) == known_types({})


def test_jobs_get_types_that_they_accept_and_say_which_they_wait_for(tmp_path: Path) -> None:
    program = {"command": ("sleep", "60"), "memory_bytes": 10.0}
    first = live_job("first", gpus=2, speeds={"a100": 1.0}, **program)
    nodes = named(tmp_path, 2, "0:a100,1:a100,2:v100,3:v100")
    with running(tmp_path, [first], nodes=nodes, until_idle=False) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "running")
        slow, wide = (
            live_job(name, gpus=2, speeds=speeds, **program)
            for name, speeds in (("slow", {"a100": 1.0, "v100": 0.5}), ("wide", {"a100": 1.0}))
        )
        cluster.ask(Submit((wide, slow)))
        status = cluster.until(lambda s: [job.state for job in s.jobs].count("running") == 2)
        gpus = {job.id: sorted(job.gpus) for job in status.jobs}
        assert (gpus["first"], gpus["slow"]) == ([(0, 0), (0, 1)], [(1, 0), (1, 1)])
        assert status.gpu_types == (("a100", "a100"), ("v100", "v100"))
        types = {job.id: (job.gpu_type, job.accepted_types) for job in status.jobs}
        assert types["slow"] == ("v100", ("a100", "v100"))
        assert types["wide"] == ("", ("a100",))
        (line,) = cluster.ask(AskWhy("wide")).notes
        assert line == "wide: waits for 2 GPUs of a100; 0 are free; first has the others"
        cluster.ask(Submit((live_job("any", gpus=2, **program),)))
        (line,) = cluster.ask(AskWhy("any")).notes
        assert line.startswith("any: waits for 2 GPUs of a100 or v100; 0 are free; first and slow have")
        with pytest.raises(HocketError, match="'x' runs on k80 and the cluster has a100 and v100"):
            cluster.ask(Submit((live_job("x", speeds={"k80": 1.0}, **program),)))
        with pytest.raises(HocketError, match="'x' needs 3 GPUs of a100 and the cluster has 2"):
            cluster.ask(Submit((live_job("x", gpus=3, speeds={"a100": 1.0}, **program),)))


def test_a_job_that_waits_for_a_faster_type_says_so(tmp_path: Path) -> None:
    program = {"command": ("sleep", "60"), "memory_bytes": 10.0}
    first = live_job("first", gpus=2, speeds={"a100": 1.0}, **program)
    nodes = named(tmp_path, 2, "0:a100,1:a100,2:v100,3:v100")
    with running(tmp_path, [first], nodes=nodes, until_idle=False, wait_for_faster=True) as cluster:
        cluster.until(lambda s: s.jobs[0].state == "running")
        patient = live_job("patient", gpus=2, speeds={"a100": 1.0, "v100": 0.01}, **program)
        other = live_job("other", gpus=2, speeds={"a100": 1.0, "v100": 0.8}, **program)
        cluster.ask(Submit((patient,)))
        cluster.ask(Submit((other,)))
        cluster.until(lambda s: [job.state for job in s.jobs] == ["running", "queued", "running"])
        cluster.ask(Cancel("other"))
        cluster.until(lambda s: s.jobs[2].state == "cancelled")
        (line,) = cluster.ask(AskWhy("patient")).notes
        assert line == (
            "patient: waits for 2 GPUs of a100; 0 are free; first has the others; "
            "2 of v100 are free, and slower"
        )
        cluster.ask(Cancel("first"))
        status = cluster.until(lambda s: s.jobs[1].state == "running")
        assert status.jobs[1].gpu_type == "a100"


def test_a_job_that_names_types_is_refused_where_none_is_known(tmp_path: Path) -> None:
    with running(tmp_path, until_idle=False) as cluster:
        job = live_job("x", command=("true",), speeds={"a100": 1.0})
        with pytest.raises(HocketError, match="'x' runs on a100, and the types of the cluster's GPUs are"):
            cluster.ask(Submit((job,)))
