"""Plans for AllReduce that slice parameters: what is refused, what files say, how slices travel."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hocket.errors import FormatError
from hocket.graph import Plan, Reduction, check_plan, load_plan, save_plan
from hocket.network import MeasuredReduction, Network
from hocket.sim import simulate
from tests.strategies import operation, parameter, step

GRAPH = step(
    [parameter("a", 300), parameter("b", 100)],
    [
        operation("read b", 1.0, reads=["b"]),
        operation("read a", 1.0, inputs=["read b"], reads=["a"]),
        operation("make a", 2.0, inputs=["read a"], produces=["a"], phase="backward"),
        operation("make b", 2.0, inputs=["make a"], produces=["b"], phase="backward"),
        operation("update a", 0.5, inputs=["make a"], reads=["a"], phase="update"),
    ],
)


def _plan(*reductions: Reduction, order: tuple[str, ...] | None = None) -> Plan:
    return Plan(
        policy="drawn", model="toy", architecture="allreduce", reductions=reductions, compute_order=order
    )


def _slice(k: int, count: int, name: str = "a", **given: object) -> Reduction:
    return msgspec.structs.replace(
        Reduction(parameters=(name,), window="forward", slice=(k, k + 1, count)),
        **given,  # type: ignore[arg-type]
    )


WHOLE_B = Reduction(parameters=("b",), window="forward")
GOOD = _plan(_slice(0, 3), _slice(1, 3), WHOLE_B, _slice(2, 3))
TOGETHER = _plan(_slice(0, 3, slice=(0, 2, 3)), WHOLE_B, _slice(2, 3))


def test_a_file_keeps_slices_and_says_nothing_of_whole_parameters(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    save_plan(GOOD, path)
    assert load_plan(path) == GOOD
    assert path.read_text().count('"slice"') == 3


@pytest.mark.parametrize(
    ("reductions", "told"),
    [
        ((_slice(0, 3), WHOLE_B, _slice(1, 3)), "slice 2 of 3 of 'a' is missing"),
        ((_slice(1, 3), WHOLE_B, _slice(0, 3), _slice(2, 3)), "slices go from [0, k, n] to [m, n, n]"),
        ((_slice(0, 2), WHOLE_B, _slice(1, 3), _slice(2, 3)), "slices go from [0, k, n] to [m, n, n]"),
        ((_slice(0, 3, slice=(0, 4, 3)), WHOLE_B), "slices go from"),
        ((_slice(0, 3, slice=(0, 0, 3)), WHOLE_B), "slices go from"),
        ((_slice(0, 3, slice=(0, 2, 3)), WHOLE_B, _slice(1, 3)), "slices go from"),
        ((_slice(0, 1), WHOLE_B, _slice(0, 1)), "'a' is a duplicate"),
        ((_slice(0, 500), WHOLE_B), "500 slices of 'a'; it takes 1 to 300"),
        ((_slice(0, 0), WHOLE_B), "0 slices of 'a'"),
        ((_slice(-1, 1), WHOLE_B), "'a' is missing"),
        ((_slice(0, 1, chunks=2), WHOLE_B), "2 chunks of a slice"),
        ((_slice(0, 1, parameters=("a", "b")),), "1 slices of a batch"),
        ((_slice(0, 1), Reduction(parameters=("a", "b"))), "'a' is a duplicate"),
    ],
)
def test_what_does_not_make_up_whole_parameters_is_refused(
    reductions: tuple[Reduction, ...], told: str
) -> None:
    with pytest.raises(FormatError) as refusal:
        check_plan(_plan(*reductions), GRAPH)
    assert told in str(refusal.value)


def test_an_urgent_gradient_goes_between_slices() -> None:
    """3 s of "a" and 1 s of "b", which is ready last and read first: nothing hides it, 6 s and 1 s."""
    network = Network(num_workers=2, reduction=MeasuredReduction(workers=2, a_s=0.0, b_s_per_byte=0.01))
    between = simulate(GRAPH, GOOD, network, iterations=5).row.iteration_s
    behind = _plan(Reduction(parameters=("a",), window="forward"), WHOLE_B)
    assert between == pytest.approx(7 + 0.5 / 3)  # the last slice is updated when computing goes on
    assert simulate(GRAPH, TOGETHER, network, iterations=5).row.iteration_s == pytest.approx(between)
    assert simulate(GRAPH, behind, network, iterations=5).row.iteration_s == pytest.approx(8.0)


def test_an_order_of_operations_holds_for_sliced_updates() -> None:
    order = ("read b", "read a", "make a", "make b", "update a")
    network = Network(num_workers=2, reduction=MeasuredReduction(workers=2, a_s=0.0, b_s_per_byte=0.01))
    ordered = msgspec.structs.replace(GOOD, compute_order=order)
    assert simulate(GRAPH, ordered, network).row.iteration_s == pytest.approx(7 + 0.5 / 3)
