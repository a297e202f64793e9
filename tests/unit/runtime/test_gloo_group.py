"""What ranks tell each other: typed, and never anything that runs where it is read."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import hocket
from hocket.errors import HocketError
from hocket.graph import Plan, Reduction
from hocket.runtime.transfers.gloo_group import GlooGroup, broadcast_value, gather_values, new_group_name


class _Relayed(GlooGroup):
    """A group in which rank 0 sends ``sent``, as this rank, the second, receives it."""

    def __init__(self, sent: bytes) -> None:
        self.rank, self.size = 1, 2
        self._messages = [torch.tensor([len(sent)]), torch.tensor(list(sent), dtype=torch.uint8)]

    def broadcast(self, tensor: torch.Tensor) -> dist.Work:
        tensor.copy_(self._messages.pop(0))
        return dist.Work()


class _Touch:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> object:
        return Path.touch, (self.path,)


@pytest.fixture
def alone() -> Iterator[GlooGroup]:
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield GlooGroup([0], "test", timedelta(seconds=10))
    dist.destroy_process_group()


def test_values_come_back_as_they_were(alone: GlooGroup) -> None:
    plan = Plan(
        policy="test",
        model="test",
        architecture="allreduce",
        reductions=(Reduction(parameters=("a", "b"), window="forward"), Reduction(parameters=("c",))),
        compute_order=None,
    )
    assert gather_values([plan], alone, list[Plan]) == [[plan]]
    assert gather_values([], alone, list[Plan]) == [[]]
    assert gather_values("ü", alone, str) == ["ü"]
    assert broadcast_value(0.1, alone, float) == 0.1
    assert re.fullmatch("hocket/[0-9a-f]{32}", new_group_name(None))
    assert new_group_name(None) != new_group_name(None)


def test_what_a_rank_sends_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dist.Work, "wait", lambda self: True)
    path = tmp_path / "run"
    group = _Relayed(pickle.dumps(_Touch(path)))
    with pytest.raises(HocketError, match="what another rank sent is not what this one takes"):
        broadcast_value("mine", group, str)
    assert not path.exists()


def test_nothing_in_the_package_reads_pickles() -> None:
    reads = r"\bpickle\.loads?\(|Unpickler|torch\.load\(|_object\(|_object_list\(|weights_only=False"
    package = Path(hocket.__file__).parent
    found = [path for path in package.rglob("*.py") if re.search(reads, path.read_text())]
    assert found == []
