"""Arguments and options that a line lacks: all named in one line, with a command to try if there is one."""

from __future__ import annotations

import pytest

from tests.unit.cli.test_commands import hocket, refused


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (
            "cluster simulate jobs.json",
            "Missing options '--placement' and '--policy'; for",
        ),
        (
            "cluster simulate jobs.json --policy srpt",
            "Missing option '--placement'; for",
        ),
        (
            "cluster simulate",
            "Missing argument 'JOBS' and options '--placement' and '--policy'; for",
        ),
        (
            "cluster serve",
            "Missing options '--placement', '--policy' and '--state'. See",
        ),
        ("compare", "Missing arguments 'PREDICTED' and 'MEASURED'. See"),
        ("compare one.json", "Missing argument 'MEASURED'. See"),
        ("import kineto", "Missing argument 'TRACE...' and option '--output'. See"),
    ],
)
def test_all_that_is_missing_is_named_in_one_line(command: str, said: str) -> None:
    assert refused(hocket(*command.split())).startswith(f"hocket: {said}")
