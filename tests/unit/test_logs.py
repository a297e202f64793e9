"""The logger ``hocket`` and HOCKET_LOG."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hocket.errors import UnknownNameError
from hocket.logs import show_log

SAYS = "from hocket.logs import logger, show_log; show_log(); logger.info('learning'); logger.warning('late')"


def said(code: str, level: str | None) -> str:
    """What a process that runs ``code`` under this HOCKET_LOG writes on standard error."""
    environment = {} if level is None else {"HOCKET_LOG": level}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    return run.stderr


@pytest.mark.parametrize(
    ("level", "lines"),
    [
        (None, "late\n"),  # warnings as every library's
        ("info", "hocket: learning\nhocket: late\n"),
        ("INFO", "hocket: learning\nhocket: late\n"),
        ("error", ""),
    ],
)
def test_one_variable_turns_the_lines_on(level: str | None, lines: str) -> None:
    assert said(SAYS, level) == lines


def test_a_script_that_logs_itself_gets_every_line_once() -> None:
    ahead = "import logging; logging.basicConfig(format='mine %(message)s'); "
    assert said(ahead + SAYS, "info") == "mine learning\nmine late\n"


def test_a_level_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_LOG", "verbose")
    with pytest.raises(UnknownNameError, match=r"HOCKET_LOG level 'verbose' is unknown; .*debug, info"):
        show_log()
