"""A place for a trace."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return tmp_path / "trace"
