"""The line on memory: whether a step fits its device, first where it does not."""

from dataclasses import replace
from pathlib import Path

import pytest

from hocket.datasheets import device_named
from hocket.graph import MemoryMoment, StepMemory, load_step
from hocket.report.memory_verdict import memory_answers, memory_verdict, unknown_memory

GOLDEN = Path(__file__).parents[2] / "golden"
ADAM_7B = StepMemory(
    batch_size=1,
    parameters_bytes=13.5e9,
    gradients_bytes=13.5e9,
    optimizer_bytes=27e9,
    masters_bytes=54e9,
    block_bytes=0.4e9,
    root_bytes=0.5e9,
    moments=(
        MemoryMoment(phase="backward", gradients_bytes=0.0, fixed_bytes=0.0, bytes_per_example=3e9),
        MemoryMoment(phase="update", gradients_bytes=13.5e9, fixed_bytes=13.5e9, bytes_per_example=0.0),
    ),
)


def step(memory=ADAM_7B, device="h100"):
    return replace(load_step(GOLDEN / "branches.step.json"), memory=memory, device=device)


def test_a_step_that_does_not_fit_says_so_first():
    verdict = memory_verdict(step(ADAM_7B.with_masters()))
    assert verdict.text == (
        "a batch of 1 does not fit: it needs 138 GB of the h100's 84.9 GB (in GB, when it needs most:"
        " parameters 13.5, gradients 13.5, optimizer 81, update 27, overhead 3.02 assumed); largest batch:"
        " none; sharded over 8 (FSDP): 18.7 GB"
    )
    assert not verdict.fits
    assert memory_answers(verdict, ["Fast."])[1:] == ["Fast."]
    assert verdict.document()["needed_bytes"] == verdict.need.total_bytes
    assert verdict.document()["largest_batch"] == 0


def test_a_step_that_fits_says_so_behind_the_answer_and_what_masters_would_need():
    verdict = memory_verdict(step())
    assert verdict.fits
    assert verdict.text.startswith("unsharded and without float32 masters, a batch of 1 fits: it needs 69.")
    assert "largest batch: " in verdict.text
    assert verdict.text.endswith(
        ". With float32 masters and state, which this optimizer does not keep, it needs 138 GB and does not"
        " fit"
    )
    assert memory_answers(verdict, ["Fast.", "Caution."])[::2] == ["Fast.", "Caution."]


def test_several_workers_have_buckets_and_sharding_is_told_for_as_many():
    nearly = step(replace(ADAM_7B, optimizer_bytes=29e9))
    alone, many = memory_verdict(nearly), memory_verdict(nearly, 16)
    assert alone.fits
    assert not many.fits
    assert "with DDP's buckets does not fit" in many.text
    assert "sharded over 16" in many.text


def test_a_step_that_just_fits_has_its_room_told():
    room = memory_verdict(step()).capacity_bytes - memory_verdict(step()).need.total_bytes
    tight = memory_verdict(step(replace(ADAM_7B, optimizer_bytes=27e9 + room / 1.05 - 1e9)))
    assert tight.fits
    spare = 1 - tight.need.total_bytes / tight.capacity_bytes
    assert 0 < spare < 0.05
    assert f"a batch of 1 fits, with {spare:.1%} to spare: it needs " in tight.text
    assert "to spare" not in memory_verdict(step()).text


def test_a_datasheet_of_ones_own_counts():
    sheet = replace(device_named("h100"), name="mine", memory_bytes=200e9, reported_bytes=0.0)
    assert "of the mine's 200 GB" in memory_verdict(step(device="mine"), sheet=sheet).text
    assert memory_verdict(step(device="mine")) is None


def test_a_batch_that_tells_nothing_of_others_is_said():
    uneven = replace(ADAM_7B, scales=False)
    verdict = memory_verdict(step(uneven))
    assert "the largest batch is not known" in verdict.text
    assert verdict.largest_batch is None


@pytest.mark.parametrize(
    ("device", "memory", "said"), [("h100", None, 1), ("cpu", None, 0), ("h100", ADAM_7B, 0)]
)
def test_what_is_not_known_is_said_with_the_way_to_know(device, memory, said):
    remarks = unknown_memory(step(memory, device))
    assert len(remarks) == said
    assert all("hocket profile --device h100" in remark for remark in remarks)
    assert memory_answers(None, ["Fast."]) == ["Fast."]
