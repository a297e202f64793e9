"""Units of parameters as modules: whole ones, batches, nested ones, the root's, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from hocket.errors import HocketError
from hocket.models.gpt import GPT2
from hocket.models.resnet18 import resnet18
from hocket.runtime.sharding.module_tree import blocks_of
from hocket.runtime.sharding.module_units import modules_of_units
from hocket.runtime.sharding.torch_default import default_plan


def gpt() -> nn.Module:
    return GPT2(vocabulary=11, context=4, width=8, num_heads=2, num_layers=4)


def names_of(model: nn.Module, units: list[tuple[str, ...]]) -> list[list[str]]:
    """The names of each unit's modules, in the order of the units."""
    names = {module: name for name, module in model.named_modules()}
    found = {unit.index: [names[m] for m in unit.modules] for unit in modules_of_units(model, units)}
    return [found[k] for k in sorted(found)]


def below(model: nn.Module, *prefixes: str) -> tuple[str, ...]:
    return tuple(name for name, _ in model.named_parameters() if name.startswith(prefixes))


def test_a_unit_a_block_and_the_rest_is_the_roots() -> None:
    model = gpt()
    plan = default_plan(model, 2)
    assert names_of(model, list(plan.units)) == [[""], *([f"blocks.{k}"] for k in range(4))]
    assert plan.reshard_after_forward == (False, True, True, True, True)


def test_the_root_is_sharded_last() -> None:
    model = gpt()
    found = modules_of_units(model, default_plan(model, 2).units)
    assert found[-1].modules == (model,)


def test_blocks_of_one_unit_are_a_group() -> None:
    model = gpt()
    rest = below(model, "token", "position", "norm")
    units = [rest, below(model, "blocks.0.", "blocks.1."), below(model, "blocks.2.", "blocks.3.")]
    assert names_of(model, units) == [[""], ["blocks.0", "blocks.1"], ["blocks.2", "blocks.3"]]


def test_all_in_one_unit_is_the_root() -> None:
    model = gpt()
    assert names_of(model, [below(model, "")]) == [[""]]


def test_embeddings_and_the_head_may_have_units_of_their_own() -> None:
    model = gpt()
    units = [below(model, "token", "position"), below(model, "blocks."), below(model, "norm.")]
    first, blocks, last = names_of(model, units)
    assert first == ["token_embedding", "position_embedding"]
    assert blocks == [f"blocks.{k}" for k in range(4)]
    assert last == ["norm"]


class Scaled(nn.Module):
    """A parameter of its own beside a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.layer = nn.Linear(4, 4)
        self.again = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(self.layer(x) * self.scale)


def test_a_parameter_of_a_module_itself_goes_with_that_module() -> None:
    model = nn.Sequential(Scaled(), Scaled())
    units = [("0.scale",), below(model, "0.layer", "0.again"), below(model, "1.")]
    assert names_of(model, units) == [["0"], ["0.layer", "0.again"], ["1"]]


def test_a_unit_within_another_ones_module_is_sharded_before_it() -> None:
    model = nn.Sequential(Scaled(), Scaled())
    units = [("0.scale",), below(model, "0.layer", "0.again"), below(model, "1.")]
    places = {unit.index: place for place, unit in enumerate(modules_of_units(model, units))}
    assert places[1] < places[0]


def test_parts_of_a_block_may_be_units() -> None:
    model = gpt()
    within = below(model, "blocks.0.attention.")
    units = [
        below(model, "token", "position", "norm"),
        tuple(name for name in below(model, "blocks.0.") if name not in within),
        within,
        below(model, "blocks.1.", "blocks.2.", "blocks.3."),
    ]
    assert names_of(model, units)[1:3] == [
        ["blocks.0.norm_1", "blocks.0.norm_2", "blocks.0.expand", "blocks.0.contract"],
        ["blocks.0.attention"],
    ]


def test_half_a_module_is_refused_with_the_fix() -> None:
    model = gpt()
    half = ("blocks.0.expand.weight",)
    rest = tuple(name for name in below(model, "") if name not in half)
    with pytest.raises(HocketError) as refused:
        modules_of_units(model, [rest, half])
    assert str(refused.value) == (
        "unit 1 of the plan (blocks.0.expand.weight) is no set of whole modules: unit 0 has other parameters"
        " of 'blocks.0.expand'; plan with whole modules, such as policy 'fsdp' has them, or put both into one"
        " unit"
    )


def test_two_units_that_both_need_the_root_are_refused() -> None:
    model = Scaled()
    model.other = nn.Parameter(torch.ones(4))
    with pytest.raises(HocketError, match="is no set of whole modules"):
        modules_of_units(model, [("scale",), ("other",), below(model, "layer", "again")])


@pytest.mark.parametrize(
    ("units", "told"),
    [
        (
            [("0.weight", "0.bias"), ("1.weight", "2.bias")],
            "unit 1 of the plan has '2.bias', and the model, a",
        ),
        ([("0.weight", "0.bias"), ("1.weight", "0.bias")], "units 0 and 1 of the plan both have '0.bias'"),
        ([("0.weight", "0.bias")], "no unit of the plan has '1.weight' and 1 other of the model"),
    ],
)
def test_units_of_another_model_are_refused(units: list[tuple[str, ...]], told: str) -> None:
    with pytest.raises(HocketError) as refused:
        modules_of_units(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), units)
    assert str(refused.value).startswith(told)


def test_parts_that_attention_reads_itself_are_refused() -> None:
    model = nn.Sequential(nn.MultiheadAttention(4, 2), nn.Linear(4, 4))
    out = below(model, "0.out_proj")
    rest = tuple(name for name in below(model, "") if name not in out)
    with pytest.raises(HocketError, match=r"has '0.out_proj', whose parameters '0' reads itself"):
        modules_of_units(model, [rest, out])


def test_frozen_parameters_go_with_their_modules() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].bias.requires_grad_(False)
    assert names_of(model, [("0.weight", "0.bias"), ("1.weight",)]) == [["0"], ["1"]]


def test_blocks_are_the_elements_of_the_outermost_lists() -> None:
    model = resnet18()
    names = {module: name for name, module in model.named_modules()}
    found = [names[block] for block in blocks_of(model)]
    assert found == [f"stage_{k}.{i}" for k in range(1, 5) for i in (0, 1)]
    plain = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    assert blocks_of(plain) == [plain[0], plain[2]]
    assert blocks_of(Scaled()) == []


def test_blocks_that_share_a_parameter_are_one_unit() -> None:
    model = gpt()
    model.blocks[3].expand.weight = model.blocks[0].expand.weight
    plan = default_plan(model, 2)
    assert names_of(model, list(plan.units)) == [
        [""], ["blocks.1"], ["blocks.2"], ["blocks.0", "blocks.3"]
    ]  # fmt: skip
    assert plan.reshard_after_forward == (False, True, True, True)


def test_a_block_that_shares_a_parameter_with_the_rest_is_of_the_rest() -> None:
    model = gpt()
    model.blocks[3].norm_1.weight = model.norm.weight
    plan = default_plan(model, 2)
    assert names_of(model, list(plan.units)) == [[""], ["blocks.0"], ["blocks.1"], ["blocks.2"]]
    assert "blocks.3.expand.weight" in plan.units[0]


def test_a_module_that_blocks_share_is_in_one_unit_with_all_of_them() -> None:
    model = nn.Sequential(Scaled(), Scaled(), Scaled())
    model[1].layer = model[0].layer
    first, second, third = (below(model, f"{k}.") for k in range(3))
    assert second == ("1.scale", "1.again.weight", "1.again.bias")  # what is shared has its first name
    assert list(default_plan(model, 2).units) == [(*first, *second), third]
    with pytest.raises(HocketError, match="has other parameters of '1'; plan with whole modules, such as"):
        modules_of_units(model, [first, second, third])


def test_what_is_sharded_already_has_the_same_blocks() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    kind = type("FSDPSequential", (type("FSDPModule", (), {}), nn.Sequential), {})
    model.__class__ = kind
    assert blocks_of(model) == [model[0], model[2]]
