"""The help of every public name is whole by itself: a sentence, all parameters, an example that runs."""

from __future__ import annotations

import dataclasses
import doctest
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import hocket
from hocket.network.file import NetworkFile, save_network

NAMES = [name for name in hocket.__all__ if callable(getattr(hocket, name))]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The files that examples read, in the folder that they run in."""
    monkeypatch.chdir(tmp_path)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batch = torch.randn(4, 8), torch.randint(2, (4,))
    graph = hocket.profile(model, batch, torch.nn.functional.cross_entropy, optimizer, steps=2)
    hocket.save_step(graph, "step.json")
    hocket.save_plan(hocket.plan(graph, hocket.Network(num_workers=2), "ddp"), "plan.json")
    save_network(NetworkFile(bandwidth_bps=1e9), "network.json")
    yield
    if torch.distributed.is_initialized():  # an example that failed before its last line
        torch.distributed.destroy_process_group()


def parameters(public: Any) -> list[str]:
    """What a reader has to know the meaning of: a function's parameters, a class's fields."""
    if dataclasses.is_dataclass(public):
        return [field.name for field in dataclasses.fields(public)]
    if not inspect.isclass(public):
        return list(inspect.signature(public).parameters)
    return list(getattr(public, "__struct_fields__", ()))


def explained(doc: str) -> set[str]:
    """The names that a section of parameters or attributes explains."""
    section = re.search(
        r"^(?:Parameters|Attributes)\n-+\n(.*?)(?:\n\n\w+\n---|\Z)", doc, re.DOTALL | re.MULTILINE
    )
    entries = re.findall(r"^(\w[\w, ]*)\n +\S", section[1], re.MULTILINE) if section else []
    return {name for entry in entries for name in entry.split(", ")}


@pytest.mark.parametrize("name", NAMES)
def test_a_sentence_comes_first_and_every_parameter_is_explained(name: str) -> None:
    public = getattr(hocket, name)
    doc = inspect.getdoc(public) or ""
    first, _, rest = doc.partition("\n")
    assert not rest.startswith("\n") or re.search(r"[.:]$", first), first
    assert first[0].isupper()
    assert not first.startswith(("What", "Who", "How", "Whether"))
    assert set(parameters(public)) <= explained(doc), set(parameters(public)) - explained(doc)


@pytest.mark.parametrize("name", [name for name in NAMES if not inspect.isclass(getattr(hocket, name))])
def test_a_function_tells_what_it_returns_and_raises(name: str) -> None:
    public = getattr(hocket, name)
    doc = inspect.getdoc(public) or ""
    assert "\nRaises\n------\n" in doc
    if inspect.signature(public).return_annotation != "None":
        assert "\nReturns\n-------\n" in doc


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", NAMES)
def test_the_example_runs(name: str) -> None:
    public = getattr(hocket, name)
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(public) or "", {}, name, None, None)
    assert examples.examples, "no example"
    told: list[str] = []
    ran = doctest.DocTestRunner(verbose=False).run(examples, out=told.append)
    assert ran.failed == 0, "".join(told)


def test_the_reference_has_every_public_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    listed = set(re.findall(r"^::: [\w.]+\.(\w+)$", page, re.MULTILINE))
    assert set(hocket.__all__) <= listed, set(hocket.__all__) - listed
