"""GPUs that clusters hold in Ray: each its own, none twice, and none once no rank is left."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hocket.cluster.live import ray_reservation
from hocket.cluster.live.devices import shared_out
from hocket.cluster.live.nodes import Node
from hocket.cluster.live.ray_gpus import hold_gpus, let_gpus_go
from hocket.cluster.live.ray_nodes import ray_nodes
from hocket.errors import HocketError

ray = pytest.importorskip("ray")

pytestmark = [pytest.mark.long, pytest.mark.timeout(200)]


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A Ray cluster of one machine with four GPUs, which are numbers alone."""
    monkeypatch.setattr(ray_reservation, "_ANSWER_S", 8.0)
    ray.init(
        "local", num_cpus=1, num_gpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR"
    )
    yield
    ray.shutdown()


def nodes_of(folder: Path, count: int) -> list[Node]:
    folder.mkdir(exist_ok=True)
    (folder / "token").write_text(str(folder))
    return ray_nodes(ray, folder, count)


def free() -> float:
    return float(ray.available_resources().get("GPU", 0.0))


def until_free(count: float) -> None:
    """Ray counts what it gave some time later."""
    deadline = time.monotonic() + 20
    while free() != count:
        assert time.monotonic() < deadline, free()
        time.sleep(0.1)


def given(nodes: list[Node], each: int) -> set[str]:
    found = [name for names in shared_out(nodes, each) for name in names]
    assert len(found) == len(set(found)) == len(nodes) * each
    return set(found)


def test_two_clusters_and_ray_itself_have_no_gpu_twice(tmp_path: Path, gpus: None) -> None:
    first, second = nodes_of(tmp_path / "first", 3), nodes_of(tmp_path / "second", 1)
    hold_gpus(first, 1)
    until_free(1)
    with pytest.raises(
        HocketError, match=r"2 GPUs of .*: Ray has 4 GPUs there, and other programs hold too many"
    ):
        hold_gpus(second, 2)
    again = nodes_of(tmp_path / "second", 1)
    hold_gpus(again, 1)
    until_free(0)
    assert given(first, 1) | given(again, 1) == {"0", "1", "2", "3"}
    held = first[0].devices
    assert held is not None
    assert list(held) == sorted(held)  # Ray's order is another one each time
    # Another manager of the first cluster finds the same.
    later = nodes_of(tmp_path / "first", 3)
    hold_gpus(later, 1)
    assert given(later, 1) == given(first, 1)
    let_gpus_go(ray, again)
    until_free(1)

    async def run(seconds: str) -> None:
        await later[0].start("1-1-0", [sys.executable, "-c", f"import time; time.sleep({seconds})"], {}, "/")

    asyncio.run(run("60"))
    let_gpus_go(ray, later)  # a rank is on one of them
    time.sleep(1)
    assert free() == 1
    asyncio.run(later[0].stop("1-1-0", 5.0))
    actor: Any = later[0]
    deadline = time.monotonic() + 30
    while actor.has_ranks():
        assert time.monotonic() < deadline
        time.sleep(0.2)
    let_gpus_go(ray, later)
    until_free(4)
