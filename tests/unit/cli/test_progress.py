"""The bar on standard error."""

from __future__ import annotations

import pytest

from hocket.cli.output import progress


def test_what_a_user_wrote_is_shown_as_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes standard error for a terminal then
    with progress("planning [/x] [bold]") as report:
        report(1, 2)
        report(2, 2, "simulating [/y]")
    shown = capsys.readouterr().err
    assert "planning [/x] [bold]" in shown or "simulating [/y]" in shown
