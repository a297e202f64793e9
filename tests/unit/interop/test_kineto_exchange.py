"""A table of the ways to train, each of whose traces is imported right or refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import hocket
from hocket.errors import FormatError
from hocket.graph import Phase
from hocket.network import Network
from tests.strategies import examples
from tests.unit.interop.kinds import (
    DDP,
    ITEM_BYTES,
    MIB,
    SIDE,
    Training,
    buckets,
    by_hand,
    steps,
    usual,
)
from tests.unit.interop.test_kineto import imported
from tests.unit.interop.traces import MAIN
from tests.unit.interop.ways import (
    alternating,
    bare_thread,
    captured,
    compiled,
    cut,
    evaluated_between,
    finds_unused,
    fsdp,
    fully_sharded,
    generative,
    horovod_kernels,
    hybrid_fsdp,
    in_closure,
    in_marks,
    in_turn,
    local,
    megatron,
    micro_batches,
    mixture,
    on_host,
    passes_behind,
    piped,
    powerful,
    retained,
    scaled,
    sharded_in_groups,
    tensor_parallel,
    towers,
    two_optimizers,
    unmarked,
    updated_in_hooks,
    with_small,
    zero_after,
    zero_named,
)

Make = Callable[[], dict[str, Any]]


# name, trace, steps, parameters, bytes, a note
IMPORTED: list[tuple[str, Make, int, int, int, str]] = [
    ("ddp", lambda: steps(Training(), usual), 3, 4, MIB, "2 all-reduces a step, 0.06 MiB"),
    ("fused AdamW", lambda: steps(Training(), lambda t: usual(t, DDP, "AdamW")), 3, 4, MIB, "sizes from"),
    ("without marks", lambda: unmarked(usual), 3, 4, MIB, "2 all-reduces a step"),
    (
        "sizes unknown",
        lambda: steps(Training(sizes=False), usual),
        3,
        4,
        MIB,
        "all-reduces a step, of unknown",
    ),
    (
        "shapes unknown",
        lambda: steps(Training(shapes=False), usual),
        3,
        2,
        MIB,
        "each all-reduce is one param",
    ),
    (
        "coalesced",
        lambda: steps(Training(sizes=False), lambda t: usual(t, buckets(0, around="nccl:coalesced"))),
        *(3, 4, MIB, "1 all-reduce a step, of unknown size"),
    ),
    (
        "bf16 hook",
        lambda: steps(Training(), lambda t: usual(t, buckets(2, 0, dtype="BFloat16"))),
        *(3, 4, MIB // 2, "travel in 0.03 MiB (50%), as bfloat16"),
    ),
    (
        "two models that share a backward pass",
        lambda: steps(
            Training(),
            lambda t: usual(t, lambda t, i, _: t.collective("allreduce", 2 * SIDE) if i in (1, 0) else None),
        ),
        *(3, 4, MIB, "2 all-reduces a step"),
    ),
    ("by hand", lambda: steps(Training(), by_hand), 3, 4, MIB, "4 all-reduces a step, 0.06 MiB"),
    (
        "by hand beside a flag",
        lambda: steps(Training(), lambda t: by_hand(t, lambda t: t.collective("allreduce", 1, thread=MAIN))),
        *(3, 4, MIB, "1 all_reduce (4 bytes, group default_pg) a step"),
    ),
    (
        "accumulated, marked each",
        lambda: in_marks(micro_batches),
        3,
        4,
        MIB,
        "4 marked steps that accumulate",
    ),
    (
        "accumulated, one step",
        lambda: in_marks(micro_batches, 1),
        *(1, 4, MIB, "the first of which is taken to be in the trace"),
    ),
    (
        "accumulated, marked once",
        lambda: steps(Training(), lambda t: micro_batches(t, mark_each=False)),
        *(3, 4, MIB, "4 backward passes a step"),
    ),
    ("evaluation between", lambda: in_marks(evaluated_between), 3, 4, MIB, "3 of 6 steps run the same"),
    ("closure", lambda: steps(Training(), in_closure), 3, 4, MIB, "2 all-reduces a step"),
    ("closure without marks", lambda: unmarked(in_closure), 3, 4, MIB, "2 all-reduces a step"),
    (
        "tensor parallel",
        lambda: steps(Training(), tensor_parallel),
        3,
        4,
        MIB,
        "2 all_reduces (0.25 MiB, group tp)",
    ),
    ("small ones beside", lambda: steps(Training(), with_small), 3, 4, MIB, "3 all_reduces (12 bytes"),
    ("pipeline", lambda: steps(Training(), piped), 3, 4, MIB, "1 send_recv (0.02 MiB"),
    ("cut in a step", lambda: cut(steps(Training(), usual, 4)), 3, 4, MIB, "left out: ProfilerStep#3"),
    (
        "unused parameters",
        lambda: steps(Training(), finds_unused),
        *(3, 2, MIB * 5 // 4, "gradients have 0.06 MiB and travel in 0.08 MiB (125%)"),
    ),
    ("a step that GradScaler skips", lambda: in_marks(scaled, 1), 4, 4, MIB, "left out: ProfilerStep#2"),
    ("optimizers in hooks", lambda: steps(Training(), updated_in_hooks), 3, 4, MIB, "4 all-reduces a step"),
    ("two optimizers", lambda: steps(Training(), two_optimizers), 3, 4, MIB, "3 steps of"),
    ("two optimizers without marks", lambda: unmarked(two_optimizers), 3, 4, MIB, "3 steps of"),
    ("passes behind", lambda: steps(Training(), passes_behind), 3, 4, MIB, "2 backward passes a step acc"),
    ("two losses", lambda: steps(Training(), retained), 3, 4, MIB, "2 backward passes a step acc"),
    ("one GPU", lambda: steps(Training(), lambda t: usual(t, None)), 3, 4, MIB, "4 parameters, sizes from"),
]

REFUSED: list[tuple[str, Make, str]] = [
    (
        "FSDP",
        lambda: steps(Training(), fsdp),
        r"is sharded by FSDP1 .* holds 4 all_gathers \(0.06 MiB.* 4 reduce_scatters \(0.06 MiB",
    ),
    (
        "FSDP in groups",
        lambda: steps(Training(), hybrid_fsdp),
        "carry 0.03 MiB and its 4 gradients",
    ),
    (
        "FSDP, no shapes",
        lambda: steps(Training(shapes=False), fsdp),
        r"is sharded by FSDP1 .*with fully_shard \(FSDP2\), .*on one GPU; or give",
    ),
    (
        "Megatron's distributed optimizer",
        lambda: steps(Training(), megatron),
        r"reduce_scatter, by Megatron's distributed optimizer, .*1 reduce_scatter \(0.06 MiB",
    ),
    (
        "ZeroRedundancyOptimizer",
        lambda: steps(Training(), zero_named),
        r"beside its 2 all-reduces .*1 broadcast \(0.06 MiB.*by ZeroRedundancyOptimizer",
    ),
    (
        "Horovod's kernels",
        lambda: steps(Training(), horovod_kernels),
        r"holds 1 all_reduce \(of unknown size\), .*\(by Horovod\)",
    ),
    (
        "sharded",
        lambda: steps(Training(), fully_sharded),
        "exchanged by reduce_scatter, as sharded .*4 reduce_sc",
    ),
    (
        "experts",
        lambda: steps(Training(), mixture),
        "carry 0.03 MiB and its 4 gradients have 0.06 MiB: a hook",
    ),
    (
        "PowerSGD",
        lambda: steps(Training(), powerful),
        "carry 8192 bytes and its 4 gradients have 0.06 MiB: a hook",
    ),
    (
        "sent twice",
        lambda: steps(Training(), lambda t: usual(t, lambda t, i, _: t.collective("allreduce", 2 * SIDE))),
        "carry 0.12 MiB and its 4 gradients have 0.06 MiB: something else is all-reduced",
    ),
    (
        "ZeRO beside DDP",
        lambda: steps(Training(), zero_after),
        r"beside its 2 all-reduces .*1 broadcast \(0.06 MiB",
    ),
    ("gloo", lambda: steps(Training(), on_host), "calls c10d::allreduce_, and no kernel of a collective"),
    (
        "Horovod",
        lambda: steps(Training(), bare_thread),
        r"holds 1 all_reduce \(of unknown size\), which may exchange .* thread of its own, as Horovod",
    ),
    (
        "CUDA graph",
        lambda: steps(Training(), captured),
        "3 of 4 operations of a step were launched by a CUDA graph",
    ),
    (
        "compiled",
        lambda: steps(Training(), compiled),
        r"no AccumulateGrad; its 1 all_reduce \(0.06 MiB.*cannot be",
    ),
    ("forward only", lambda: steps(Training(), Training.forward), "hold no backward pass"),
    (
        "no shapes",
        lambda: steps(Training(shapes=False), lambda t: usual(t, None)),
        "4 gradients of a step are comp",
    ),
    ("by hand, no shapes", lambda: steps(Training(shapes=False), by_hand), "no parameters: 4 gradients"),
    (
        "accumulated and reduced each time",
        lambda: steps(Training(), lambda t: micro_batches(t, synced=True, mark_each=False)),
        "all-reduced before the last of the 4 backward passes .*no_sync",
    ),
    (
        "accumulated and reduced each time, marked each",
        lambda: in_marks(lambda t: micro_batches(t, synced=True)),
        "ProfilerStep#3 updates parameters, and most steps, such as ProfilerStep#0, do not",
    ),
    (
        "micro-batches without their optimizer",
        lambda: steps(Training(), lambda t: (t.forward(), t.backward())[0]),
        "neither exchanges gradients nor updates parameters, as micro-batches do",
    ),
    (
        "two models in a step",
        lambda: steps(Training(), generative),
        "2 backward passes with an optimizer step behind",
    ),
    (
        "local SGD",
        lambda: in_marks(local),
        "ProfilerStep#2 all-reduces 0.06 MiB .* and most steps, such as Prof.* 0 bytes",
    ),
    (
        "gradients without bytes",
        lambda: steps(Training(layers=(0, 0)), lambda t: usual(t, buckets(0))),
        "the 2 gradients of a step have 0 bytes",
    ),
    (
        "towers",
        lambda: steps(Training(), towers),
        "the 2 backward passes of a step complete different gradients",
    ),
    ("sharded in groups", lambda: steps(Training(), sharded_in_groups), "carry 0.03 MiB and its 4 gradients"),
    (
        "sharded in groups, no shapes",
        lambda: steps(Training(shapes=False), sharded_in_groups),
        r"beside its 4 all-reduces of gradients a step holds 4 reduce_scatters \(0.06 MiB, group shard\)",
    ),
    (
        "no end of a step",
        lambda: unmarked(updated_in_hooks),
        "3 backward passes are in it, and neither profiler.step",
    ),
    (
        "models in turn, without marks",
        lambda: unmarked(in_turn),
        "all-reduces 0.06 MiB of gradients and most",
    ),
    ("models in turn", lambda: in_marks(alternating), "all-reduces 0.06 MiB of gradients and most"),
]


@pytest.mark.parametrize(
    ("make", "num_steps", "parameters", "size", "note"),
    [row[1:] for row in IMPORTED],
    ids=[r[0] for r in IMPORTED],
)
def test_what_is_accounted_for_is_imported(
    make: Make, num_steps: int, parameters: int, size: int, note: str, tmp_path: Path
) -> None:
    graph, notes = imported(tmp_path, make())
    assert (graph.num_samples, graph.num_parameters, graph.parameter_bytes.sum()) == (
        num_steps,
        parameters,
        size,
    )
    assert any(note in line for line in notes), notes
    assert graph.durations_s.min() >= 0
    assert graph.durations_s.sum(axis=0).min() > 0
    # Nothing of the exchange is left among what is computed, but what a note names.
    left = [name for name in graph.operation_names if name.endswith("all_reduce")]
    assert all(any("all_reduce" in line for line in notes) for _ in left)
    row = hocket.simulate(
        graph, hocket.plan(graph, Network(num_workers=2), "ddp"), Network(num_workers=2)
    ).row
    assert row.communication_s > 0


@pytest.mark.parametrize(("make", "message"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_is_not_is_refused_in_one_line(make: Make, message: str, tmp_path: Path) -> None:
    with pytest.raises(FormatError, match=message) as refused:
        imported(tmp_path, make())
    line = str(refused.value)
    assert line.startswith(str(tmp_path))
    assert "\n" not in line
    assert ";" in line  # the fix


@pytest.mark.parametrize("make", [row[1] for row in REFUSED[:12]], ids=[row[0] for row in REFUSED[:12]])
def test_it_can_be_looked_at_all_the_same(make: Make, tmp_path: Path) -> None:
    graph, notes = imported(tmp_path, make(), allow_no_gradients=True)
    assert graph.num_parameters == 0
    assert graph.num_samples == 3
    assert any("without parameters, so that nothing can be planned: " in note for note in notes)


@pytest.mark.parametrize("make", [row[1] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_shapes_are_advised_only_where_they_were_not_recorded(make: Make, tmp_path: Path) -> None:
    document = make()
    recorded = any(e.get("args", {}).get("Input Dims") for e in document["traceEvents"])
    with pytest.raises(FormatError) as refused:
        imported(tmp_path, document)
    assert not recorded or "record_shapes" not in str(refused.value)


def test_a_closures_operations_are_those_of_its_passes(tmp_path: Path) -> None:
    graph, _ = imported(tmp_path, steps(Training(), in_closure))
    phases = [Phase(phase).name for phase in graph.phases]
    assert phases == ["FORWARD"] * 4 + ["BACKWARD"] * 4 + ["UPDATE"] * 4


def test_examples_count_once_for_each_forward_pass(tmp_path: Path) -> None:
    assert imported(tmp_path, steps(Training(), passes_behind)).graph.batch_size == 64
    assert imported(tmp_path, steps(Training(), retained)).graph.batch_size == 32


def test_a_recorded_batch_size_is_that_of_all_micro_batches(tmp_path: Path) -> None:
    document = {**in_marks(micro_batches), "batch_size": 64}
    graph, notes = imported(tmp_path, document)
    assert graph.batch_size == 64
    assert "batch size 64: as the trace says, of 4 micro-batches together" in notes


def test_steps_that_accumulate_are_read_and_timed_as_a_whole(tmp_path: Path) -> None:
    graph, _ = imported(tmp_path, in_marks(micro_batches))
    assert graph.batch_size == 4 * 32
    assert [int((graph.phases == phase).sum()) for phase in (0, 1, 2)] == [16, 16, 4]
    reads = graph.reads.transpose(graph.num_parameters)
    assert [int((graph.phases[reads.row(p)] == Phase.FORWARD).sum()) for p in range(4)] == [4] * 4
    busy_s = 16 * 100e-6 + 16 * 200e-6 + 80e-6
    assert graph.durations_s[:, 1].sum() >= busy_s * (1 - 1e-9)


def test_ranks_with_other_numbers_of_steps_share_those_that_both_have(tmp_path: Path) -> None:
    ranks = [steps(Training(0), usual, 4), steps(Training(1), usual, 3)]
    graph, notes = imported(tmp_path, *ranks)
    assert graph.num_samples == 6
    assert any("left out, since not every rank has them: ProfilerStep#3" in note for note in notes)


def test_steps_that_take_no_time_are_refused(tmp_path: Path) -> None:
    document = steps(Training(), lambda t: usual(t, None), 1)
    begun = min(e["ts"] for e in document["traceEvents"] if e["name"].startswith("Prof"))
    for event in document["traceEvents"]:
        if event.get("cat") == "kernel":
            event["ts"], event["dur"] = begun, 0.0
    with pytest.raises(FormatError, match="take no time"):
        imported(tmp_path, document)


@given(data=st.data())
@examples(60)
def test_any_way_to_exchange_all_gradients_is_imported_with_their_bytes(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    layers = data.draw(st.lists(st.integers(100, 5000), min_size=1, max_size=6))
    ends = sorted({0, *data.draw(st.lists(st.integers(0, len(layers) - 1), max_size=3))})
    dtype = data.draw(st.sampled_from(["Float", "BFloat16"]))
    hand, sizes = data.draw(st.booleans()), data.draw(st.booleans())
    passes, count = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    mark_each, flags = data.draw(st.booleans()), data.draw(st.integers(0, 2))
    by_hooks = not hand
    trace = Training(layers=layers, sizes=sizes or hand)

    def one(trace: Training) -> None:
        begun = trace.at
        trace.collective("broadcast", 16, thread=MAIN)
        for k in range(passes):
            last = k == passes - 1
            trace.forward()
            trace.backward(buckets(*ends, dtype=dtype) if last and by_hooks else None)
            if last and hand:
                for size in layers:
                    trace.collective("allreduce", size, thread=MAIN)
            if last:
                for _ in range(flags):
                    trace.collective("allreduce", 1, thread=MAIN, us=1, said=True)
                trace.update()
            if mark_each or last:
                trace.mark(begun)
                begun = trace.at

    for _ in range(count):
        one(trace)
    graph, notes = imported(tmp_path_factory.mktemp("traces"), trace.document())
    wire = 4 if hand or not sizes else ITEM_BYTES[dtype]
    assert sorted(graph.parameter_bytes.tolist()) == sorted(wire * size for size in layers)
    assert graph.num_samples == count, notes
    assert graph.produced.all()
