"""Batches of a card, for a fixed batch a card and for a fixed batch over all of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hocket.errors import HocketError
from hocket.graph import MemoryMoment, StepGraph, StepMemory, load_step
from hocket.graph.accumulated_step import accumulated
from hocket.graph.step import Phase
from hocket.offers import Offer, TrainingJob, rent
from hocket.offers.batches import batches_of
from hocket.offers.node_network import network_of
from hocket.offers.rental_answer import assumptions, left_out
from hocket.offers.steps_by_card import GivenSteps
from hocket.predictor import predict
from tests.unit.cli.test_commands import GOLDEN

STEP = load_step(GOLDEN / "branches.step.json")


def steps_of(*sizes: int, fixed: bool = False) -> GivenSteps:
    return GivenSteps([replace(STEP, batch_size=size) for size in sizes], fixed_batch=fixed)


def test_a_fixed_batch_a_card_is_the_steps_at_any_number_of_cards() -> None:
    job = TrainingJob(examples=1e6)
    assert {batches_of(job, steps_of(64), "toy", cards, 64) for cards in (1, 7, 512)} == {(64, 1)}
    assert batches_of(TrainingJob(examples=1e6, accumulate=4), steps_of(64), "toy", 3, 64) == (64, 4)


@pytest.mark.parametrize(
    ("sizes", "cards", "expected"),
    [
        ((64,), 1, (64, 16)),
        ((64,), 8, (64, 2)),
        ((64,), 16, (64, 1)),
        ((64,), 3, None),  # 1024 does not divide by 3
        ((64,), 32, None),  # a batch of 32, of which there is no step
        ((32, 64), 32, (32, 1)),
        ((32, 64), 16, (64, 1)),
        ((64,), 2048, None),  # not an example a card
    ],
)
def test_a_global_batch_divides_over_cards_and_is_summed_up_where_a_step_is_smaller(
    sizes: tuple[int, ...], cards: int, expected: tuple[int, int] | None
) -> None:
    job = TrainingJob(examples=1e6, global_batch=1024)
    assert batches_of(job, steps_of(*sizes), "toy", cards, max(sizes)) == expected


def test_accumulation_that_is_asked_for_is_taken_or_none_is() -> None:
    job = TrainingJob(examples=1e6, global_batch=1024, accumulate=4)
    assert batches_of(job, steps_of(32, 64), "toy", 8, 64) == (32, 4)
    assert batches_of(job, steps_of(32, 64), "toy", 2, 64) is None


def test_an_accumulated_step_computes_its_batches_and_exchanges_once() -> None:
    step = accumulated(STEP, 3)
    update_s = STEP.durations_s[STEP.phases == Phase.UPDATE].sum()
    once_s = STEP.durations_s.sum() - update_s
    assert step.batch_size == 3 * STEP.batch_size
    assert step.durations_s.sum() == pytest.approx(3 * once_s + update_s)
    assert np.array_equal(step.produces.indices, STEP.produces.indices)
    assert accumulated(STEP, 1) is STEP
    forward = replace(STEP, phases=np.zeros_like(STEP.phases))
    with pytest.raises(HocketError, match="its step has no backward pass"):
        accumulated(forward, 2)


def test_steps_are_told_apart_by_card_and_batch() -> None:
    with pytest.raises(HocketError, match="two steps are for toy with batches of 4; give one of them"):
        GivenSteps([STEP, STEP])
    with pytest.raises(HocketError, match="steps are of toy and other; give"):
        GivenSteps([STEP, replace(STEP, model="other", device="l4")])
    with pytest.raises(HocketError, match="steps for toy have batches of 32 and 64: a fixed batch a card is"):
        steps_of(32, 64, fixed=True)
    with pytest.raises(HocketError, match="no step to predict from"):
        GivenSteps([])


def test_more_cards_take_fewer_updates_or_smaller_batches() -> None:
    offer = Offer(name="a", device="toy", gpus=1, price_per_hour=2, most_nodes=4, bandwidth_bps=1e9)
    weak = rent(STEP, [offer], TrainingJob(examples=96))
    assert [(row.global_batch, row.steps) for row in weak] == [(4, 24), (8, 12), (12, 8), (16, 6)]
    strong = rent(STEP, [offer], TrainingJob(examples=96, global_batch=8))
    assert [(row.nodes, row.accumulate, row.steps) for row in strong] == [(1, 2, 12), (2, 1, 12)]
    assert strong.outcomes[0].skipped == (3, 4)
    alone = float(STEP.durations_s.sum())
    update = float(STEP.durations_s[STEP.phases == Phase.UPDATE].sum())
    assert strong[0].step_s == pytest.approx(2 * alone - update)


def held(memory_bytes: float, *, scales: bool = True) -> StepGraph:
    """A step of four examples on an L4 (21.96 GiB) that needs so much, a quarter of it for each example."""
    moment = MemoryMoment(
        phase="backward", gradients_bytes=0.0, fixed_bytes=0.0, bytes_per_example=memory_bytes / 4
    )
    memory = StepMemory(
        batch_size=4,
        parameters_bytes=0.0,
        gradients_bytes=0.0,
        optimizer_bytes=0.0,
        moments=(moment,),
        scales=scales,
    )
    return replace(STEP, device="l4", memory=memory)


def test_a_step_that_does_not_fit_its_card_is_left_out_with_what_fits() -> None:
    offer = Offer(name="a", device="l4", gpus=1, price_per_hour=2, most_nodes=2, bandwidth_bps=1e9)
    assert len(rent(held(20e9), [offer], TrainingJob(examples=96))) == 2
    for graph, said in (
        (held(40e9), "a batch of 4 needs 43 GB of its 23.6 GB; 2 fit"),
        (held(40e9, scales=False), "a batch of 4 needs 43 GB of its 23.6 GB; give a smaller batch"),
        (
            held(400e9),
            r"a batch of 4 needs 421 GB of its 23.6 GB, and not even one example fits, whole or sharded over"
            r" 2 cards \(FSDP2\)",
        ),
    ):
        with pytest.raises(HocketError, match=rf"no offer is left: a \(l4\): {said}$"):
            rent(graph, [offer], TrainingJob(examples=96))


def test_a_global_batch_goes_in_batches_that_fit() -> None:
    offer = Offer(name="a", device="l4", gpus=1, price_per_hour=2, most_nodes=2, bandwidth_bps=1e9)
    smaller = replace(held(20e9), batch_size=2)
    rental = rent([held(40e9), smaller], [offer], TrainingJob(examples=96, global_batch=8))
    assert [(row.nodes, row.batch_size, row.accumulate) for row in rental] == [(1, 2, 4), (2, 2, 2)]


def test_cards_that_do_not_hold_the_model_whole_share_it_out() -> None:
    memory = StepMemory(
        batch_size=4,
        parameters_bytes=20e9,
        gradients_bytes=0.0,
        optimizer_bytes=40e9,
        moments=(MemoryMoment(phase="update", gradients_bytes=0.0, fixed_bytes=0.0, bytes_per_example=0.0),),
    )
    graph = replace(STEP, device="l4", memory=memory)
    offer = Offer(name="a", device="l4", gpus=1, price_per_hour=2, most_nodes=6, bandwidth_bps=1e9)
    rental = rent(graph, [offer], TrainingJob(examples=96))
    # 60 GB of shards and 1 GB besides: 21, 16, 13 and 11 GB of 23.6 GB; two cards would need 31 GB.
    assert [(row.nodes, row.architecture) for row in rental] == [(n, "fsdp") for n in (3, 4, 5, 6)]
    assert rental[0].machines == "3 l4 in 3 nodes, fully sharded"
    expected = predict(graph, network_of(offer), workers=3, architecture="fsdp", steps=4, skip=2)[0]
    assert rental[0].step_s == pytest.approx(expected.step_s)
    (said,) = left_out(rental)
    assert said == (
        "Left out: 1 to 2 nodes of a: a batch of 4 needs 61 GB of its 23.6 GB, and not even one example fits,"
        " whole or sharded over 2 cards (FSDP2)"
    )
    clause = "where l4 do not hold the model whole, fully sharded (FSDP2) over all cards"
    assert any(each.startswith(clause) for each in assumptions(rental))
    with pytest.raises(HocketError, match="not even one example fits; sharded over all its cards"):
        rent(graph, [offer], TrainingJob(examples=96, accumulate=2))
