"""DistributedDataParallel's keywords: taken where they change nothing, else refused in one line."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

import hocket
from hocket.errors import HocketError
from hocket.tuner.ddp_keywords import NAMES, OWN, buffers_synced


def test_every_keyword_of_torch_and_of_ours_is_known() -> None:
    theirs = set(inspect.signature(DistributedDataParallel.__init__).parameters) - {"self", "module"}
    assert theirs <= {*NAMES, *OWN}
    ours = inspect.signature(hocket.distribute).parameters
    assert {*OWN} == {name for name, p in ours.items() if p.kind is inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("name", NAMES)
def test_none_is_the_default(name: str) -> None:
    assert buffers_synced({name: None}, None) == (True, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("find_unused_parameters", True),
        ("static_graph", True),
        ("gradient_as_bucket_view", True),
        ("bucket_cap_mb", 100),
        ("dim", 1),
        ("device_ids", []),
    ],
)
def test_what_changes_nothing_is_taken(name: str, value: Any) -> None:
    assert buffers_synced({name: value}, True) == (True, True)


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("device_ids", [0], r"^device_ids=\[0\] is .* leave it out"),
        ("output_device", 0, r"^output_device=0 is .* leave it out"),
        ("mixed_precision", object(), r"^mixed_precision=.* use torch.autocast"),
        ("device_mesh", object(), r"^device_mesh=.* process_group=device_mesh.get_group\(\)"),
        ("delay_all_reduce_named_params", [("w", 1)], r"^delay_all_reduce_named_params=.* leave it out"),
        ("find_unsued_parameters", True, r"did you mean 'find_unused_parameters'\? choose one of: plan, "),
    ],
)
def test_what_means_something_is_refused(name: str, value: Any, line: str) -> None:
    model = torch.nn.Linear(2, 2)
    with pytest.raises(HocketError, match=line):
        hocket.distribute(model, torch.optim.SGD(model.parameters()), **{name: value})


@pytest.mark.parametrize("broadcast_buffers", [None, True, False])
@pytest.mark.parametrize("forward_sync_buffers", [None, True, False])
def test_buffers_go_by_the_newer_name(
    broadcast_buffers: bool | None, forward_sync_buffers: bool | None
) -> None:
    given = {"forward_sync_buffers": forward_sync_buffers}
    older = broadcast_buffers is not False
    expected = (older, older) if forward_sync_buffers is None else (True, forward_sync_buffers)
    assert buffers_synced(given, broadcast_buffers) == expected
