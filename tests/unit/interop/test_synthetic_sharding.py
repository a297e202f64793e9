"""What made-up jobs under FSDP2 become: their units, prefetch lists and bytes, the network, and the step."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from hocket.document import convert_document
from hocket.errors import FormatError
from hocket.graph import StepGraph, load_plan, load_step
from hocket.graph.recorded_run import RecordedRun
from hocket.interop.kineto.kineto_step import import_kineto
from hocket.network import Network, NetworkFile
from hocket.predictor.recorded_check import check_recorded
from tests.unit.cli.test_commands import hocket, refused
from tests.unit.interop.synthetic_sharding import ShardedJob, Unit

Document = dict[str, Any]


def units(count: int = 6, **options: Any) -> tuple[Unit, ...]:
    """The root's unit, whose rows no number of ranks divides, and a row of unlike blocks."""
    root = Unit(name="", shapes=((1001, 64), (1001, 64)), forward_us=200, backward_us=400, reshards=False)
    blocks = (
        Unit(
            name=f"layers.{i}",
            shapes=((256, 64), (64, 256), (64 + 8 * i, 64)),
            forward_us=200 + 10 * i,
            backward_us=420,
            **options,
        )
        for i in range(count)
    )
    return (root, *blocks)


def job(**options: Any) -> ShardedJob:
    return ShardedJob(**{"units": units(), "ranks": 2, "a_us": 30.0, "b_us_per_byte": 1e-3, **options})


def written(
    made: ShardedJob, folder: Path, change: Callable[[Document], None] = lambda _: None
) -> list[Path]:
    paths = []
    for rank, trace in enumerate(made.traces()[0]):
        document = trace.document()
        document["distributedInfo"]["world_size"] = made.ranks
        change(document)
        paths.append(folder / f"job.rank{rank}.json")
        paths[-1].write_text(json.dumps(document))
    return paths


def recorded(graph: StepGraph) -> tuple[RecordedRun, Network]:
    run = graph.recorded
    assert run is not None
    assert run.network is not None
    fields = {name: value for name, value in run.network.items() if name != "format"}
    return run, convert_document(fields, NetworkFile, "recorded").network(run.workers)


def lists(count: int, ahead: int, *, forward: bool) -> tuple[tuple[int, ...], ...]:
    """What each of the root and its blocks gathers ahead where every block lists its neighbours."""
    later = [tuple(range(k + 1, min(count, k + 1 + ahead))) for k in range(1, count)]
    earlier = [tuple(range(k - 1, max(0, k - 1 - ahead), -1)) for k in range(1, count)]
    return ((), *(later if forward else earlier))


JOBS: dict[str, dict[str, Any]] = {
    "as torch gathers": {},
    "one ahead": {"ahead": 1},
    "two ahead": {"ahead": 2},
    "slow network": {"b_us_per_byte": 4e-3},
    "four ranks": {"ranks": 4, "b_us_per_byte": 3e-4, "a_us": 90.0},
    "kept": {"units": units(reshards=False)},
    "bf16 parameters": {"gathered_as": "BFloat16"},
    "frozen": {"units": units(frozen=4096), "ranks": 4},
}


@pytest.mark.parametrize("name", JOBS)
def test_a_sharded_job_comes_back(name: str, tmp_path: Path) -> None:
    made = job(**JOBS[name])
    step_us = made.traces()[1]
    graph, _ = import_kineto(written(made, tmp_path))
    run, network = recorded(graph)
    sharded = run.sharded
    assert sharded is not None
    size_of = dict(zip(graph.parameter_names, graph.parameter_bytes.tolist(), strict=True))
    item = 2 if made.gathered_as == "BFloat16" else 4
    assert [sum(size_of[name] for name in unit) for unit in sharded.units] == [
        item * (sum(map(math.prod, unit.shapes)) + unit.frozen) for unit in made.units
    ]
    assert [[name.rpartition(".linear")[0] for name in unit[:1]] for unit in sharded.units] == [
        [unit.name] for unit in made.units
    ]
    trained = dict(zip(graph.parameter_names, graph.produced.tolist(), strict=True))
    assert sum(trained.values()) == sum(len(unit.shapes) for unit in made.units)
    assert run.workers == made.ranks
    assert sharded.reshard_after_forward == tuple(unit.reshards for unit in made.units)
    count, ahead = len(made.units), made.ahead
    assert sharded.forward_prefetch == (None if ahead is None else lists(count, ahead, forward=True))
    assert sharded.backward_prefetch == (None if ahead is None else lists(count, ahead, forward=False))
    assert sharded.scattered_per_gathered == 4 / item
    alone = made.ranks - 1
    for size in (1e5, 5e6):
        took_us = 1e6 * alone * (network.startup_s + size * 8 / made.ranks / network.bandwidth_bps)
        assert took_us == pytest.approx(made.a_us + made.b_us_per_byte * size, rel=0.03)
    assert run.step_s * 1e6 == pytest.approx(step_us, rel=0.02)
    check = check_recorded(graph, network)
    assert check is not None
    assert check.predicted_s * 1e6 == pytest.approx(step_us, rel=0.02)


def test_without_shapes_a_unit_is_one_parameter(tmp_path: Path) -> None:
    made = job(shapes=False, ranks=4)
    graph, notes = import_kineto(written(made, tmp_path))
    run, network = recorded(graph)
    assert graph.parameter_names[0] == "parameters"
    assert graph.parameter_names[1] == "layers.0.parameters"
    assert graph.parameter_bytes.tolist() == [4 * made.gathered(unit) for unit in made.units]
    assert any("each unit is one parameter" in line and "record_shapes=True" in line for line in notes)
    check = check_recorded(graph, network)
    assert check is not None
    assert check.predicted_s == pytest.approx(run.step_s, rel=0.02)


def marked(events: Sequence[Document], name: str) -> list[Document]:
    return [event for event in events if str(event["name"]).startswith(name)]


def between_groups(document: Document) -> None:
    for event in document["traceEvents"]:
        if event.get("args", {}).get("Collective name") == "_reduce_scatter_base":
            event["args"]["Collective name"] = "allreduce"
            event["name"] = "ncclDevKernel_AllReduce(int)"
        if event["name"] == "c10d::_reduce_scatter_base_":
            event["name"] = "c10d::allreduce_"


def without_sizes(document: Document) -> None:
    for event in document["traceEvents"]:
        for key in ("In msg nelems", "Out msg nelems"):
            event.get("args", {}).pop(key, None)


def of_two_groups(document: Document) -> None:
    gathers = [e for e in document["traceEvents"] if "AllGather" in str(e["name"])]
    for event in gathers[::2]:
        event["args"]["Group size"] = 8


def without_marks(document: Document) -> None:
    for event in document["traceEvents"]:
        event["name"] = str(event["name"]).replace("FSDP::all_gather", "FSDP::gather")
        event["name"] = event["name"].replace("FSDP::post_backward_reduce", "FSDP::post_backward")


def twice(document: Document) -> None:
    for event in marked(document["traceEvents"], "FSDP::all_gather (layers.1)"):
        event["name"] = "FSDP::all_gather (layers.0)"


REFUSED: dict[str, tuple[Callable[[Document], None], str]] = {
    "HSDP": (
        between_groups,
        r"all-reduced between them \(HSDP\), .*trace the job with a mesh of one dimension",
    ),
    "no sizes": (
        without_sizes,
        "how large its collectives are is not in the trace; record it with PyTorch 2.3",
    ),
    "groups": (of_two_groups, r"between the same number of ranks \(2, 8\); .*a mesh of one dimension"),
    "no marks": (without_marks, "its collectives are not marked with their units"),
    "twice": (twice, r"a step gathers unit 'layers.0' 2 times in one pass.*; trace one pass a step"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_row_of_units_is_refused(name: str, tmp_path: Path) -> None:
    change, message = REFUSED[name]
    paths = written(job(steps=3), tmp_path, change)
    with pytest.raises(FormatError, match=rf"it is sharded by FSDP2.*{message}") as raised:
        import_kineto(paths)
    assert "\n" not in str(raised.value)
    graph, _ = import_kineto(paths, allow_no_gradients=True)
    assert graph.num_parameters == 0


def test_accumulated_passes_are_refused(tmp_path: Path) -> None:
    """Two marked steps, of which the first neither scatters nor updates, are one of the optimizer."""

    def accumulate(document: Document) -> None:
        begin, end = (
            (e["ts"], e["ts"] + e["dur"]) for e in marked(document["traceEvents"], "ProfilerStep#0")
        ).__next__()
        document["traceEvents"] = [
            event
            for event in document["traceEvents"]
            if not (begin <= event.get("ts", -1) < end)
            or (
                not str(event["name"]).startswith(
                    ("FSDP::post_backward", "c10d::_reduce_scatter", "Optimizer")
                )
                and "ReduceScatter" not in str(event["name"])
            )
        ]

    made = job(steps=2)
    with pytest.raises(FormatError, match=r"2 times in one pass.*gradients are accumulated; trace one pass"):
        import_kineto(written(made, tmp_path, accumulate))


def test_the_commands_take_a_sharded_step(tmp_path: Path) -> None:
    paths = list(map(str, written(job(b_us_per_byte=3e-3), tmp_path)))
    step, plan, network = (tmp_path / name for name in ("step.json", "plan.json", "network.json"))
    ran = hocket(
        "import", "kineto", *paths, "-o", str(step), "--plan-out", str(plan), "--network-out", str(network)
    )
    assert "7 units of FSDP2 between 2 ranks" in ran.err
    assert "--architecture fsdp" in ran.err
    made = load_plan(plan)
    graph = load_step(step)
    assert graph.recorded is not None
    assert graph.recorded.sharded is not None
    assert made.units == graph.recorded.sharded.units
    own = hocket("simulate", str(step), "--plan", str(plan), "--workers", "2", "--json")
    assert json.loads(own.out)["iteration_s"] == pytest.approx(graph.recorded.step_s, rel=0.02)
    said = hocket("predict", str(step), "--architecture", "fsdp", "--workers", "2,4", "--steps", "60")
    assert "Recorded: 2 ranks, " in said.out
    page = tmp_path / "page.html"
    told = hocket("diagnose", *paths, "-o", str(page), "--budget", "0.2s")
    assert "exposed all-gathers of parameters" in told.out
    assert "exposed reduce-scatters of gradients" in told.out
    assert "fsdp" in told.out
    assert "links like those between the 2 recorded ranks" in told.out
    assert "all-gathers of parameters" in page.read_text()
    assert "as fast as fsdp" in page.read_text()


def test_a_plan_is_written_of_ranks_alone(tmp_path: Path) -> None:
    paths = written(job(ranks=1, steps=3), tmp_path)
    out = tmp_path / "plan.json"
    ran = hocket(
        *("import", "kineto", str(paths[0]), "-o", str(tmp_path / "s.json"), "--plan-out", str(out)),
        "--allow-no-gradients",
    )
    assert "there is no plan to write; leave --plan-out out" in refused(ran)


def test_recorded_units_of_other_parameters_are_not_used(tmp_path: Path) -> None:
    step = tmp_path / "step.json"
    hocket("import", "kineto", *map(str, written(job(steps=3), tmp_path)), "-o", str(step))
    document = json.loads(step.read_text())
    document["recorded"]["sharded"]["units"][0] = ["nobody"]
    step.write_text(json.dumps(document))
    graph = load_step(step)
    _, network = recorded(graph)
    check = check_recorded(graph, network)
    assert check is not None
    assert check.predicted_s > 0
