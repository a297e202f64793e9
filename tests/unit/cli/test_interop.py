"""``hocket import`` and ``hocket export``: files in, files out, notes on standard error."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

from hocket.graph import load_step
from hocket.graph.io import step_document
from hocket.interop import load_timeline
from tests.unit.cli.test_commands import BRANCHES, CARAMEL, GOLDEN, NETWORK, hocket, refused
from tests.unit.interop.traces import ddp


def test_a_kineto_trace_becomes_a_step_that_is_planned_and_predicted(tmp_path: Path) -> None:
    trace, step = tmp_path / "job.pt.trace.json.gz", tmp_path / "step.json"
    trace.write_bytes(gzip.compress(json.dumps(ddp().document()).encode()))
    ran = hocket("import", "kineto", str(trace), "-o", str(step), "--batch-size", "16")
    assert (ran.status, ran.out) == (0, "")
    assert f"{step}: 8 operations, 2 parameters, 0.00 MiB, sampled steps: 2" in ran.err
    assert load_step(step).batch_size == 16
    allreduce = ("--architecture", "allreduce", "--bandwidth", "1Mbit/s", "--json")
    assert hocket("simulate", str(step), "--policy", "caramel", *allreduce, "--workers", "2").status == 0
    predicted = hocket("predict", str(step), *allreduce, "--workers", "1,2", "--steps", "20")
    assert len(json.loads(predicted.out)) == 2


def test_a_step_goes_to_chakra_and_back(tmp_path: Path) -> None:
    there, back = tmp_path / "branches.0.et", tmp_path / "back.json"
    for plan in ((), ("--plan", CARAMEL)):
        assert hocket("export", "chakra", BRANCHES, *plan, "-o", str(there)).status == 0
        assert hocket("import", "chakra", str(there), "-o", str(back)).status == 0
        assert step_document(load_step(back)) == step_document(load_step(BRANCHES))


def test_a_compressed_chakra_trace_is_read_back(tmp_path: Path) -> None:
    there, back = tmp_path / "branches.0.et.gz", tmp_path / "back.json"
    assert hocket("export", "chakra", BRANCHES, "-o", str(there)).status == 0
    assert gzip.decompress(there.read_bytes())
    assert hocket("import", "chakra", str(there), "-o", str(back)).status == 0
    assert step_document(load_step(back)) == step_document(load_step(BRANCHES))


def test_perfetto_gets_what_comes_through_a_pipe(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(Path(BRANCHES).read_bytes())
    with os.fdopen(reading):
        arguments = ("--plan", CARAMEL, *NETWORK, "-o", str(tmp_path / "trace.json"))
        ran = hocket("export", "perfetto", f"/dev/fd/{reading}", *arguments)
    assert ran.status == 0, ran.err


def test_perfetto_gets_a_simulated_step_or_a_timeline(tmp_path: Path) -> None:
    drawn, again = tmp_path / "step.trace.json", tmp_path / "again.json.gz"
    ran = hocket("export", "perfetto", BRANCHES, "--plan", CARAMEL, *NETWORK, "-o", str(drawn))
    assert ran.status == 0
    timeline, row = load_timeline(drawn)
    assert timeline.spans
    assert row is not None
    assert hocket("export", "perfetto", str(drawn), "-o", str(again)).status == 0
    assert load_timeline(again) == (timeline, row)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    output = tmp_path / "out"
    assert "which runs under a plan" in refused(hocket("export", "perfetto", BRANCHES, "-o", str(output)))
    servers = str(GOLDEN / "branches.p3.plan.json")
    line = refused(hocket("export", "chakra", BRANCHES, "--plan", servers, "-o", str(output)))
    assert "has no collectives" in line
    beside = ("--plan", CARAMEL, "--servers", "2", "-o", str(output))
    assert "2 servers: all-reduce has none" in refused(hocket("export", "perfetto", BRANCHES, *beside))
    drawn = str(tmp_path / "drawn.json")
    assert hocket("export", "perfetto", BRANCHES, "--plan", CARAMEL, "-o", drawn).status == 0
    of_a_step = ("--workers", "4", "--seed", "0", "-o", str(output))
    line = refused(hocket("export", "perfetto", drawn, *of_a_step))
    assert "is a timeline, and --workers, --seed for a step; leave it out" in line
    trace = tmp_path / "trace.json"
    trace.write_text("{}")
    assert "is also an input" in refused(hocket("import", "kineto", str(trace), "-o", str(trace)))
    assert "missing required field" in refused(hocket("import", "kineto", str(trace), "-o", str(output)))
    assert not output.exists()


def test_a_trace_without_gradients_is_refused_or_looked_at_but_never_planned(tmp_path: Path) -> None:
    trace, step = tmp_path / "job.json", tmp_path / "step.json"
    document = ddp(shapes=False).document()
    document["traceEvents"] = [
        e for e in document["traceEvents"] if not e["name"].startswith(("nccl", "c10d"))
    ]
    trace.write_text(json.dumps(document))
    ran = hocket("import", "kineto", str(trace), "-o", str(step))
    assert "no parameters: 2 gradients of a step are complete" in refused(ran)
    assert "give --allow-no-gradients" in ran.err
    assert not step.exists()
    ran = hocket("import", "kineto", str(trace), "-o", str(step), "--allow-no-gradients")
    assert ran.status == 0
    assert "0 parameters, 0.00 MiB" in ran.err
    for command in ("plan --policy ddp", "simulate --policy ddp", "tune", "predict --workers 1,64"):
        name, *options = command.split()
        assert "has no parameters" in refused(hocket(name, str(step), *options))
