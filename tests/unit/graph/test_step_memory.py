"""Needs of memory by part, whatever is shared out, and the largest batch; the key of step files."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import msgspec
import pytest

import hocket
from hocket.errors import FormatError, HocketError
from hocket.graph import MemoryMoment, StepMemory, load_step, save_step
from hocket.graph.step_memory import CONTEXT_BYTES, FRAGMENTS, SHARDINGS
from tests.unit.graph.test_step_files import VALID, write

FORWARD = MemoryMoment(phase="forward", gradients_bytes=0.0, fixed_bytes=1e9, bytes_per_example=3e9)
BACKWARD = MemoryMoment(phase="backward", gradients_bytes=8e9, fixed_bytes=2e9, bytes_per_example=1e9)
UPDATE = MemoryMoment(phase="update", gradients_bytes=10e9, fixed_bytes=10e9, bytes_per_example=0.0)
MEMORY = StepMemory(
    batch_size=2,
    parameters_bytes=10e9,
    buffers_bytes=0.5e9,
    gradients_bytes=10e9,
    optimizer_bytes=20e9,
    block_bytes=1e9,
    root_bytes=2e9,
    masters_bytes=40e9,
    moments=(FORWARD, BACKWARD, UPDATE),
)


def test_the_fullest_moment_depends_on_the_batch():
    assert MEMORY.needed(1).phase == "update"
    assert MEMORY.needed(1).update_bytes == 10e9
    assert MEMORY.needed(1).activations_bytes == 0
    full = MEMORY.needed(20)
    assert full.phase == "forward"
    assert full.activations_bytes == 61e9
    assert full.gradients_bytes == full.update_bytes == full.exchange_bytes == 0
    assert full.total_bytes == pytest.approx(30.5e9 + 61e9 * (1 + FRAGMENTS) + CONTEXT_BYTES)
    assert MEMORY.needed() == MEMORY.needed(2)


def test_parts_sum_to_the_total_and_are_said_in_gb():
    need = MEMORY.needed(1)
    assert sum(size for _, size in need.parts()) == need.total_bytes
    assert str(need) == "parameters 10.5, gradients 10, optimizer 20, update 10, overhead 2 assumed"


def test_what_is_shared_out_is_divided_and_what_is_gathered_is_there():
    kept = [MEMORY.needed(1, workers=10, sharding=each) for each in SHARDINGS]
    assert [need.parameters_bytes for need in kept] == [10.5e9] * 3 + [1.5e9]
    assert [need.optimizer_bytes for need in kept] == [20e9, 2e9, 2e9, 2e9]
    # Buckets are a copy of all gradients; shared out, two blocks and the rest are whole in the backward pass.
    assert [need.exchange_bytes for need in kept] == [10e9, 10e9, 4e9, 8e9]
    assert [need.gradients_bytes for need in kept[2:]] == [0.8e9, 0.8e9]
    totals = [need.total_bytes for need in kept]
    assert totals == sorted(totals, reverse=True)


def test_buckets_that_are_the_gradients_are_there_all_the_time_once():
    views = MEMORY.needed(20, workers=2, bucket_views=True)
    assert views.gradients_bytes + views.exchange_bytes == 10e9
    assert MEMORY.needed(20, workers=2).exchange_bytes == 10e9
    update = MEMORY.needed(1, workers=2, bucket_views=True)
    assert (update.gradients_bytes, update.exchange_bytes) == (10e9, 0)


@pytest.mark.parametrize(("workers", "sharding"), [*itertools.product((1, 2, 16), SHARDINGS)])
@pytest.mark.parametrize("capacity_gb", [5, 40, 80, 200])
def test_the_largest_batch_fits_and_one_more_does_not(workers, sharding, capacity_gb):
    shared = {"workers": workers, "sharding": sharding}
    largest = MEMORY.largest_batch(capacity_gb * 1e9, **shared)
    totals = [MEMORY.needed(batch, **shared).total_bytes for batch in range(1, 100)]
    assert largest == sum(total <= capacity_gb * 1e9 for total in totals)


def test_masters_are_four_bytes_more_and_state_of_four():
    masters = MEMORY.with_masters()
    assert masters.optimizer_bytes == 60e9
    assert masters.needed(1).update_bytes == 20e9
    assert masters.with_masters() == masters
    assert masters.needed(20).activations_bytes == MEMORY.needed(20).activations_bytes


def test_seven_billion_parameters_with_adam_in_mixed_precision_take_sixteen_bytes_each():
    """Rajbhandari et al., "ZeRO" (2020), section 3.1: 2 + 2 + 12 bytes a parameter."""
    number = 7e9
    update = MemoryMoment(phase="update", gradients_bytes=2 * number, fixed_bytes=0.0, bytes_per_example=0.0)
    memory = StepMemory(
        batch_size=1,
        parameters_bytes=2 * number,
        gradients_bytes=2 * number,
        optimizer_bytes=4 * number,
        masters_bytes=8 * number,
        moments=(update,),
    ).with_masters()
    need = memory.needed()
    assert need.parameters_bytes + need.gradients_bytes + need.optimizer_bytes == 112e9
    assert memory.largest_batch(80e9) == 0
    assert memory.needed(workers=8, sharding="parameters").total_bytes < 80e9


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"workers": 0}, "workers=0"),
        ({"sharding": "everything"}, "sharding .everything. is unknown"),
    ],
)
def test_senseless_numbers_are_refused(asked, says):
    with pytest.raises(HocketError, match=says):
        MEMORY.needed(**asked)


def test_a_step_that_does_not_grow_evenly_tells_its_own_batch_only():
    memory = StepMemory(**{**vars(MEMORY), "scales": False})
    assert memory.needed().total_bytes == MEMORY.needed(2).total_bytes
    with pytest.raises(HocketError, match="--batch-size 3"):
        memory.needed(3)
    with pytest.raises(HocketError, match="do not grow evenly"):
        memory.largest_batch(80e9)


def test_a_step_file_keeps_the_memory(tmp_path: Path) -> None:
    document = {**VALID, "memory": json.loads(msgspec.json.encode(MEMORY))}
    graph = load_step(write(tmp_path, document))
    assert graph.memory == MEMORY
    save_step(graph, tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text())["memory"] == document["memory"]
    assert load_step(tmp_path / "again.json").memory == MEMORY
    assert "memory" in repr(graph)


def test_an_old_step_file_has_none(tmp_path: Path) -> None:
    assert load_step(write(tmp_path, VALID)).memory is None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"parameters_bytes": -1.0}, r"memory\.parameters_bytes"),
        ({"optimizer_bytes": 1e300}, r"memory\.optimizer_bytes"),
        ({"batch_size": 3}, r"memory\.batch_size.* 3 is not the step's, 2"),
        ({"moments": []}, r"memory\.moments.* empty"),
        (
            {"moments": [{**vars(FORWARD), "fixed_bytes": -5.0}]},
            r"memory\.moments\[0\]\.fixed_bytes",
        ),
        ({"moments": [{**vars(FORWARD), "phase": "sideways"}]}, "memory"),
    ],
)
def test_senseless_memory_is_refused(tmp_path: Path, change, says) -> None:
    memory = {**msgspec.to_builtins(MEMORY), **change}
    with pytest.raises(FormatError, match=says):
        load_step(write(tmp_path, {**VALID, "memory": memory}))


def test_it_prints_as_a_few_lines():
    assert repr(MEMORY).splitlines()[0] == "StepMemory of 2 examples: 52.5 GB"
    assert hocket.StepMemory is StepMemory
