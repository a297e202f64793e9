"""The page, the Markdown and the documents of a reproduction."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from hocket.errors import HocketError
from hocket.reproduce.claim import ClaimRow
from hocket.reproduce.markdown import markdown
from hocket.reproduce.output_folder import check_folder, write
from hocket.reproduce.papers_page import cell_text, render
from hocket.reproduce.reproduction import (
    Circumstances,
    Document,
    Missing,
    PaperFigure,
    PaperTable,
    PlotAxes,
    Reproduction,
    Series,
)

ABOUT = Circumstances(
    command="hocket reproduce tictac",
    hardware="2 cores",
    load=1.5,
    versions="Hocket 0",
    date="2026-01-02",
    seed=7,
    quick=True,
)


def row(verdict: str, why: str = "") -> ClaimRow:
    document = {
        "figure": "Fig. 1", "what": "a < b | c", "unit": "x", "rule": "near", "tolerance": 0.1, "paper": 2.0,
        "ours": 1.5, "ratio": 0.75, "verdict": verdict, "why": why,
    }  # fmt: skip
    return msgspec.convert(document, ClaimRow)


def made() -> Reproduction:
    series = (
        Series(name="line </script>", x=(1.0, 2.0), y=(1.0, None)),
        Series(name="points", x=(1.0,), y=(2.0,), kind="points"),
    )
    bars = (Series(name="bars", x=("a", "b"), y=(1.0, 2.0), kind="bars"),)
    lanes = (Series(name="spans", x=(1.0, 2.0), y=(0.0, 1.0), base=(0.0, 1.0), kind="bars"),)
    return Reproduction(
        paper="tictac",
        title="TicTac",
        assumptions=("Nothing is measured.",),
        claims=(row("reproduced"), row("not reproduced", "a reason"), row("same direction", "a reason")),
        tables=(
            PaperTable(
                number="Table 1", caption="models", columns=("Model", "n"), rows=(("a|b", 3), ("c", None))
            ),
        ),
        figures=(
            PaperFigure(
                number="Fig. 1",
                caption="everything",
                panels=(
                    PlotAxes(title="a", x="x", y="y", series=series),
                    PlotAxes(title="b", x="", y="y", series=bars, stacked=True),
                    PlotAxes(title="c", x="s", y="", series=lanes, lanes=("first", "second")),
                ),
            ),
        ),
        missing=(Missing(number="Fig. 9", why="no cluster", instead="nothing"),),
        wall_s=3.0,
    )


def test_the_markdown_has_every_claim_reason_and_table() -> None:
    text = markdown([made()], ABOUT)
    assert "Made by `hocket reproduce tictac`" in text
    assert "| TicTac | 1 | 1 | 0 | 1 | 0 | 3 |" in text
    assert "| Fig. 1 | a \\< b \\| c | 2.00x | 1.50x | 0.75 | same direction |" in text
    assert text.count("a reason.") == 1
    assert "| a\\|b | 3 |" in text
    assert "* Fig. 9: no cluster. Instead: nothing." in text


def test_the_page_is_whole_and_says_what_the_markdown_says() -> None:
    page = render([made()], ABOUT)
    assert page.count("</script>") == page.count("<script")
    assert "seed 7" in page
    assert "2 cores, load 1.5 over 15 minutes" in page
    assert page.count('class="verdict same-direction"') == 1
    assert 'id="tictac-0"' in page
    assert "http://" not in page.split("<script type")[0]


def test_a_folder_gets_everything(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "out"
    check_folder(folder, ["tictac"])
    write(folder, [made()], ABOUT)
    assert sorted(path.name for path in folder.iterdir()) == ["index.html", "reproduction.md", "tictac.json"]
    document = json.loads((folder / "tictac.json").read_text())
    assert document["format"] == "hocket.reproduction/1"
    assert msgspec.convert(document, Document).reproduction == made()


def test_a_folder_that_cannot_be_one_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(HocketError, match="file: is no folder to write to"):
        check_folder(tmp_path / "file", ["tictac"])
    (tmp_path / "out" / "tictac.json").mkdir(parents=True)
    with pytest.raises(HocketError, match=r"tictac\.json: is a folder"):
        check_folder(tmp_path / "out", ["tictac"])


def test_cells_are_short() -> None:
    cells = [cell_text(value) for value in (None, "a", 3, 12345, 0.123456, 28811.62)]
    assert cells == ["–", "a", "3", "12345", "0.1235", "28812"]
