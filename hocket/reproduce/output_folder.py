"""A folder with everything: the page, a file for each paper, and the Markdown that documentation includes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from hocket.document import check_writable, write_json, write_whole
from hocket.errors import HocketError
from hocket.reproduce.markdown import markdown
from hocket.reproduce.papers_page import render
from hocket.reproduce.reproduction import Circumstances, Document, Reproduction

PAGE, TEXT = "index.html", "reproduction.md"


def check_folder(folder: Path, papers: Sequence[str]) -> None:
    """Make ``folder`` where it is missing, and refuse what cannot be written in it, before anything runs.

    Raises
    ------
    HocketError
        Naming the path.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HocketError(f"{folder}: is no folder to write to: {error.strerror or error}") from None
    for name in (PAGE, TEXT, *(f"{paper}.json" for paper in papers)):
        check_writable(folder / name)


def write(folder: Path, made: Sequence[Reproduction], circumstances: Circumstances) -> None:
    """Write the page, the Markdown and each paper's document into ``folder``, each whole or not at all."""
    page, text = render(made, circumstances), markdown(made, circumstances)
    for reproduction in made:
        document = Document(circumstances=circumstances, reproduction=reproduction)
        write_json(msgspec.to_builtins(document), folder / f"{reproduction.paper}.json")
    write_whole(text.encode(), folder / TEXT)
    write_whole(page.encode(), folder / PAGE)
