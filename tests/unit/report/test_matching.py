"""What a simulation and a training run call by other names, by hand."""

from __future__ import annotations

import pytest

from hocket.graph import Lane, Span, Timeline
from hocket.graph.timeline import Kind
from hocket.report.matching import why_unmatched, with_common_names


def timeline(*names: tuple[Kind, str]) -> Timeline:
    """A second for each, one after another, on one lane."""
    spans = tuple(Span(0, name, kind, float(i), i + 1.0) for i, (kind, name) in enumerate(names))
    return Timeline(title="", lanes=(Lane(process="worker 0", name="compute"),), spans=spans)


def names_of(of: Timeline) -> list[str]:
    return [span.name for span in of.spans]


SIMULATED = timeline(
    ("forward", "forward/embedding/add"),
    ("forward", "forward/a.0/conv"),
    ("forward", "forward/a.1/relu"),
    ("forward", "forward/head/mm"),
    ("forward", "forward/loss/nll"),
    ("backward", "backward/loss/nll_backward"),
    ("backward", "backward/head/mm"),
    ("backward", "backward/a.1/relu_backward"),
    ("backward", "backward/a.0/conv_backward"),
    ("backward", "backward/embedding/add_backward"),
    ("update", "update/a.0.weight/add_"),
    ("update", "update/a.0.bias/add_"),
    ("update", "update/head.weight/add_[0]"),
    ("update", "update/head.weight/add_[1]"),
)
RECORDED = timeline(
    ("forward", "forward start"),
    ("forward", "forward a.0"),
    ("forward", "forward head"),
    ("backward", "backward head.weight"),
    ("backward", "backward a.0.bias"),
    ("backward", "backward a.0.weight"),
    ("backward", "backward between steps"),
    ("update", "update a.0.weight and 1 more"),
    ("update", "update head.weight"),
    ("wait", "wait head.weight"),
)


def test_operations_have_the_names_of_the_pieces_that_they_are_part_of() -> None:
    simulated, recorded = with_common_names(SIMULATED, RECORDED)
    assert names_of(simulated) == [
        *("forward start", "forward a.0", "forward a.0", "forward head", "forward head"),
        # What passes no gradient on is part of the piece before it.
        *("backward head", "backward head", "backward a.0", "backward a.0", "backward a.0"),
        *("update a.0.weight and 1 more", "update a.0.weight and 1 more"),
        *("update head.weight", "update head.weight"),
    ]
    assert names_of(recorded) == [
        *("forward start", "forward a.0", "forward head", "backward head", "backward a.0", "backward a.0"),
        *("backward between steps", "update a.0.weight and 1 more", "update head.weight"),
        "wait head.weight",
    ]


def test_either_may_come_first() -> None:
    recorded, simulated = with_common_names(RECORDED, SIMULATED)
    assert (simulated, recorded) == with_common_names(SIMULATED, RECORDED)


def test_names_that_both_have_stay() -> None:
    assert with_common_names(SIMULATED, SIMULATED) == (SIMULATED, SIMULATED)
    assert with_common_names(RECORDED, RECORDED) == (RECORDED, RECORDED)


def test_a_pass_that_a_periods_ends_cut_is_one() -> None:
    simulated = timeline(
        ("forward", "forward/a.1/relu"),
        ("forward", "forward/head/mm"),
        ("backward", "backward/head/mm"),
        ("backward", "backward/a.0/conv_backward"),
        ("forward", "forward/a.0/conv"),
    )
    assert names_of(with_common_names(simulated, RECORDED)[0])[0] == "forward a.0"


def test_parameters_of_the_whole_model() -> None:
    simulated = timeline(("forward", "forward/mm"), ("backward", "backward/mm"))
    recorded = timeline(("forward", "forward model"), ("backward", "backward weight"))
    ours, theirs = with_common_names(simulated, recorded)
    assert names_of(ours) == names_of(theirs) == ["forward model", "backward model"]


@pytest.mark.parametrize("kind", ["reduce", "push", "pull"])
def test_slices_of_another_number_are_their_parameter(kind: Kind) -> None:
    halves = timeline((kind, "w[0]"), (kind, "w[1]"), (kind, "v[0]"), (kind, "v[1]"))
    thirds = timeline((kind, "w[0]"), (kind, "w[1]"), (kind, "w[2]"), (kind, "v[0]"), (kind, "v[1]"))
    ours, theirs = with_common_names(halves, thirds)
    assert names_of(ours) == ["w", "w", "v[0]", "v[1]"]
    assert names_of(theirs) == ["w", "w", "w", "v[0]", "v[1]"]


def test_several_batches_are_one_name_and_a_batch_of_others_none() -> None:
    single = timeline(*(("update", f"update/{name}/add_") for name in "abcd"))
    batches = timeline(("update", "update a and 1 more"), ("update", "update c and 1 more"))
    ours, theirs = with_common_names(single, batches)
    assert set(names_of(ours)) == set(names_of(theirs)) == {"updates of 2 batches"}
    larger = timeline(("update", "update a and 6 more"))
    assert with_common_names(single, larger) == (single, larger)


def test_a_name_without_a_match_has_a_reason() -> None:
    assert "a simulation leaves the processor idle" in why_unmatched("wait", "wait w")
    assert "the script's own code" in why_unmatched("forward", "forward start")
    assert "apart from those of modules" in why_unmatched("backward", "backward/ones_like")
    assert "nothing of this name" in why_unmatched("reduce", "w")
