"""Processors of nodes: divided, shared equally, or all for all."""

from __future__ import annotations

import pytest

from hocket.lab.processors import processors_of_nodes


@pytest.mark.parametrize(
    ("processors", "nodes", "expected"),
    [
        ([0, 1], 2, [{0}, {1}]),
        ([0, 1], 4, [{0}, {1}, {0}, {1}]),
        ([0, 1], 3, [{0, 1}] * 3),
        ([2, 3, 6, 7, 9], 2, [{2, 3}, {6, 7}]),
        ([5], 3, [{5}] * 3),
    ],
)
def test_processors_are_divided_or_shared_equally(
    processors: list[int], nodes: int, expected: list[set[int]]
) -> None:
    assert processors_of_nodes(processors, nodes) == expected
