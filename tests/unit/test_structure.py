"""The structure of the source: one name for one thing, no circle of imports, no docstring that asks."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import grimp
import pytest

from tests.unit.long_signatures import LONG_SIGNATURES, PUBLIC

ROOT = Path(__file__).parents[2] / "hocket"
QUESTIONS = {"What", "Who", "Whose", "Whoever", "How", "Whether", "Where", "When", "Which", "Why"}


@cache
def sources() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text()) for path in sorted(ROOT.rglob("*.py"))}


def named_twice(named: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    places = defaultdict(list)
    for name, place in named:
        places[name].append(place)
    return {name: where for name, where in places.items() if len(where) > 1}


def place(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_no_two_files_have_one_name() -> None:
    files = ((path.name, place(path)) for path in sources() if not path.name.startswith("__"))
    assert named_twice(files) == {}


def test_no_two_classes_have_one_name() -> None:
    classes = (
        (node.name, place(path))
        for path, tree in sources().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    )
    assert named_twice(classes) == {}


DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def test_no_docstring_begins_with_a_question() -> None:
    asking = []
    for path, tree in sources().items():
        for node in ast.walk(tree):
            if isinstance(node, DOCUMENTED):
                first, _, _ = (ast.get_docstring(node) or "").partition(" ")
                if first.rstrip(",") in QUESTIONS:
                    asking.append(f"{place(path)}: {getattr(node, 'name', 'the module')}")
    assert asking == []


MOST_PARAMETERS = 7


def long_signatures(tree: ast.AST) -> list[str]:
    """Names of the functions that take more parameters, ``self`` and ``cls`` aside."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            taken = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
            if len([one for one in taken if one.arg not in ("self", "cls")]) > MOST_PARAMETERS:
                found.append(node.name)
    return found


def test_long_signatures_are_found() -> None:
    of_seven = "def f(self, a, b, /, c, d, *, e, f, g): ..."
    of_eight = "def h(a, b, /, c, d, *, e, f, g, h):\n  async def inner(a, b, c, d, e, f, g, h): ..."
    assert long_signatures(ast.parse(f"{of_seven}\n{of_eight}")) == ["h", "inner"]


def test_no_function_takes_more_than_seven_parameters_but_those_listed() -> None:
    found = {f"{place(path)}: {name}" for path, tree in sources().items() for name in long_signatures(tree)}
    assert sorted(found - set(LONG_SIGNATURES)) == []
    assert sorted(set(LONG_SIGNATURES) - found) == [], "listed, and shorter by now: take it off the list"


def test_long_signatures_said_to_be_public_are_documented() -> None:
    api = (ROOT.parent / "docs" / "api.md").read_text()
    for name, reason in LONG_SIGNATURES.items():
        module, _, function = name.replace("/", ".").partition(".py: ")
        assert reason != PUBLIC or f"::: hocket.{module}.{function}\n" in api


DESIGN = [f"docs/design/{page.name}" for page in sorted((ROOT.parent / "docs" / "design").glob("*.md"))]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/design.md", "docs/api.md", *DESIGN])
def test_files_that_a_page_names_are_there(page: str) -> None:
    files = [
        f"/{path.relative_to(ROOT.parent)}"
        for folder in (ROOT, ROOT.parent / "tests")
        for path in folder.rglob("*.py")
    ]
    named = re.findall(r"`((?:[a-z_0-9]+/)*[a-z_0-9]+\.py)`", (ROOT.parent / page).read_text())
    assert [name for name in named if not any(file.endswith(f"/{name}") for file in files)] == []


def test_the_design_page_lists_the_layers_of_the_contract() -> None:
    settings = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["tool"]["importlinter"]
    contract = next(each for each in settings["contracts"] if each["name"] == "the flow's layers")
    page = (ROOT.parent / "docs/design.md").read_text()
    rows = re.findall(r"^\| (\d+) \| ([^|]*) \|", page, re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(contract["layers"]) + 1))
    listed = [set(re.findall(r"`(\w+)`", names)) for _, names in rows]
    assert listed == [set(layer.split(" | ")) for layer in contract["layers"]]


def test_the_picture_of_the_layers_is_of_todays_imports() -> None:
    command = [sys.executable, ROOT.parent / "docs/draw/make.py", "--check", "layers"]
    told = {**os.environ, "PYTHONPATH": str(ROOT.parent)}
    checked = subprocess.run(command, env=told, capture_output=True, text=True, timeout=60, check=False)
    assert checked.returncode == 0, checked.stderr


def circles(imports: dict[str, set[str]]) -> list[set[str]]:
    """Sets of modules that import each other, directly or through others."""

    def reached(begin: str) -> set[str]:
        seen: set[str] = set()
        ahead = list(imports[begin])
        while ahead:
            module = ahead.pop()
            if module not in seen:
                seen.add(module)
                ahead.extend(imports[module])
        return seen

    beyond = {module: reached(module) for module in imports}
    inside = [module for module in imports if module in beyond[module]]
    found = {frozenset(other for other in beyond[module] if module in beyond[other]) for module in inside}
    return sorted(map(set, found), key=sorted)


@pytest.mark.parametrize(
    ("imports", "expected"),
    [
        ({"a": {"b"}, "b": {"c"}, "c": set()}, []),
        ({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}, [{"a", "b", "c"}]),
        ({"a": {"b"}, "b": {"a"}, "c": {"d"}, "d": {"c", "a"}}, [{"a", "b"}, {"c", "d"}]),
    ],
)
def test_circles_are_found(imports: dict[str, set[str]], expected: list[set[str]]) -> None:
    assert circles(imports) == expected


def test_no_imports_go_round_in_a_circle() -> None:
    graph = grimp.build_graph("hocket", exclude_type_checking_imports=True)
    imports = {module: set(graph.find_modules_directly_imported_by(module)) for module in graph.modules}
    assert circles(imports) == []
