"""What a script ends with, as an interpreter at its end sees it."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from hocket.runtime.observe.exit_status import forget_exit, notice_exits, script_failed


@pytest.fixture(autouse=True)
def noticed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sys, "exit", sys.exit)  # given back afterwards
    monkeypatch.delattr(sys, "last_value", raising=False)
    notice_exits()
    forget_exit()  # what tests before this one exited with
    yield
    forget_exit()


@pytest.mark.parametrize(
    ("status", "failed"), [(None, False), (0, False), (1, True), (-1, True), ("it went wrong", True)]
)
def test_an_exit_that_says_so_is_a_failure(status: object, failed: bool) -> None:
    assert not script_failed()
    with pytest.raises(SystemExit) as ended:
        sys.exit(status)  # type: ignore[arg-type]
    assert ended.value.code == status
    assert script_failed() == failed
    forget_exit()
    assert not script_failed()


def test_an_error_that_nobody_caught_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "last_value", ValueError(), raising=False)
    assert script_failed()
