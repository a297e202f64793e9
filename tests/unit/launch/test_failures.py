"""The line that is kept of a script's failure."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hocket.launch.failures import VARIABLE, first_failure
from hocket.launch.processes import SCRIPT


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (
            r"ValueError('cannot trace\n  Hint: leave it\n\nSet VERBOSE=1 for more')",
            "ValueError: cannot trace",
        ),
        (
            r"RuntimeError('loading failed:\n\tmissing a\n\tmissing b')",
            "RuntimeError: loading failed: missing a",
        ),
        (r"OSError('\n\nafter empty lines\nmore')", "OSError: after empty lines"),
        (
            "json.JSONDecodeError('no value', '', 0)",
            "json.decoder.JSONDecodeError: no value: line 1 column 1 (char 0)",
        ),
        ("AssertionError", "AssertionError"),
        ("compile('x = (', 'other.py', 'exec')", "SyntaxError: '(' was never closed (other.py, line 1)"),
    ],
)
def test_the_line_is_the_one_that_says_why(tmp_path: Path, raised: str, text: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"import json\nraise {raised}\n")
    subprocess.run(
        [sys.executable, *SCRIPT, str(script)],
        capture_output=True,
        check=False,
        timeout=60,
        env={**os.environ, VARIABLE: str(tmp_path)},
    )
    failure = first_failure(tmp_path)
    assert failure is not None
    assert (failure.text, failure.line) == (text, "script.py line 2")
