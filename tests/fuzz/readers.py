"""What reads files that somebody else wrote, each with inputs that it takes."""

from __future__ import annotations

import gzip
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import zstandard

from hocket.cluster.jobs_file import decode_jobs, read_jobs, write_jobs
from hocket.cluster.live.runnable_jobs import read_live_jobs
from hocket.graph import load_plan, load_step
from hocket.graph.format_rules import check_plan
from hocket.interop.chakra.chakra_export import chakra_bytes
from hocket.interop.chakra.chakra_step import import_chakra
from hocket.interop.kineto.kineto_step import import_kineto
from hocket.interop.perfetto import load_timeline
from hocket.network.file import load_network, network_document
from hocket.report.prediction_measured import load_points
from hocket.report.result_files import load_results
from tests.fuzz.shared_seeds import chakra_seeds, execution_trace_seeds, kineto_seeds
from tests.unit.cli.test_commands import GOLDEN, hocket
from tests.unit.cluster.traces.small_traces import SMALL, THROUGHPUTS, imported
from tests.unit.interop.kinds import Training, steps
from tests.unit.interop.synthetic_sharding import ShardedJob, Unit
from tests.unit.interop.traces import ddp, execution_trace
from tests.unit.interop.ways import compiled_autograd
from tests.unit.network.test_measured import some_file

FOUND = Path(__file__).with_name("found")
"""Inputs that a reader once failed on, by the reader's name: NAME/WHATEVER, or WHATEVER.gz compressed."""


@dataclass(frozen=True)
class Reader:
    """Something that reads a file: inputs that it takes, and how the file is called."""

    name: str
    seeds: tuple[bytes, ...]
    file: str
    read: Callable[[Path], object]


def _jobs_as_csv() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        document = {"format": "hocket.jobs/1", "jobs": [JOB, BATCHED | {"id": "j1"}]}
        write_jobs(decode_jobs(json.dumps(document).encode(), "f.json"), f"{folder}/f.csv")
        return Path(folder, "f.csv").read_bytes()


@cache
def readers() -> tuple[Reader, ...]:
    """Every reader; seeds are made here, and traces beside this tree are more of them where they are."""
    steps = _golden("*.step.json")
    plans = _golden("branches.*.plan.json")
    graph = load_step(GOLDEN / "branches.step.json")
    traces = [json.dumps(ddp().document()).encode(), json.dumps(ddp().document(), indent=1).encode()]
    traces += _of_jobs()
    timelines, rows = _results()
    jobs = (json.dumps({"format": "hocket.jobs/1", "jobs": [JOB, BATCHED | {"id": "j1"}]}).encode(),)
    return (
        Reader("step", (*steps, gzip.compress(steps[0]), zstandard.compress(steps[1])), "f.json", load_step),
        Reader("plan", plans, "f.json", lambda path: check_plan(load_plan(path), graph)),
        Reader("network", (json.dumps(network_document(some_file())).encode(),), "f.json", _network),
        Reader("jobs", jobs, "f.json", read_jobs),
        Reader("jobs-csv", (_jobs_as_csv(),), "f.csv", read_jobs),
        Reader(
            "live-jobs",
            (json.dumps({"format": "hocket.jobs/1", "jobs": [LIVE]}).encode(),),
            "f.json",
            read_live_jobs,
        ),
        Reader("timeline", timelines, "f.json", load_timeline),
        Reader("result", (*rows, *timelines), "f.json", lambda path: load_results([path])),
        Reader(
            "points",
            (b"workers,servers,throughput\n1,1,30.5\n2,1,55\n",),
            "f.csv",
            lambda path: load_points(path, [(1, 1), (2, 1)]),
        ),
        Reader("kineto", (*traces, *kineto_seeds()), "f.json", lambda path: import_kineto([path])),
        Reader(
            "execution-trace",
            (
                *(
                    json.dumps(execution_trace()).encode(),
                    json.dumps(execution_trace(function_ids=True)).encode(),
                ),
                *execution_trace_seeds(),
            ),
            "f.json",
            _execution_trace,
        ),
        Reader(
            "chakra",
            (
                *(
                    chakra_bytes(graph, None),
                    chakra_bytes(graph, load_plan(GOLDEN / "branches.ddp.plan.json")),
                ),
                *chakra_seeds(),
            ),
            "f.et",
            lambda path: import_chakra([path]),
        ),
        *(
            Reader(f"trace-{kind}", (text.encode(),), "f.csv", _importer(kind))
            for kind, text in SMALL.items()
        ),
        Reader("throughputs", (json.dumps(THROUGHPUTS).encode(),), "f.json", _throughputs),
    )


JOB = {
    **{"id": "j0", "model": "m", "gpus": 2, "iterations": 12, "arrival_s": 3.0, "forward_s": 0.025},
    **{"backward_s": 0.0374, "size_bytes": 99200000, "memory_bytes": 3213000000},
}
BATCHED = JOB | {
    "size_bytes": 100,
    "batches": [
        {"size_bytes": 60, "ready_s": 0.03, "due_s": 0.02},
        {"size_bytes": 40, "ready_s": 0.0624, "due_s": 0.0},
    ],
}
LIVE = JOB | {"command": ["python", "train.py"], "folder": "."}


def _golden(pattern: str) -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(GOLDEN.glob(pattern)))


def _of_jobs() -> tuple[bytes, ...]:
    """Traces of a job under FSDP2 with and without prefetch lists, and of a compiled backward pass."""
    root = Unit(name="", shapes=((11, 8), (11, 8)), reshards=False)
    units = (root, *(Unit(name=f"layers.{i}", shapes=((8, 8), (9, 8)), frozen=8 * i) for i in range(2)))
    jobs = (
        ShardedJob(units=units, ranks=2, a_us=20.0, b_us_per_byte=0.01, steps=2, ahead=ahead)
        for ahead in (None, 1)
    )
    sharded = [json.dumps(job.traces()[0][0].document()).encode() for job in jobs]
    return (*sharded, json.dumps(steps(Training(), compiled_autograd, 2)).encode())


def _results() -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """Timelines, and rows of steps and of a cluster."""
    step = str(GOLDEN / "branches.step.json")
    with tempfile.TemporaryDirectory() as folder:
        timeline, jobs = Path(folder, "t.json"), Path(folder, "jobs.json")
        jobs.write_text(json.dumps({"format": "hocket.jobs/1", "jobs": [JOB]}))
        network = ("--bandwidth", "1Mbit/s", "--iterations", "2", "--json")
        row = hocket("simulate", step, "--policy", "ddp", *network, "--timeline", str(timeline)).out
        cluster = ("--placement", "ff", "--policy", "srsf-1", "--servers", "2", "--gpus-per-server", "2")
        of_cluster = hocket("cluster", "simulate", str(jobs), *cluster, "--json").out
        return (timeline.read_bytes(),), (row.encode(), of_cluster.encode())


def _network(path: Path) -> object:
    return load_network(path, note=lambda _: None)


def _execution_trace(path: Path) -> object:
    trace = path.with_name("trace.json")
    trace.write_text(json.dumps(ddp().document()))
    return import_kineto([trace], execution_trace=path)


def _importer(kind: str) -> Callable[[Path], object]:
    return lambda path: imported(kind, path)


def _throughputs(path: Path) -> object:
    trace = path.with_name("trace")
    trace.write_text(SMALL["gavel"])
    return imported("gavel", trace, throughputs=path)
