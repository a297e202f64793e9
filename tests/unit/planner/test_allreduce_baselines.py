"""What frameworks do with AllReduce, by hand; DDP's buckets also against PyTorch's own function."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hocket.errors import HocketError
from hocket.graph import ParameterRow, Plan, StepGraph, check_plan
from hocket.network import Network
from hocket.planner.allreduce_baselines import ddp, horovod, wfbp
from tests.strategies import operation, parameter, step

MIB = 2**20
# A byte costs 1 ms between two workers, and nothing else does.
NETWORK = Network(bandwidth_bps=8e3, num_workers=2, pattern="ring")


def reductions(plan: Plan, graph: StepGraph) -> list[str]:
    check_plan(plan, graph)
    assert plan.architecture == "allreduce"
    assert all(r.window == "backward" and r.chunks == 1 for r in plan.reductions)
    assert plan.compute_order is None
    return [" ".join(r.parameters) for r in plan.reductions]


def backward(sizes: list[int], ready: list[float]) -> StepGraph:
    """Parameters p0, p1, ... whose gradients are complete one after the other, at ``ready``."""
    rows = [parameter(f"p{i}", size) for i, size in enumerate(sizes)]
    durations = [b - a for a, b in zip([0.0, *ready], ready, strict=False)]
    return step(
        rows,
        [
            operation(f"o{i}", [duration, duration + i], produces=[f"p{i}"], phase="backward")
            for i, duration in enumerate(durations)
        ],
    )


LAYERS = step(
    [parameter("w1", 8), parameter("frozen", 8), parameter("w2", 8), parameter("b2", 8)],
    [
        operation("forward", reads=["w1", "frozen", "w2", "b2"]),
        operation("backward 2", inputs=["forward"], produces=["b2", "w2"], phase="backward"),
        operation("backward 1", inputs=["backward 2"], produces=["w1"], phase="backward"),
    ],
)


def test_wfbp_reduces_each_gradient_as_it_appears() -> None:
    plan = wfbp(LAYERS, NETWORK)
    assert reductions(plan, LAYERS) == ["w2", "b2", "w1"]
    assert (plan.policy, plan.issue) == ("wfbp", "ready")


def typed(sizes: list[int], dtypes: list[str]) -> StepGraph:
    rows = [
        ParameterRow(f"p{i}", [size // 4], dtype, size)
        for i, (size, dtype) in enumerate(zip(sizes, dtypes, strict=True))
    ]
    return step(rows, [operation("o", produces=[row.name for row in rows])])


def test_ddp_closes_its_first_bucket_at_1_mib_and_others_at_25() -> None:
    sizes = [4, 30 * MIB, 10 * MIB, 20 * MIB, MIB // 2, MIB // 2]
    graph = typed(sizes, ["float32"] * 6)
    plan = ddp(graph, NETWORK)
    # Half and half are just 1 MiB; 20 and 10 pass 25; 30 does alone; the rest stays open until the end.
    assert reductions(plan, graph) == ["p5 p4", "p3 p2", "p1", "p0"]
    assert (plan.policy, plan.issue) == ("ddp", "listed")


def test_ddp_buckets_of_another_size() -> None:
    graph = typed([MIB, 3 * MIB, MIB, MIB, MIB // 2, MIB // 2], ["float32"] * 6)
    assert reductions(ddp(graph, NETWORK, MIB), graph) == ["p5 p4", "p3", "p2", "p1", "p0"]
    # The first one closes at 1 MiB all the same; then 1, 1 and 3 are 5.
    assert reductions(ddp(graph, NETWORK, 5 * MIB), graph) == ["p5 p4", "p3 p2 p1", "p0"]
    assert reductions(ddp(graph, NETWORK, MIB // 2), graph) == ["p5", "p4", "p3", "p2", "p1", "p0"]


def test_ddp_buckets_one_type_each_and_leaves_out_what_is_not_trained() -> None:
    graph = typed([MIB, MIB, MIB, MIB, MIB], ["float32", "bfloat16", "float32", "float32", "bfloat16"])
    # The first bucket of each type closes at 1 MiB.
    assert reductions(ddp(graph, NETWORK), graph) == ["p4", "p3", "p2 p0", "p1"]
    assert reductions(ddp(LAYERS, NETWORK), LAYERS) == ["b2 w2 w1"]


def test_ddp_buckets_are_pytorchs() -> None:
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available():
        pytest.skip("PyTorch without torch.distributed")
    sizes = [int(MIB * x) // 4 * 4 for x in (7, 0.3, 26, 13, 3, 19, 22, 0.1, 15, 0.6, 5, 12, 0.2, 0.2)]
    dtypes = ["float32", "float32", "float64", "float32", "float64", "float64", "float32"] * 2
    tensors = [
        torch.empty(size // 8 if dtype == "float64" else size // 4, dtype=getattr(torch, dtype))
        for size, dtype in zip(sizes, dtypes, strict=True)
    ]
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    graph = typed(sizes, dtypes)
    launched = tensors[::-1]
    buckets, _ = torch.distributed._compute_bucket_assignment_by_size(launched, [MIB, 25 * MIB])
    expected = {" ".join(f"p{len(sizes) - 1 - i}" for i in bucket) for bucket in buckets}
    assert set(reductions(ddp(graph, NETWORK), graph)) == expected
    assert len(expected) > 4


def test_horovod_without_fusion() -> None:
    plan = horovod(LAYERS, NETWORK)
    assert reductions(plan, LAYERS) == ["w2", "b2", "w1"]
    assert (plan.policy, plan.issue) == ("horovod", "ready")


def test_horovod_fuses_what_is_ready_when_the_network_becomes_free() -> None:
    graph = backward([3000, 1000, 1000, 1000, 1000, 500], [1.0, 2.0, 3.0, 4.0, 4.5, 12.0])
    # p0 travels from 1 to 4. By then p1, p2 and p3 are ready, but not p4. That is there at 7, when they have
    # been reduced, and on its way until 8; p5 appears at 12.
    assert reductions(horovod(graph, NETWORK, 8000), graph) == ["p0", "p1 p2 p3", "p4", "p5"]
    # Ready at 4, p4 travels with the others, if the buffer holds it.
    earlier = backward([3000, 1000, 1000, 1000, 1000, 500], [1.0, 2.0, 3.0, 3.5, 4.0, 12.0])
    assert reductions(horovod(earlier, NETWORK, 8000), earlier) == ["p0", "p1 p2 p3 p4", "p5"]
    assert reductions(horovod(earlier, NETWORK, 3999), earlier) == ["p0", "p1 p2 p3", "p4", "p5"]


def test_horovod_fuses_one_type() -> None:
    graph = typed([8, 8, 8, 8], ["float32", "float32", "float16", "float32"])
    assert reductions(horovod(graph, NETWORK, 1000), graph) == ["p0 p1", "p2", "p3"]


@pytest.mark.parametrize("fusion_bytes", [1, 1000, 2999])
def test_horovod_sends_alone_what_the_buffer_does_not_hold(fusion_bytes: int) -> None:
    graph = backward([500, 3000, 400, 100], [1.0, 1.0, 1.0, 1.0])
    alone = fusion_bytes < 500
    assert reductions(horovod(graph, NETWORK, fusion_bytes), graph) == [
        "p0",
        "p1",
        *(["p2", "p3"] if alone else ["p2 p3"]),
    ]


def test_horovod_refuses_a_buffer_below_nothing() -> None:
    with pytest.raises(HocketError) as refusal:
        horovod(backward([3000], [1.0]), NETWORK, -1)
    assert str(refusal.value) == "fusion -1 B is below 0; give e.g. 64000000, or 0 for none"


@pytest.mark.parametrize("policy", [wfbp, ddp, horovod, lambda g, n: horovod(g, n, 1000)])
def test_a_step_without_gradients_reduces_nothing(policy: Callable[[StepGraph, Network], Plan]) -> None:
    graph = step([parameter("w", 8)], [operation("forward", reads=["w"])])
    assert reductions(policy(graph, NETWORK), graph) == []
