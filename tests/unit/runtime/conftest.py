"""A process group for tests of one rank."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import torch.distributed as dist

from hocket.runtime.observe.exit_status import forget_exit


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process group of this process alone, in a script that has not failed."""
    monkeypatch.setattr(sys, "exit", sys.exit)  # given back afterwards
    monkeypatch.delattr(sys, "last_value", raising=False)
    forget_exit()  # what tests before this one exited with
    store = dist.TCPStore("127.0.0.1", 0, 1, is_master=True, wait_for_workers=False)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()
