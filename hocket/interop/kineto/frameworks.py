"""Names of what exchanges gradients beside DDP: sharded training, other libraries and their optimizers.

They are told by the names of operators and annotations, of kernels, and of process groups, which say more
than the kinds of collectives do.
"""

from __future__ import annotations

import re

from hocket.interop.kineto.traced_collectives import TracedCollective
from hocket.interop.kineto.traced_operations import TracedStep

FSDP, FSDP2 = "FSDP", "FSDP2"
SHARDING = {"Megatron": "Megatron's distributed optimizer"}
"""The part of a framework that scatters gradients, where it has a name of its own."""
# The first that matches names it.
_MARKS = {
    FSDP: re.compile(r"FullyShardedDataParallel"),
    FSDP2: re.compile(r"(^|\W)FSDP::|(^|\W)fsdp::"),
    "DeepSpeed": re.compile(r"deepspeed", re.IGNORECASE),
    "Megatron": re.compile(r"megatron|_PARALLEL_GROUP", re.IGNORECASE),
    "ZeroRedundancyOptimizer": re.compile(r"ZeroRedundancyOptimizer"),
    "Horovod": re.compile(
        r"horovod|hvd_|batched_memcpy_k\b|BatchedD2DMemcpy|scale_buffer_k\b", re.IGNORECASE
    ),
    "BytePS": re.compile(r"byteps", re.IGNORECASE),
    "apex": re.compile(r"apex|DistributedFused(Adam|LAMB)"),
}


def framework_of(step: TracedStep) -> str:
    """The library that exchanges a step's gradients, by its names; empty where none is known."""
    names = {event.name for event in step.host}
    names.update(operation.gpu.name for operation in step.operations)
    names.update(collective.group for collective in every_collective(step))
    for framework, pattern in _MARKS.items():
        if any(pattern.search(name) for name in names):
            return framework
    return ""


def every_collective(step: TracedStep) -> list[TracedCollective]:
    """Collectives of a step: those that exchange gradients, and others."""
    others = [operation.collective for operation in step.others if operation.collective is not None]
    return [*step.exchanges, *others]


def by_bare_thread(collective: TracedCollective) -> bool:
    """Tell whether a thread without operators launched it, as Horovod's and BytePS's own threads do."""
    return collective.gpu.call.host is None
