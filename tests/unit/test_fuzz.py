"""Every reader takes a damaged input or refuses it in one line: a few here, a million by ``make fuzz``."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.fuzz.readers import FOUND, readers
from tests.fuzz.run import fuzz, tried


def test_damaged_inputs_are_served_or_refused() -> None:
    assert fuzz(0, 1500, 1, seed=7, keep=None) == {}


@pytest.mark.parametrize(
    "path", sorted(FOUND.glob("*/*")), ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_inputs_that_a_reader_once_failed_on(path: Path, tmp_path: Path) -> None:
    (reader,) = (each for each in readers() if each.name == path.parent.name)
    data = path.read_bytes()
    assert tried(reader, gzip.decompress(data) if path.suffix == ".gz" else data, tmp_path) == ""
