"""What training takes as a plan: a plan, a file by any kind of path, a policy."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hocket.errors import HocketError
from hocket.graph import load_plan
from hocket.tuner.distribute import resolve_plan
from hocket.tuner.server_plans import resolve_server_plan

GOLDEN = Path(__file__).parents[2] / "golden"
KINDS = [
    (resolve_plan, GOLDEN / "branches.caramel.plan.json", "caramel"),
    (resolve_server_plan, GOLDEN / "branches.p3.plan.json", "tac"),
]


@pytest.mark.parametrize(("resolve", "path", "policy"), KINDS)
def test_a_plan_may_be_itself_or_any_path_or_a_name(
    tmp_path: Path, resolve: Callable[[Any], Any], path: Path, policy: str
) -> None:
    plan = load_plan(path)
    nameless = shutil.copy(path, tmp_path / "nameless")
    for wanted in (plan, path, str(path), nameless, str(nameless)):
        assert resolve(wanted) == (plan, "")
    assert resolve(policy) == (None, policy)


@pytest.mark.parametrize(("resolve", "path", "policy"), KINDS)
def test_what_is_no_plan_gets_one_line(resolve: Callable[[Any], Any], path: Path, policy: str) -> None:
    with pytest.raises(HocketError, match=rf"^plan 3 is no plan; give one, .* one of: auto, .*{policy}"):
        resolve(3)
    with pytest.raises(HocketError, match=r"^policy or plan file 'nope' is unknown"):
        resolve("nope")
    with pytest.raises(HocketError, match=r"none: cannot be read"):
        resolve(path.parent / "none")


@pytest.mark.parametrize(
    ("resolve", "name", "line"),
    [
        (
            resolve_plan,
            "tac",
            r"^'tac' is a policy for training with parameter servers .*AllReduce .*caramel",
        ),
        (resolve_plan, "TIC", r"^'TIC' is a policy for training with parameter servers"),
        (resolve_server_plan, "ddp", r"^'ddp' is a policy for training by AllReduce .*servers .*tac"),
        (resolve_plan, "Caramel", r"^policy 'Caramel' is written 'caramel'$"),
        (resolve_plan, "exact", r"^'exact' proves plans .* hocket plan --policy exact"),
        (
            resolve_server_plan,
            "fsdp",
            r"^'fsdp' is a policy for fully sharded training \(hocket.shard\).*tac",
        ),
        (resolve_plan, "fsdp-tac", r"^'fsdp-tac' is a policy for fully sharded training .*caramel"),
        (resolve_server_plan, "zero3", r"^'zero3' shards a model .*hocket.shard.* the whole model .*tac"),
        (resolve_plan, "caramle", r"is unknown; did you mean 'caramel'"),
    ],
)
def test_a_name_that_does_not_apply_is_told_apart(
    resolve: Callable[[Any], Any], name: str, line: str
) -> None:
    with pytest.raises(HocketError, match=line):
        resolve(name)
