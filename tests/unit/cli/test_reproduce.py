"""``hocket reproduce`` as scripts call it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hocket.reproduce.papers as registry
from hocket.reproduce import QUICK
from tests.unit.cli.test_commands import hocket, in_tmp, refused
from tests.unit.reproduce.test_output import made

__all__ = ["in_tmp"]


@pytest.fixture
def papers(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Papers that take no time; the settings that they were made with."""
    settings: list[object] = []

    class Paper:
        @staticmethod
        def reproduce(setting: object, progress: object) -> object:
            settings.append(setting)
            return made()

    monkeypatch.setattr(registry, "import_module", lambda name: Paper)
    return settings


def test_one_document_on_standard_output(papers: list[object], in_tmp: Path) -> None:
    ran = hocket("reproduce", "tictac", "caramel", "--quick", "--json")
    assert ran.status == 0, ran.err
    documents = json.loads(ran.out)
    assert [document["format"] for document in documents] == ["hocket.reproduction/1"] * 2
    assert documents[0]["circumstances"]["command"] == "hocket reproduce tictac caramel --quick"
    assert papers == [QUICK, QUICK]
    assert list(in_tmp.iterdir()) == []


def test_a_table_for_people_and_a_folder(papers: list[object], in_tmp: Path) -> None:
    ran = hocket("reproduce", "tictac", "-o", "out", "--seed", "3")
    assert ran.status == 0, ran.err
    assert "reproduced 1, same direction 1, not reproduced 1" in ran.out
    assert "a reason" in ran.out
    assert "out/index.html" in ran.err
    assert (in_tmp / "out" / "tictac.json").is_file()
    assert "--seed 3" in (in_tmp / "out" / "reproduction.md").read_text()


def test_unknown_papers_are_listed_and_nothing_is_written(papers: list[object], in_tmp: Path) -> None:
    line = refused(hocket("reproduce", "tictac", "poseidon", "-o", "out"))
    assert "paper 'poseidon' is unknown" in line
    assert "tictac, ibatch, caramel, prediction, contention, all" in line
    assert papers == []
    assert list(in_tmp.iterdir()) == []


@pytest.mark.long
@pytest.mark.timeout(900)
def test_quick_reproductions_write_a_page_and_a_document_a_paper(in_tmp: Path) -> None:
    papers = ["tictac", "prediction"]  # all of them take minutes
    ran = hocket("reproduce", *papers, "--quick", "-o", "out", "--json")
    assert ran.status == 0, ran.err
    documents = json.loads(ran.out)
    assert [document["reproduction"]["paper"] for document in documents] == papers
    for document in documents:
        assert document["reproduction"]["wall_s"] > 0
        assert len(document["reproduction"]["figures"]) >= 4
    names = {path.name for path in (in_tmp / "out").iterdir()}
    assert names == {"index.html", "reproduction.md", *(f"{paper}.json" for paper in papers)}
