"""TIC and TAC against Algorithms 1 to 3 written out set by set."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hocket.graph.dependencies import dependencies
from hocket.planner.tac import tac_order
from hocket.planner.tic import tic_ranks
from tests.naive import tictac
from tests.strategies import examples, steps


@given(steps(max_parameters=9, max_operations=16))
@examples(200)
def test_dependencies_are_the_transitive_reads(graph) -> None:  # type: ignore[no-untyped-def]
    found = dependencies(graph)
    rows = found.rows()
    assert [set(rows.row(c).tolist()) for c in found.class_of] == tictac.needs(graph)
    assert len({tuple(rows.row(c).tolist()) for c in range(rows.num_rows)}) == rows.num_rows


@given(steps(max_parameters=9, max_operations=16))
@examples(200)
def test_tic_is_algorithm_2(graph) -> None:  # type: ignore[no-untyped-def]
    assert tic_ranks(graph).tolist() == tictac.tic_ranks(graph)


@given(steps(max_parameters=9, max_operations=16), st.data())
@examples(300)
def test_tac_is_algorithm_3(graph, data) -> None:  # type: ignore[no-untyped-def]
    transfer = np.array(
        data.draw(
            st.lists(
                st.integers(0, 5).map(float), min_size=graph.num_parameters, max_size=graph.num_parameters
            )
        )
    )
    assert tac_order(graph, transfer).tolist() == tictac.tac_order(graph, transfer)
