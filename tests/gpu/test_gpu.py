"""Training on a GPU is DistributedDataParallel's to the last bit, and the host never waits for it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.gpu import placement
from tests.multiprocess.launch import run
from tests.multiprocess.sharding_setups import batch_of, made

CASES = "tests.gpu.gpu_cases"
GROUPS = pytest.mark.parametrize(
    ("backend", "world"), [("nccl", 1), ("gloo", 2)], ids=["alone over NCCL", "two on one card over gloo"]
)


@pytest.fixture(autouse=True)
def _on_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("gpu") is None:
        return
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")
    monkeypatch.setenv("HOCKET_UNTRIED_GPU", "1")
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def on_gpu(case: str, backend: str, world: int) -> list[Any]:
    return run(f"{CASES}:{case}", world, 600, device="cuda:0", backend=backend)


@pytest.mark.gpu
@GROUPS
def test_parameters_are_bitwise_those_of_ddp(backend: str, world: int) -> None:
    for found in on_gpu("suite", backend, world):
        assert {case: differences for case, differences in found.items() if differences} == {}


@pytest.mark.gpu
@GROUPS
def test_a_step_whose_plan_stays_waits_for_nothing(backend: str, world: int) -> None:
    assert on_gpu("settled_steps", backend, world) == [""] * world


@pytest.mark.gpu
@GROUPS
def test_memory_is_that_of_ddp_with_views_and_two_slices(backend: str, world: int) -> None:
    for ours, ddp, slices in on_gpu("peaks", backend, world):
        assert ours <= 1.1 * ddp + slices


@pytest.mark.gpu
@pytest.mark.parametrize(("backend", "world"), [("gloo", 2)], ids=["two on one card over gloo"])
def test_profiles_are_in_the_time_of_the_gpu_and_their_parts_are_the_step(backend: str, world: int) -> None:
    for found in on_gpu("profiled", backend, world):
        assert found["clock"].startswith("whose clock: the GPU's own")
        assert found["parts"] == pytest.approx(1.0, abs=0.05)
        assert found["step"] == pytest.approx(1.0, abs=0.1)


@pytest.mark.gpu
@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("kind", ["gpt", "resnet"])
def test_a_sharded_model_comes_out_bitwise_as_torchs(kind: str, clipped: bool) -> None:
    case = "tests.multiprocess.sharding_cases:parity"
    alone = {"device": "cuda:0", "backend": "nccl"}
    assert run(case, 1, 600, **alone, kind=kind, plan="batched", clipped=clipped) == [[]]


def test_a_case_on_processors_runs_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "DEVICES", [torch.device("meta")])
    model = placement.placed(nn.Linear(3, 2))
    assert model.weight.is_meta
    seen = []
    model.register_forward_pre_hook(lambda _, args: seen.extend(args))
    with pytest.raises(NotImplementedError, match="meta"):  # its outputs come back, where there are any
        model(torch.ones(4, 3))
    assert seen[0].is_meta


def test_a_sharded_case_has_its_model_where_its_batches_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "DEVICES", [torch.device("meta")])
    assert all(p.is_meta for p in made("gpt").parameters())
    assert all(t.is_meta for kind in ("gpt", "resnet") for t in batch_of(kind, rank=0, step=0))
