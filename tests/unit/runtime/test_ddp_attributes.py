"""What scripts find on a model that was DistributedDataParallel's: there, refused in one line, or its own."""

from __future__ import annotations

import copy
import io
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (
    allreduce_hook,
    bf16_compress_hook,
    bf16_compress_wrapper,
    fp16_compress_hook,
    fp16_compress_wrapper,
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.join import Join

import hocket
from hocket.errors import HocketError

pytestmark = pytest.mark.usefixtures("alone")


def distributed(model: torch.nn.Module) -> Any:
    hocket.distribute(model, torch.optim.SGD(model.parameters(), lr=0.1), plan="ddp")
    return model


class Named(torch.nn.Module):
    """Has three of the names itself: a submodule, a method, a property that cannot be read yet."""

    def __init__(self) -> None:
        super().__init__()
        self.module = torch.nn.Linear(4, 2)

    def join(self) -> str:
        return "mine"

    @property
    def logger(self) -> None:
        raise RuntimeError("not attached to a trainer")

    def forward(self, x: torch.Tensor) -> Any:
        return self.module(x)


def test_the_module_is_the_model_and_no_part_of_it() -> None:
    model = distributed(torch.nn.Sequential(torch.nn.Linear(4, 2)))
    assert model.module is model
    assert list(model.state_dict()) == list(model.module.state_dict()) == ["0.weight", "0.bias"]
    assert [name for name, _ in model.named_modules()] == ["", "0"]
    assert len(repr(model).splitlines()) == 3


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_copies_have_none_of_the_names(how: str) -> None:
    model = distributed(torch.nn.Linear(4, 2))
    model.require_backward_grad_sync = False
    if how == "deepcopy":
        copied = copy.deepcopy(model)
    else:
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        copied = torch.load(file, weights_only=False)
    assert vars(copied).keys() == vars(torch.nn.Linear(4, 2)).keys()
    assert model.module is model
    assert model.require_backward_grad_sync is False


def test_detached_models_have_none_of_the_names() -> None:
    model = distributed(torch.nn.Linear(4, 2))
    model.reducer = "the user's own by now"
    model.hocket.detach()
    assert vars(model).keys() == {*vars(torch.nn.Linear(4, 2)), "reducer"}


def test_what_a_model_has_by_these_names_stays_its_own() -> None:
    model = distributed(Named())
    assert isinstance(model.module, torch.nn.Linear)
    assert model.join() == "mine"
    with pytest.raises(RuntimeError, match="not attached"):
        _ = model.logger
    copied = copy.deepcopy(model)
    assert isinstance(copied.module, torch.nn.Linear)
    model.hocket.detach()
    assert isinstance(model.module, torch.nn.Linear)


def test_compiled_models_have_the_names_where_they_are_set() -> None:
    model = distributed(torch.compile(torch.nn.Linear(4, 2), backend="eager"))
    assert model.module is model
    model.require_backward_grad_sync = False
    assert not model.hocket._training._travels
    model.hocket.detach()
    assert not hasattr(model, "require_backward_grad_sync")


def test_the_flag_is_what_no_sync_sets() -> None:
    model = distributed(torch.nn.Linear(4, 2))
    assert model.require_backward_grad_sync is True
    for no_sync in (model.no_sync, model.hocket.no_sync):
        with no_sync():
            assert model.require_backward_grad_sync is False
        assert model.require_backward_grad_sync is True


def test_a_block_of_one_rank_trains() -> None:
    model = distributed(torch.nn.Linear(4, 2))
    for block in (model.join(), model.hocket.join(enable=False), Join([model])):
        before = model.weight.detach().clone()
        with block:
            model(torch.ones(3, 4)).sum().backward()
            model.hocket.flush()
        assert model.weight.grad is not None
        assert torch.equal(model.weight, before)
    model.hocket.detach()
    assert "_join_config" not in vars(model)


def test_what_does_nothing_here_is_taken() -> None:
    model = distributed(torch.nn.BatchNorm1d(4))
    model.register_comm_hook(None, allreduce_hook)
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    model._set_static_graph()
    assert model.will_sync_module_buffers()
    assert model.device_ids is None
    assert model.process_group is dist.group.WORLD


@pytest.mark.parametrize(
    ("hook", "dtype"),
    [
        (fp16_compress_hook, torch.float16),
        (bf16_compress_hook, torch.bfloat16),
        (fp16_compress_wrapper(allreduce_hook), torch.float16),
        (bf16_compress_wrapper(allreduce_hook), torch.bfloat16),
    ],
)
def test_hooks_that_send_half_the_bytes_do_so_here(hook: Any, dtype: torch.dtype) -> None:
    model = distributed(torch.nn.Linear(4, 2))
    model.register_comm_hook(model.process_group, hook)
    model.register_comm_hook(None, hook)
    model(torch.full((3, 4), 1 / 3)).sum().backward()
    expected = torch.ones(3) @ torch.full((3, 4), 1 / 3)
    assert torch.equal(model.weight.grad[0], expected.to(dtype).float())
    assert f"travel as {dtype}" in model.hocket.explain()


def test_the_hook_in_cpp_does_so_too_before_the_first_step() -> None:
    model = distributed(torch.nn.Linear(4, 2))
    model._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
    assert "travel as torch.float16" in model.hocket.explain()
    model = distributed(torch.nn.Linear(4, 2))
    model(torch.ones(3, 4))
    with pytest.raises(HocketError, match=r"before the first forward pass"):
        model.register_comm_hook(None, fp16_compress_hook)


def test_what_cannot_be_had_is_refused_in_one_line() -> None:
    model = distributed(torch.nn.Linear(4, 2))
    with pytest.raises(HocketError, match=r"^communication hook 'powerSGD_hook' is written .* leave it out"):
        model.register_comm_hook(PowerSGDState(None), powerSGD_hook)
    around = fp16_compress_wrapper(powerSGD_hook)
    with pytest.raises(HocketError, match=r"^communication hook .*use gradient_dtype=torch.bfloat16"):
        model.register_comm_hook(None, around)
    with pytest.raises(HocketError, match=r"^the state of communication hook .* of type int, .*; give"):
        model.register_comm_hook(1, fp16_compress_hook)
    model.register_comm_hook(None, fp16_compress_hook)
    with pytest.raises(HocketError, match=r"^gradients travel as torch.float16 already; ask for one"):
        model.register_comm_hook(None, bf16_compress_hook)
    with pytest.raises(HocketError, match=r"^SGD is to step within the backward pass; give the optimizer"):
        model._register_fused_optim(torch.optim.SGD, lr=0.1)
    with pytest.raises(HocketError, match=r"'reducer' does not exist .*asked for '_rebuild_buckets'"):
        model.reducer._rebuild_buckets()
    with pytest.raises(HocketError, match=r"model.hocket.explain"):
        model._get_ddp_logging_data()
