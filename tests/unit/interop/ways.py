"""Ways to train, each a step or a few of them, and what profilers leave out of some."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.unit.interop.kinds import DDP, LAYERS, SIDE, Training, buckets, steps, usual
from tests.unit.interop.traces import ENGINE, MAIN, NODE


def micro_batches(trace: Training, *, synced: bool = False, passes: int = 4, mark_each: bool = True) -> None:
    """An optimizer's step of several backward passes; the last or, if ``synced``, each reduces gradients."""
    for k in range(passes):
        begun, last = trace.at, k == passes - 1
        trace.forward()
        trace.backward(DDP if synced or last else None)
        if last:
            trace.update()
        if mark_each:
            trace.mark(begun)


def in_marks(one: Callable[[Training], None], count: int = 3, **options: Any) -> dict[str, Any]:
    trace = Training(**options)
    for _ in range(count):
        one(trace)
    return trace.document()


def evaluated_between(trace: Training) -> None:
    """A training step, and a marked step that only evaluates."""
    begun = trace.at
    usual(trace)
    trace.mark(begun)
    begun = trace.at
    trace.forward()
    trace.mark(begun)


def generative(trace: Training) -> None:
    """Two models in turn, each with its optimizer, in one marked step."""
    usual(trace)
    usual(trace)


def in_closure(trace: Training) -> None:
    """All of a step inside of the optimizer's, as Lightning runs it."""
    begun = trace.at
    trace.forward()
    trace.backward(DDP)
    trace.host("aten::_foreach_add_", trace.at, trace.at + 5)
    trace.run("multi_tensor_apply", us=80)
    trace.host("Optimizer.step#SGD.step", begun - 1, trace.at + 3, cat="user_annotation")
    trace.at += 5


def fully_sharded(trace: Training) -> None:
    trace.collective("allgather", sum(LAYERS), thread=MAIN)
    trace.forward()
    trace.backward(lambda t, i, _: t.collective("reduce_scatter", t.layers[i]))
    trace.update()


def fsdp(trace: Training) -> None:
    """FSDP: a layer's parameters are gathered before each of its passes, its gradient is scattered after."""
    for i in range(len(trace.layers)):
        begun = trace.at
        trace.at += 1
        trace.collective("allgather", trace.layers[i], thread=MAIN)
        trace.host("FullyShardedDataParallel._pre_forward", begun, trace.at, cat="user_annotation")
        trace.at += 1
    trace.forward()
    trace.backward(lambda t, i, _: t.collective("reduce_scatter", t.layers[i]))
    trace.update()


def hybrid_fsdp(trace: Training) -> None:
    """FSDP that scatters among some ranks and all-reduces what is left among the others."""
    trace.host("FSDP::pre_forward", trace.at, trace.at + 2, cat="user_annotation")
    trace.at += 3
    sharded_in_groups(trace)


def megatron(trace: Training) -> None:
    """Megatron's distributed optimizer: gradients are scattered, updated parameters gathered."""
    trace.forward()
    trace.backward()
    trace.collective("reduce_scatter", sum(trace.layers), thread=MAIN, group="DATA_PARALLEL_GROUP_WITH_CP")
    trace.update()
    trace.collective("allgather", sum(trace.layers), thread=MAIN, group="DATA_PARALLEL_GROUP_WITH_CP")


def zero_named(trace: Training) -> None:
    """ZeroRedundancyOptimizer: ranks update a part each and broadcast it."""
    usual(trace, DDP, "ZeroRedundancyOptimizer")
    trace.collective("broadcast", sum(LAYERS), thread=MAIN)


def horovod_kernels(trace: Training) -> None:
    """Horovod: its kernel copies gradients together, and its thread all-reduces them."""
    trace.forward()
    trace.backward()
    for name in ("void horovod::common::batched_memcpy_k<float>(int)", "ncclDevKernel_AllReduce(int)"):
        trace.launch(trace.at, trace.busy, trace.busy + 300, thread=77, stream=21, name=name)
        trace.busy += 300
    trace.update()


def mixture(trace: Training) -> None:
    """Experts, of which two layers are, exchange activations and keep their gradients."""
    trace.collective("all_to_all", SIDE, thread=MAIN)
    trace.forward()
    trace.backward(lambda t, i, _: t.collective("allreduce", 2 * SIDE) if i == 0 else None)
    trace.update()


def tensor_parallel(trace: Training) -> None:
    """Activations travel in the forward pass and in nodes of autograd; gradients as usual."""
    trace.collective("allreduce", 8 * SIDE, thread=MAIN, group="tp")
    trace.forward()
    begun = trace.at
    trace.at += 1
    trace.collective("allreduce", 8 * SIDE, group="tp")
    trace.host(NODE + "Reduce", begun, trace.at, ENGINE)
    trace.at += 1
    trace.backward(DDP)
    trace.update()


def with_small(trace: Training) -> None:
    """Buffers before, a flag, a norm and a barrier behind: as GradScaler, clipping and logging send them."""
    trace.collective("broadcast", 64, thread=MAIN)
    trace.forward()
    trace.backward(DDP)
    for _ in range(3):
        trace.collective("allreduce", 1, thread=MAIN, us=5)
    trace.update()


def zero_after(trace: Training) -> None:
    trace.forward()
    trace.backward(DDP)
    trace.update()
    trace.collective("broadcast", sum(LAYERS), thread=MAIN)


def on_host(trace: Training) -> None:
    """gloo: the call is in the hook, and only a copy is on the GPU."""
    trace.forward()

    def hook(t: Training, layer: int, _: float) -> None:
        if layer == 0:
            t.host("c10d::allreduce_", t.at, t.at + 4, ENGINE)
            t.run("copy", thread=ENGINE, us=5)

    trace.backward(hook)
    trace.update()


def bare_thread(trace: Training) -> None:
    """Horovod: a thread without operators launches, and says nothing of sizes."""
    trace.forward()
    trace.backward()
    trace.launch(
        trace.at, trace.busy, trace.busy + 300, thread=77, stream=21, name="ncclDevKernel_AllReduce(int)"
    )
    trace.busy += 300
    trace.update()


def captured(trace: Training) -> None:
    """A CUDA graph: one launch for all."""
    correlation = trace.call("cudaGraphLaunch", trace.at, trace.at + 3)
    for name in ("gemm", "gemm", "ncclDevKernel_AllReduce_Sum(int)"):
        args = {"stream": 7, "correlation": correlation}
        trace.host(name, trace.busy, trace.busy + 100, 7, "kernel", **args)
        trace.busy += 100
    trace.at += 5
    trace.update()


def compiled(trace: Training) -> None:
    """Compiled autograd: no AccumulateGrad."""
    trace.forward()
    trace.host(NODE + "CompiledFunctionBackward", trace.at, trace.at + 6, ENGINE)
    trace.run("gemm", thread=ENGINE)
    trace.at += 5
    trace.collective("allreduce", sum(LAYERS), around="_c10d_functional::all_reduce")
    trace.update()


def local(trace: Training) -> None:
    """Local SGD: gradients are averaged in every third step."""
    for k in range(3):
        begun = trace.at
        usual(trace, DDP if k == 2 else None)
        trace.mark(begun)


def alternating(trace: Training) -> None:
    """Two models in turn, one marked step each."""
    for hook in (DDP, None):
        begun = trace.at
        usual(trace, hook)
        trace.mark(begun)


def in_turn(trace: Training) -> None:
    """Two models in turn, each with its own optimizer."""
    usual(trace)
    trace.layers = LAYERS[:2]
    usual(trace, buckets(0))
    trace.layers = LAYERS


def powerful(trace: Training) -> None:
    """PowerSGD: what travels is less than the gradients."""
    usual(trace, lambda t, i, _: t.collective("allreduce", SIDE // 8))


def piped(trace: Training) -> None:
    trace.collective("recv", SIDE, thread=MAIN)
    usual(trace)


def unmarked(one: Callable[[Training], None], count: int = 3) -> dict[str, Any]:
    return steps(Training(), one, count, marked=False)


def cut(document: dict[str, Any]) -> dict[str, Any]:
    """The trace without the second half of its last step."""
    marks = sorted(e["ts"] for e in document["traceEvents"] if e["name"].startswith("ProfilerStep"))
    until = marks[-1] + (marks[-1] - marks[-2]) * 0.02
    events = [
        e for e in document["traceEvents"] if e.get("cat") in (None, "user_annotation") or e["ts"] < until
    ]
    return {**document, "traceEvents": events}


def finds_unused(trace: Training) -> None:
    """DDP reduces what was not used, too, and a map of what was."""
    trace.forward()

    def hook(t: Training, layer: int, _: float) -> None:
        if layer in (2, 0):
            t.collective("allreduce", (3 if layer == 0 else 2) * SIDE)
        if layer == 0:
            t.collective("allreduce", 5, dtype="Int", us=3)

    trace.backward(hook)
    trace.update()


def scaled(trace: Training) -> None:
    """GradScaler: one step of five has gradients that are not finite, and updates nothing."""
    for k in range(5):
        begun = trace.at
        trace.forward()
        trace.backward(DDP)
        if k != 2:
            trace.update()
        trace.mark(begun)


def updated_in_hooks(trace: Training) -> None:
    """Optimizers that run as gradients are complete."""
    trace.forward()

    def hook(t: Training, layer: int, _: float) -> None:
        t.collective("allreduce", t.layers[layer])
        begun = t.at
        t.at += 1
        t.run("add", thread=ENGINE, us=10)
        t.host("Optimizer.step#SGD.step", begun, t.at, ENGINE, cat="user_annotation")
        t.at += 2

    trace.backward(hook)


def two_optimizers(trace: Training) -> None:
    usual(trace, DDP, "Muon")
    trace.update("AdamW")


def passes_behind(trace: Training) -> None:
    """Two forward passes before their backward passes, as in a pipeline."""
    trace.forward()
    first = trace.sequence
    trace.forward()
    trace.sequence = first
    trace.backward()
    trace.sequence = 2 * first - (first - len(LAYERS))
    trace.backward(DDP)
    trace.update()


def retained(trace: Training) -> None:
    """One graph that two losses go through."""
    trace.forward()
    trace.backward()
    trace.backward(DDP)
    trace.update()


def sharded_in_groups(trace: Training) -> None:
    """Scattered among some, reduced among the others."""
    trace.forward()

    def hook(t: Training, layer: int, _: float) -> None:
        t.collective("reduce_scatter", t.layers[layer], group="shard")
        t.collective("allreduce", t.layers[layer] // 2, group="replicate")

    trace.backward(hook)
    trace.update()


def towers(trace: Training) -> None:
    """Two parts that are trained one after the other, and updated together."""
    for layers in (LAYERS[:1], (5000, 6000)):
        trace.layers = layers
        trace.forward()
        trace.backward(buckets(0))
    trace.update()


def compiled_autograd(
    trace: Training, *, exchange: bool = True, before: Callable[[Training], None] = lambda _: None,
    groups: tuple[str, ...] = ("default_pg",),
) -> None:  # fmt: skip
    """A step as torch 2.13 records it: regions, and in that of the backward pass an all-reduce a gradient."""
    begun = trace.at
    trace.at += 1
    before(trace)
    for _ in trace.layers:
        trace.host("aten::addmm", trace.at, trace.at + 4)
        trace.run("gemm")
    trace.host("Torch-Compiled Region: 0/0", begun, trace.at)
    begun = trace.at = trace.at + 1
    for k, size in enumerate(trace.layers):
        trace.host("aten::mm", trace.at, trace.at + 4)
        trace.run("gemm", us=200)
        if exchange:
            around, group = "_c10d_functional::all_reduce", groups[k % len(groups)]
            trace.collective("allreduce", size, thread=MAIN, around=around, group=group)
    trace.host("Torch-Compiled Region: !0/1/0", begun, trace.at)
    trace.at += 1
    trace.update()
