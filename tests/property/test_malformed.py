"""Whatever happens to a valid file, a command serves it or refuses it in one line; it never fails."""

from __future__ import annotations

import functools
import json
import math
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.network.file import network_document
from tests.strategies import examples
from tests.unit.cli.test_commands import BRANCHES, GOLDEN, hocket, refused
from tests.unit.network.test_measured import some_file

STEP = (GOLDEN / "tictac_fig5b.step.json").read_bytes()
SLICES = (GOLDEN / "branches.p3.plan.json").read_bytes().replace(b'"left"]', b'"left"],"chunks":3')
PLANS = {
    "plan": ("tictac_fig5b", (GOLDEN / "tictac_fig5b.tac.plan.json").read_bytes()),
    "slices": (
        "branches",
        (GOLDEN / "branches.p3.plan.json").read_bytes().replace(b'"left"]', b'"left"],"chunks":3'),
    ),
    "reductions": ("branches", (GOLDEN / "branches.caramel.plan.json").read_bytes()),
}
NETWORK = json.dumps(network_document(some_file())).encode()
# One job: with two of very many iterations there is no end of events.
JOB = {
    **{"id": "j0", "model": "m", "gpus": 2, "iterations": 12, "arrival_s": 3.0, "forward_s": 0.025},
    **{"backward_s": 0.0374, "size_bytes": 99200000, "memory_bytes": 3213000000},
}
JOBS = json.dumps({"format": "hocket.jobs/1", "jobs": [JOB]}).encode()
CLUSTER = ("--placement", "lwf-1", "--policy", "srsf-1", "--servers", "2", "--gpus-per-server", "2")

junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.sampled_from(
        ["", "op1", "recvA", "backward", "hocket.step/1", "\x00", "</script>", "é" * 30, "a\nb"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "format", "x"]), inner)
    ),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn, valid: bytes) -> bytes:
    """Some values of the document replaced, removed or doubled, then perhaps some bytes."""
    document = json.loads(valid)
    for _ in range(draw(st.integers(0, 3))):
        places: list[tuple[Any, Any]] = []

        def walk(node: Any, places: list[tuple[Any, Any]] = places) -> None:
            for key in node if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ():
                places.append((node, key))
                walk(node[key])

        walk(document)
        if not places:
            break
        holder, key = draw(st.sampled_from(places))
        match draw(st.sampled_from(["replace", "remove", "double"])):
            case "replace":
                holder[key] = draw(junk)
            case "remove":
                del holder[key]
            case "double" if isinstance(holder, list):
                holder.append(holder[key])
    data = bytearray(json.dumps(document).encode())
    for _ in range(draw(st.integers(0, 2))):
        if data:
            place = draw(st.integers(0, len(data) - 1))
            data[place : place + draw(st.integers(0, 4))] = draw(st.binary(max_size=3))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@pytest.mark.parametrize(
    "kind", ["step", "plan", "slices", "reductions", "network", "result", "jobs", "cluster result"]
)
@given(data=st.data())
@examples(150)
def test_a_damaged_file_is_served_or_refused_in_one_line(kind: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "given.json"
        network = ["--bandwidth", "1kbit/s", "--iterations", "1"]
        if kind == "step":
            path.write_bytes(data.draw(mutated(STEP)))
            ran = hocket("simulate", str(path), "--policy", "tac", *network, "--json")
        elif kind in PLANS:
            step, plan = PLANS[kind]
            path.write_bytes(data.draw(mutated(plan)))
            ran = hocket(
                "simulate", str(GOLDEN / f"{step}.step.json"), "--plan", str(path), *network, "--json"
            )
        elif kind == "network":
            path.write_bytes(data.draw(mutated(NETWORK)))
            ran = hocket("simulate", BRANCHES, "--policy", "ddp", "--network", str(path), "--json")
        elif kind == "jobs":
            path.write_bytes(data.draw(mutated(JOBS)))
            ran = hocket("cluster", "simulate", str(path), *CLUSTER, "--json")
        else:
            path.write_bytes(data.draw(mutated(_result() if kind == "result" else _cluster_result())))
            ran = hocket("report", str(path), "-o", str(Path(folder) / "report.html"))
        if ran.status and kind == "jobs":
            refused(ran)  # by its reader, or because the job has no place
        elif ran.status:
            assert refused(ran).startswith(f"hocket: {path}: ") or "servers" in ran.err
            assert [p.name for p in Path(folder).iterdir()] == ["given.json"]
        elif kind == "jobs":
            assert math.isfinite(json.loads(ran.out)["average_jct_s"])
        elif not kind.endswith("result"):
            assert math.isfinite(json.loads(ran.out)["iteration_s"])


@functools.cache
def _result() -> bytes:
    ran = hocket("simulate", str(GOLDEN / "tictac_fig5b.step.json"), "--policy", "tac", "--json")
    return ran.out.encode()


@functools.cache
def _cluster_result() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.json"
        path.write_bytes(JOBS)
        return hocket("cluster", "simulate", str(path), *CLUSTER, "--json").out.encode()
