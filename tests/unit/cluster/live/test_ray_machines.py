"""Which machine of a Ray cluster is which node: the same one later, and none in place of one that left."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from hocket.cluster.live.nodes import AbsentError
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
