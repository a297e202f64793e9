"""DDP as it is timed: its buckets are those that users of it have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from hocket.bench.training.timed_models import load
from hocket.bench.training.training_request import BUCKETS_MB, DEFAULT_BUCKET_MB
from hocket.bench.training.variants import ddp


@pytest.fixture
def alone() -> Iterator[dist.ProcessGroup]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    group = dist.group.WORLD
    assert group is not None
    yield group
    dist.destroy_process_group()


def test_the_default_bucket_is_ddp_as_users_run_it(alone: dist.ProcessGroup) -> None:
    setup = load("gpt", 1, seed=0)
    for bucket_mb in BUCKETS_MB:
        model = getattr(ddp(setup, bucket_mb, alone), "__self__").model  # noqa: B009
        assert isinstance(model, DistributedDataParallel)
        assert model.bucket_bytes_cap == bucket_mb * 2**20
        # With a first bucket of 1 MiB.
        assert model.bucket_bytes_cap_default == (bucket_mb == DEFAULT_BUCKET_MB)
