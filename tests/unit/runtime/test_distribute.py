"""How the training of a rank ends, whatever becomes of its timeline."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

import hocket
from hocket.errors import HocketError
from hocket.runtime.ending import went_on


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process group of this process alone, in a script that has not failed."""
    monkeypatch.setattr(sys, "exit", sys.exit)  # given back afterwards
    monkeypatch.delattr(sys, "last_value", raising=False)
    went_on()  # what tests before this one exited with
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_a_rank_whose_timeline_cannot_be_written_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOCKET_TIMELINE", str(tmp_path / "missing" / "timeline.json"))
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    hocket.distribute(model, optimizer, plan="ddp")
    watch = model.hocket._training.watch
    model(torch.ones(3, 4)).sum().backward()
    optimizer.step()
    with pytest.raises(HocketError, match="missing"):
        model.hocket.detach()
    assert not watch._thread.is_alive()
    (sign,) = watch._read()
    assert sign.finished
