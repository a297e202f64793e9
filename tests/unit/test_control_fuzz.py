"""Damaged control messages: served, or refused in one line; a few here, many by ``make fuzz``."""

from __future__ import annotations

import pytest

from tests.fuzz.control import faults


@pytest.mark.parametrize("inputs", [1500, pytest.param(40_000, marks=pytest.mark.long)])
def test_damaged_messages_are_served_or_refused(inputs: int) -> None:
    assert faults(inputs, seed=7) == {}
