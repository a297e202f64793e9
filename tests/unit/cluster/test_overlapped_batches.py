"""Generated jobs whose transfers overlap: what is assumed of the models is what the zoo's are."""

from __future__ import annotations

import numpy as np
import pytest

from hocket import models
from hocket.cluster.cluster import PER_BYTE_S, STARTUP_S
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.workloads import paper_workload, with_overlap
from hocket.cluster.workloads.overlapped_batches import BUCKETS, LayerShare
from hocket.errors import HocketError

ZOO = {"vgg16": "vgg16", "resnet50": "resnet50_v1", "inception_v3": "inception_v3", "lstm_ptb": "lstm_ptb"}
BUCKET_BYTES = 25 * 2**20


def layers_of(name: str) -> list[tuple[int, int]]:
    """Bytes and multiply-adds of a sample of each layer of a zoo model, as they run; nothing computes."""
    torch = pytest.importorskip("torch")
    nn = torch.nn
    spec = models.spec(name)
    found: list[tuple[int, int]] = []

    def ran(module: object, inputs: tuple[object, ...], output: object) -> None:
        own = [p.numel() for p in module.parameters(recurse=False)]  # type: ignore[attr-defined]
        if isinstance(module, nn.LSTM):
            tokens = inputs[0].shape[1]  # type: ignore[attr-defined]
            for k in range(module.num_layers):
                size = sum(p.numel() for n, p in module.named_parameters() if n.endswith(f"_l{k}"))
                found.append((4 * size, size * tokens))
        elif isinstance(module, nn.Conv2d):
            positions = output.shape[2] * output.shape[3]  # type: ignore[attr-defined]
            found.append((4 * sum(own), module.weight.numel() * positions))
        elif isinstance(module, nn.Linear):
            tokens = output[0].numel() // output.shape[-1]  # type: ignore[index,attr-defined]
            found.append((4 * sum(own), module.weight.numel() * tokens))
        elif own:
            found.append((4 * sum(own), 0))

    with torch.device("meta"):
        model = models.build(name).train()
        for module in model.modules():
            module.register_forward_hook(ran)
        if spec.input_kind == "image":
            model(torch.empty(2, *spec.input_shape))
        else:
            model(torch.zeros(2, *spec.input_shape, dtype=torch.int64))
    return found


def buckets_of(name: str) -> list[tuple[int, int]]:
    """Layers from the last one on, a bucket closed when it has 25 MiB; in the order in which they run."""
    buckets = [(0, 0)]
    for size, work in reversed(layers_of(name)):
        if buckets[0][0] >= BUCKET_BYTES:
            buckets.insert(0, (0, 0))
        buckets[0] = (buckets[0][0] + size, buckets[0][1] + work)
    return buckets


@pytest.mark.parametrize("model", ZOO)
def test_buckets_are_those_of_the_zoo(model: str) -> None:
    shares = np.array(buckets_of(ZOO[model]), np.float64)
    shares /= shares.sum(axis=0)
    assert np.array([*BUCKETS[model]]) == pytest.approx(shares, abs=6e-5)


def test_batches_add_up_and_are_due_where_layers_begin() -> None:
    jobs = with_overlap(paper_workload(num_jobs=12, sizes="wide"))
    for job in jobs.jobs:
        assert sum(batch.size_bytes for batch in job.batches) == pytest.approx(job.size_bytes)
        assert len(job.batches) == len(BUCKETS[job.model])
        first_layers = max(batch.ready_s for batch in job.batches)
        assert first_layers == pytest.approx(job.forward_s + job.backward_s)


def test_a_small_model_travels_beside_computing_alone() -> None:
    """On a network that is fast enough for it nothing but the first layers' bucket keeps anybody waiting."""
    fast = with_overlap(paper_workload(num_jobs=40), startup_s=0.0, per_byte_s=PER_BYTE_S / 100)
    for job in fast.jobs:
        late = [batch for batch in job.batches if batch.due_s == 0.0]
        assert late, "the first layers are needed at once"


def test_a_model_without_known_layers_is_refused() -> None:
    job = Job(
        id="a",
        model="alexnet",
        gpus=1,
        iterations=1,
        arrival_s=0.0,
        forward_s=1.0,
        backward_s=1.0,
        size_bytes=1e6,
        memory_bytes=0.0,
    )
    with pytest.raises(HocketError, match=r"'alexnet'.*choose one of: vgg16"):
        with_overlap(JobSet(jobs=(job,)), startup_s=STARTUP_S)


def test_shares_are_shares() -> None:
    for buckets in BUCKETS.values():
        assert LayerShare(*np.sum(buckets, axis=0)) == pytest.approx((1.0, 1.0), abs=5e-4)
