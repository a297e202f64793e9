"""The help of every public name is whole by itself: a sentence, all parameters, an example that runs."""

from __future__ import annotations

import dataclasses
import doctest
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import hocket
from hocket.planner import policies_of
from hocket.planner.exact.optimum import MOST_OPERATIONS, MOST_PARAMETERS
from hocket.tuner import policy_names

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
NAMES = re.findall(r"^::: (hocket[\w.]+)$", PAGE, re.MULTILINE)
EXTRA = {"lightning": "lightning", "accelerate": "accelerate"}
"""Modules that need a package which Hocket does not."""
ELSEWHERE = {"hocket.runtime.ps.worker.server_handle.ServedHandle"}
"""Classes that are of a job of several processes: no example shows them in one."""


def public_of(name: str) -> Any:
    """The object that the reference names."""
    module, _, own = name.rpartition(".")
    if (package := EXTRA.get(module.rpartition(".")[2])) is not None:
        pytest.importorskip(package)
    return getattr(importlib.import_module(module), own)


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
    hocket.save_network(hocket.NetworkFile(bandwidth_bps=1e9), "network.json")
    hocket.save_timeline(hocket.Timeline(title="nothing", lanes=(), spans=()), "timeline.json")
    yield
    if "accelerate" in sys.modules:
        sys.modules["accelerate"].state.AcceleratorState._reset_state(True)
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
    public = public_of(name)
    doc = inspect.getdoc(public) or ""
    first, _, rest = doc.partition("\n")
    assert not rest.startswith("\n") or re.search(r"[.:]$", first), first
    assert first[0].isupper()
    assert not first.startswith(("What", "Who", "How", "Whether"))
    assert set(parameters(public)) <= explained(doc), set(parameters(public)) - explained(doc)


@pytest.mark.parametrize("name", [name for name in NAMES if name.rpartition(".")[2][0].islower()])
def test_a_function_tells_what_it_returns_and_raises(name: str) -> None:
    public = public_of(name)
    doc = inspect.getdoc(public) or ""
    assert "\nRaises\n------\n" in doc
    if inspect.signature(public).return_annotation != "None":
        assert "\nReturns\n-------\n" in doc


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ELSEWHERE])
def test_the_example_runs(name: str) -> None:
    public = public_of(name)
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(public) or "", {}, name, None, None)
    assert examples.examples, "no example"
    told: list[str] = []
    ran = doctest.DocTestRunner(verbose=False).run(examples, out=told.append)
    assert ran.failed == 0, "".join(told)


def test_the_reference_has_every_public_name() -> None:
    listed = {name.rpartition(".")[2] for name in NAMES}
    assert set(hocket.__all__) <= listed, set(hocket.__all__) - listed


@pytest.mark.parametrize("package", ["graph", "predictor", "profiler", "runtime"])
def test_help_takes_whole_paths_once_hocket_is_imported(package: str) -> None:
    whole = [name for name in NAMES if name.startswith(f"hocket.{package}.") and name not in ELSEWHERE]
    code = "; ".join(["import hocket", *(f"help({name})" for name in whole if exported(name) is None)])
    assert "help" in code
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120, stdout=subprocess.DEVNULL)


def test_every_name_of_the_reference_is_had_from_hocket_or_by_its_path() -> None:
    """What needs another package is imported by itself."""
    by_path = [name for name in NAMES if exported(name) is None and ".integrations." not in name]
    assert {name.split(".")[1] for name in by_path} == {"graph", "predictor", "profiler", "runtime"}


def test_the_reference_says_how_to_import_what_hocket_has_not() -> None:
    block = re.search(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert block is not None
    imports = re.findall(r"^from ([\w.]+) import ([\w, ]+)", block[1], re.MULTILINE)
    told = [f"{module}.{own.strip()}" for module, names in imports for own in names.split(",")]
    assert sorted(told) == sorted(name for name in NAMES if exported(name) is None)
    for name in told:
        if name.split(".")[-2] not in EXTRA:
            public_of(name)


def exported(name: str) -> str | None:
    """The name by which ``hocket`` has what a path names; None where it has not."""
    own = name.rpartition(".")[2]
    return own if own in hocket.__all__ else None


def test_the_policies_that_the_help_lists_are_those_there_are() -> None:
    doc = inspect.getdoc(hocket.plan) or ""
    entry = re.search(r"^policy\n(.*?)\narchitecture\n", doc, re.DOTALL | re.MULTILINE)
    assert entry is not None
    named = re.sub(r"\s+", " ", entry[1])
    listed = re.search(
        r"For parameter servers: (.*?)\. For AllReduce: (.*?)\. Fully sharded: (.*?)\. For each: (.*)", named
    )
    assert listed is not None
    of_servers, of_allreduce, sharded, either = listed.groups()
    assert of_servers.split(", ") == policies_of("ps")
    for_either = set(policy_names("ps")) & set(policy_names("allreduce"))
    assert of_allreduce.split(", ") == [name for name in policy_names("allreduce") if name not in for_either]
    assert sharded.split(", ") == [name for name in policy_names("fsdp") if name not in for_either]
    assert for_either <= set(re.findall(r"\w+", either))
    assert [int(number) for number in re.findall(r"\d+", either)] == [MOST_OPERATIONS, MOST_PARAMETERS]
