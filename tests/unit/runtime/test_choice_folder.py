"""The folder of choices: where it is, and that files in it are whole, this training's, or left out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hocket.errors import HocketError
from hocket.runtime.training.choice_folder import ChoiceFolder, folder_of_environment


@pytest.mark.parametrize(
    ("cache", "xdg", "folder"),
    [
        (None, None, "home/.cache/hocket/choices"),
        (None, "xdg", "xdg/hocket/choices"),
        ("mine", "xdg", "mine/choices"),
        ("", None, None),
        ("off", None, None),
        (" OFF ", "xdg", None),
    ],
)
def test_the_folder_is_the_one_that_is_named_else_the_users(
    cache: str | None, xdg: str | None, folder: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in (("HOCKET_CACHE", cache), ("XDG_CACHE_HOME", xdg)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            absolute = value.strip().lower() not in ("", "off")
            monkeypatch.setenv(name, str(tmp_path / value) if absolute else value)
    found = folder_of_environment()
    assert (None if found is None else found.path) == (None if folder is None else tmp_path / folder)


def test_a_cache_folder_that_is_not_absolute_is_not_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("HOCKET_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "some/where")
    found = folder_of_environment()
    assert found is not None
    assert found.path == tmp_path / ".cache/hocket/choices"


def test_what_is_kept_comes_back_whole_and_by_its_key(tmp_path: Path) -> None:
    folder = ChoiceFolder(tmp_path / "some" / "where")
    assert folder.load("a") is None
    kept: dict[str, Any] = {"format": "hocket.choice/1", "chosen": "2026-01-02"}
    folder.save("a", kept)
    assert folder.load("a") == kept
    assert folder.load("b") is None
    assert [path.name for path in folder.path.iterdir()] == ["a.json"]


def test_to_forget_is_to_read_nothing_and_to_replace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOCKET_CACHE", str(tmp_path))
    monkeypatch.setenv("HOCKET_FORGET", "1")
    folder = folder_of_environment()
    assert folder is not None
    folder.save("a", {"old": True})
    assert folder.load("a") is None
    folder.save("a", {"old": False})
    assert ChoiceFolder(tmp_path / "choices").load("a") == {"old": False}


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HocketError) as refused:
        ChoiceFolder(tmp_path / "file" / "choices").save("a", {})
    assert "\n" not in str(refused.value)
