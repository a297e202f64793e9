"""Which machine of a Ray cluster is which node: the same one later, and none in place of one that left."""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from hocket.cluster.live.devices import shared_out, split_evenly
from hocket.cluster.live.nodes import AbsentError
from hocket.cluster.live.ray_gpus import hold_gpus, tell_apart
from hocket.cluster.live.ray_machines import machines_of
from hocket.cluster.live.ray_nodes import RankActor, RayNode, ray_nodes
from hocket.errors import HocketError

ray = pytest.importorskip("ray")


def machine(host: str, address: str, number: str = "", alive: bool = True) -> dict[str, Any]:
    return {
        **{"NodeID": number or f"{host}-{address}", "Alive": alive},
        **{"NodeManagerHostname": host, "NodeManagerAddress": address},
    }


class Answer:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __await__(self) -> Generator[Any, None, Any]:
        yield from asyncio.sleep(0).__await__()
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class Actor:
    """A handle of an actor in this process; on a machine that is gone it fails as Ray's does."""

    def __init__(self, cluster: FakeRay, number: str, folder: str) -> None:
        self._cluster, self._number, self._actor = cluster, number, RankActor(folder)

    def __getattr__(self, name: str) -> Any:
        def remote(*arguments: Any) -> Answer:
            there = any(n["NodeID"] == self._number and n["Alive"] for n in self._cluster.found)
            if not there:
                return Answer(ray.exceptions.ActorDiedError())
            return Answer(getattr(self._actor, name)(*arguments))

        return type("Method", (), {"remote": staticmethod(remote)})


class FakeRay:
    exceptions = ray.exceptions

    def __init__(self, *found: dict[str, Any]) -> None:
        self.found = list(found)

    def nodes(self) -> list[dict[str, Any]]:
        return self.found

    def remote(self, **_: Any) -> Any:
        def options(scheduling_strategy: Any) -> Any:
            number = scheduling_strategy.node_id
            return type("Made", (), {"remote": staticmethod(lambda folder: Actor(self, number, folder))})

        return lambda _actor: type("Class", (), {"options": staticmethod(options)})

    def get(self, answer: Answer, timeout: float) -> Any:
        return answer.value


# As long as Ray's own numbers: its strategy checks them.
FIRST, SECOND = "a" * 56, "b" * 56


def test_nodes_are_machines_whatever_their_addresses(tmp_path: Path) -> None:
    first = [machine("red", "10.0.0.1"), machine("blue", "10.0.0.2")]
    assert machines_of(first, tmp_path, None) == {"node0": "red", "node1": "blue"}
    later = [machine("green", "10.0.0.0"), machine("blue", "10.0.0.1"), machine("red", "10.0.0.2")]
    assert machines_of(later, tmp_path, None) == {"node0": "red", "node1": "blue"}
    assert machines_of([], tmp_path, 2) == {"node0": "red", "node1": "blue"}
    with pytest.raises(HocketError, match=r"3 servers, and the cluster in .* has 2"):
        machines_of(later, tmp_path, 3)


def test_machines_of_one_name_go_by_their_addresses(tmp_path: Path) -> None:
    found = [machine("lab", "10.77.0.1"), machine("lab", "10.77.0.2"), machine("other", "10.77.0.3")]
    assert list(machines_of(found, tmp_path, None).values()) == ["10.77.0.1", "10.77.0.2", "other"]
    with pytest.raises(HocketError, match="4 servers, and the Ray cluster has 3 nodes"):
        machines_of(found, tmp_path / "another", 4)


def test_ray_nodes_of_one_name_and_address_go_by_their_ids(tmp_path: Path) -> None:
    found = [machine("red", "10.0.0.1", FIRST), machine("red", "10.0.0.1", SECOND)]
    assert machines_of(found, tmp_path, None) == {"node0": FIRST, "node1": SECOND}
    (tmp_path / "token").write_text("a token of this cluster")
    assert [node.ray_id for node in ray_nodes(FakeRay(*found), tmp_path, None)] == [FIRST, SECOND]


def test_a_name_that_another_machine_comes_with_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a token of this cluster")
    cluster = FakeRay(machine("red", "10.0.0.1", FIRST))
    ray_nodes(cluster, tmp_path, None)
    cluster.found.append(machine("red", "10.0.0.2", SECOND))
    with pytest.raises(
        HocketError,
        match=r"'red' is 2 Ray nodes now, at 10.0.0.1 and 10.0.0.2; say in .*ray-nodes.json which",
    ):
        ray_nodes(cluster, tmp_path, None)


def ray_nodes_seeing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *seen: tuple[str, ...] | None
) -> list[RayNode]:
    """Ray nodes on this machine, each of which sees these of its GPUs."""
    (folder / "token").write_text("a token of this cluster")
    places = iter([item for each in seen for item in (each, each)])  # its own is asked for beside each
    monkeypatch.setattr("hocket.cluster.live.ray_machines.visible_devices", lambda _: next(places))
    found = [machine("red", f"10.0.0.{k}", digit * 56) for k, digit in enumerate("abc"[: len(seen)])]
    return ray_nodes(FakeRay(*found), folder, None)


def test_ray_nodes_on_one_machine_are_said_to_share_its_gpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = ray_nodes_seeing(tmp_path, monkeypatch, ("0", "1"), ("0", "1"))
    host = platform.node()
    assert tell_apart(nodes) == [
        f"node0 and node1 are 2 Ray nodes on one machine, {host}: they share its GPUs 0, 1"
    ]
    assert split_evenly(nodes) == [1, 1]
    assert shared_out(nodes, 1) == [("0",), ("1",)]


def test_ray_nodes_on_one_machine_that_see_no_gpu_are_said_to_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (line,) = tell_apart(ray_nodes_seeing(tmp_path, monkeypatch, None, None, None))
    assert line == f"node0, node1 and node2 are 3 Ray nodes on one machine, {platform.node()}: they share it"


def test_ray_nodes_on_one_machine_with_gpus_of_their_own_have_all_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = ray_nodes_seeing(tmp_path, monkeypatch, ("0", "1"), ("2", "3"))
    assert tell_apart(nodes) == []
    assert split_evenly(nodes) == [2, 2]
    assert shared_out(nodes, 2) == [("0", "1"), ("2", "3")]
    assert nodes[0].machine != nodes[1].machine
    monkeypatch.setattr("hocket.cluster.live.ray_machines.visible_devices", lambda _: ("0", "1"))
    nodes[0].reach()  # as after its actor's death
    assert shared_out(nodes, 2) == [("0", "1"), ("2", "3")]


def test_ray_nodes_of_which_two_see_one_gpu_and_others_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = ray_nodes_seeing(tmp_path, monkeypatch, ("0", "1"), ("1", "2"))
    with pytest.raises(
        HocketError, match="node0 and node1 are Ray nodes on one machine and both have its GPU 1;"
    ):
        tell_apart(nodes)


def test_a_gpu_that_ray_gave_to_two_nodes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two Ray nodes that see the same GPUs know nothing of each other."""
    nodes = ray_nodes_seeing(tmp_path, monkeypatch, ("0", "1", "2"), ("0", "1", "2"))
    given = dict(zip((FIRST, SECOND), (("1", "2"), ("0", "1")), strict=True))
    monkeypatch.setattr(
        "hocket.cluster.live.ray_nodes.reserve_gpus", lambda _ray, node, *_: given[node["NodeID"]]
    )
    for node in nodes:
        node.ray_machine()["Resources"] = {"GPU": 3.0}
    with pytest.raises(
        HocketError, match="node0 and node1 are Ray nodes on one machine, and Ray gave both GPU 1"
    ):
        hold_gpus(nodes, 1)


def test_two_nodes_on_one_ray_node_are_as_they_were_asked_for(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a token of this cluster")
    assert tell_apart(ray_nodes(FakeRay(machine("red", "10.0.0.1", FIRST)), tmp_path, 2)) == []


def test_one_machine_is_as_many_nodes_as_are_wanted(tmp_path: Path) -> None:
    assert machines_of([machine("red", "127.0.0.1")], tmp_path, 2) == {"node0": "red", "node1": "red"}


def test_a_machine_that_comes_back_is_the_node_that_it_was(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a token of this cluster")
    cluster = FakeRay(machine("red", "10.0.0.1", FIRST), machine("blue", "10.0.0.2", "c" * 56))
    node, other = ray_nodes(cluster, tmp_path, None)
    assert isinstance(node, RayNode)
    assert (node.name, node.address, node.shares_files, node.here) == ("node0", "10.0.0.1", True, True)

    async def asked() -> None:
        assert await node.conditions() == {}
        cluster.found[0]["Alive"] = False
        for _ in range(2):
            with pytest.raises(AbsentError, match="node0 does not answer"):
                await node.conditions()
        with pytest.raises(AbsentError, match="'red' is not in the Ray cluster"):
            await node.conditions()
        assert await other.conditions() == {}
        cluster.found.append(machine("red", "10.0.0.9", SECOND))
        assert await node.conditions() == {}
        assert node.address == "10.0.0.9"

    asyncio.run(asked())
    # Another manager begins while it is away again.
    cluster.found = [cluster.found[1]]
    again = ray_nodes(cluster, tmp_path, None)
    assert [each.name for each in again] == ["node0", "node1"]
    assert (again[0].address, again[1].address) == ("", "10.0.0.2")
    cluster.found = []
    with pytest.raises(HocketError, match="not in the Ray cluster"):
        ray_nodes(cluster, tmp_path, None)


def test_a_machine_that_says_nothing_is_named_with_the_time_that_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def get(_cluster: FakeRay, _answer: Answer, timeout: float) -> Any:
        raise ray.exceptions.GetTimeoutError("Get timed out: some object(s) not ready.")

    monkeypatch.setattr(FakeRay, "get", get)
    (tmp_path / "token").write_text("a token of this cluster")
    with pytest.raises(HocketError, match="node0 does not answer: nothing from 'red' within 180 s"):
        ray_nodes(FakeRay(machine("red", "10.0.0.1", FIRST)), tmp_path, None)


def test_a_machine_with_other_files_is_known_by_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("a token of this cluster")
    theirs = tmp_path / "theirs"
    theirs.write_text("a token of another cluster, at the same path")
    machine_of = RankActor.machine
    monkeypatch.setattr(RankActor, "machine", lambda self, path: machine_of(self, str(theirs)))
    (node,) = ray_nodes(FakeRay(machine("red", "10.0.0.1", FIRST)), tmp_path, None)
    assert (node.shares_files, node.here) == (False, False)


@pytest.mark.parametrize(
    ("seen", "of_ray", "expected"),
    [
        (("4", "5", "6"), 2.0, ("4", "5")),  # ray start --num-gpus 2
        (("4", "5"), None, ("4", "5")),
        (("4", "5"), 2.0, ("4", "5")),
        (None, 2.0, ("0", "1")),
        (None, None, None),
        ((), 2.0, ()),
    ],
)
def test_a_node_has_the_gpus_that_ray_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: Any, of_ray: Any, expected: Any
) -> None:
    (tmp_path / "token").write_text("a token of this cluster")
    monkeypatch.setattr("hocket.cluster.live.ray_machines.visible_devices", lambda _: seen)
    found = machine("red", "10.0.0.1", FIRST)
    if of_ray is not None:
        found["Resources"] = {"CPU": 4.0, "GPU": of_ray}
    (node,) = ray_nodes(FakeRay(found), tmp_path, None)
    assert node.devices == expected


def test_a_node_is_of_the_type_that_ray_says_and_stays_so_while_it_is_away(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a token of this cluster")
    red = machine("red", "10.0.0.1", FIRST) | {"Resources": {"CPU": 4.0, "accelerator_type:A100": 1.0}}
    cluster = FakeRay(red, machine("blue", "10.0.0.2", SECOND))
    assert [node.type_of("0") for node in ray_nodes(cluster, tmp_path, None)] == ["a100", ""]
    red["Alive"] = False
    assert [node.type_of("0") for node in ray_nodes(cluster, tmp_path, None)] == ["a100", ""]


def test_a_machine_that_comes_back_to_gpus_that_others_took_is_absent_until_they_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("a token of this cluster")
    taken: list[bool] = []

    def reserve(_ray: Any, _node: Any, _cluster: str, count: int) -> tuple[str, ...]:
        if any(taken):
            raise HocketError("2 GPUs of red: other programs hold too many of them")
        return tuple(map(str, range(count)))

    monkeypatch.setattr("hocket.cluster.live.ray_nodes.reserve_gpus", reserve)
    found = machine("red", "10.0.0.1", FIRST) | {"Resources": {"CPU": 4.0, "GPU": 4.0}}
    (node,) = ray_nodes(FakeRay(found), tmp_path, None)
    assert isinstance(node, RayNode)
    node.hold(2)
    assert node.devices == ("0", "1")
    taken.append(True)
    with pytest.raises(AbsentError, match="node0 does not answer: 2 GPUs of red"):
        node.reach()
    taken.clear()
    node.reach()
    assert node.devices == ("0", "1")
