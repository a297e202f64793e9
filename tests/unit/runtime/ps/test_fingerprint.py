"""What is written to a tensor is seen, in whatever way, shape and type."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hocket.runtime.ps.worker.fingerprint import Fingerprint
from tests.strategies import examples

MOST_TURNS = 8

TENSORS: dict[str, Callable[[], torch.Tensor]] = {
    "large": lambda: torch.randn(40, 170),
    "small": lambda: torch.randn(3),
    "a number": lambda: torch.tensor(1.5),
    "channels last": lambda: torch.randn(8, 5, 9, 9).to(memory_format=torch.channels_last),
    "a part": lambda: torch.randn(60, 60)[::2, 10:50],
    "expanded": lambda: torch.randn(1, 7).expand(3000, 7),
    "bfloat16": lambda: torch.randn(40, 170, dtype=torch.bfloat16),
    "float64": lambda: torch.randn(9, 170, dtype=torch.float64),
}


@pytest.mark.parametrize("make", TENSORS.values(), ids=TENSORS)
def test_what_nobody_writes_to_is_as_it_was(make: Callable[[], torch.Tensor]) -> None:
    tensor = make()
    for turn in range(MOST_TURNS):
        assert Fingerprint(tensor, turn).matches(tensor)
    nothing = torch.empty(0, 3)
    assert Fingerprint(nothing, 5).matches(nothing)


@given(name=st.sampled_from(sorted(TENSORS.keys() - {"expanded"})), place=st.integers(0, 10**6))
@examples(60)
def test_what_is_written_by_way_of_data_is_seen_in_its_turn(name: str, place: int) -> None:
    torch.manual_seed(place)
    tensor = TENSORS[name]()
    prints = [Fingerprint(tensor, turn) for turn in range(MOST_TURNS)]
    where = np.unravel_index(place % tensor.numel(), tensor.shape)
    tensor.data[where] += 1.0
    assert not all(each.matches(tensor) for each in prints)
    tensor.data[...] = 7.0
    assert not any(each.matches(tensor) for each in prints)


def test_what_torch_counts_is_seen_wherever_it_was() -> None:
    tensor = torch.randn(100, 100)
    seen = Fingerprint(tensor, 0)
    tensor.detach()[99, 99] += 1.0
    assert not seen.matches(tensor)


def test_a_tensor_that_has_other_memory_is_another() -> None:
    tensor = torch.randn(5)
    seen = Fingerprint(tensor, 0)
    tensor.data = tensor.data.clone()
    assert not seen.matches(tensor)
    tensor.untyped_storage().resize_(0)
    assert not seen.matches(tensor)


def test_tensors_of_inference_mode_count_no_writes() -> None:
    with torch.inference_mode():
        tensor = torch.randn(5)
        seen = Fingerprint(tensor, 0)
        assert seen.matches(tensor)
        tensor += 1.0
        assert not seen.matches(tensor)
