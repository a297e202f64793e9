"""The packages of Hocket in the layers of their contract, with arrows from the import graph."""

from __future__ import annotations

import tomllib
from pathlib import Path

import grimp
from svg import boxes

_PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
_CONTRACT = "the flow's layers"
_SUPPORT = 2  # layers at the bottom that most packages import
# Columns by which rows stand aside, so that few arrows cross a box.
_ASIDE = {"report": -1.5, "integrations": 1.0, "tuner": 0.5, "interop": 0.5}


def layers() -> str:
    """Packages in the contract's rows, and an arrow for each import that no path of others implies."""
    rows = _rows()
    shown = {name for row in rows for name in row}
    graph = grimp.build_graph("hocket", exclude_type_checking_imports=True)
    for package in graph.find_children("hocket"):
        graph.squash_module(package)
    row_of = {name: i for i, row in enumerate(rows) for name in row}
    imports = {
        name: {
            found.removeprefix("hocket.")
            for found in graph.find_modules_directly_imported_by(f"hocket.{name}")
            if found.removeprefix("hocket.") in shown
        }
        for name in shown
    }
    down = {
        name: {other for other in others if row_of[other] > row_of[name]} for name, others in imports.items()
    }
    up = {
        (name, other) for name, others in imports.items() for other in others if row_of[other] < row_of[name]
    }
    arrows = {
        (name, other)
        for name, others in down.items()
        for other in others
        if not any(other in _below(between, down) for between in others)
    }
    places = {
        name: (k - (len(row) - 1) / 2 + _ASIDE.get(name, 0.0), i)
        for i, row in enumerate(rows)
        for k, name in enumerate(row)
    }
    return boxes(places, sorted(arrows), sorted(up))


def _rows() -> list[list[str]]:
    """The contract's layers, but for those that hold what most packages import."""
    contracts = tomllib.loads(_PYPROJECT.read_text())["tool"]["importlinter"]["contracts"]
    listed = next(contract["layers"] for contract in contracts if contract["name"] == _CONTRACT)
    return [
        [name.strip().removeprefix("hocket.") for name in layer.split("|")] for layer in listed[:-_SUPPORT]
    ]


def _below(package: str, imports: dict[str, set[str]]) -> set[str]:
    """The packages that ``package`` imports, directly or through others."""
    return imports[package].union(*(_below(other, imports) for other in imports[package]))
