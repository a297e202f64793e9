"""The nodes of autograd in traces of PyTorch 1.8 and 1.9, which do not say when the engine runs one.

Later versions enclose each node and the hooks behind it in ``autograd::engine::evaluate_function``. Here such
spans are made: a node is known by its name, on a thread that accumulates gradients, and lasts until the next
one begins. Where operators have no sequence numbers either, a pass's nodes of one name, from its end, are
those of the forward operators of that name, if there are as many.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any

from hocket.interop.kineto.events import (
    ACCUMULATE,
    NODE_PREFIX,
    OPTIMIZER_PREFIX,
    STEP_PREFIX,
    Args,
    HostSpan,
    RuntimeCall,
)

_NODE = re.compile(r"torch::autograd::\w|[\w:<>.]*\wBackward\d*$")
_OF_NODE = re.compile(r"Backward\d*$")
_LAUNCHES = re.compile("Launch|Memcpy|Memset")
_NO_ARGS = Args()


def engine_spans(host: Sequence[HostSpan], calls: Iterable[RuntimeCall]) -> list[HostSpan]:
    """The spans in which the engine runs its nodes, for a trace that has none; ``host`` is nested."""
    threads = {event.thread for event in host if event.name == ACCUMULATE}
    if not threads or any(event.name.startswith(NODE_PREFIX) for event in host):
        return []
    on_thread: dict[Any, list[HostSpan | RuntimeCall]] = {thread: [] for thread in threads}
    launches: dict[Any, list[RuntimeCall]] = defaultdict(list)
    for event in host:
        if event.thread in on_thread:
            on_thread[event.thread].append(event)
    for call in calls:
        if call.thread in on_thread:
            on_thread[call.thread].append(call)
        elif _LAUNCHES.search(call.name):
            launches[call.thread].append(call)
    spans = [span for own in on_thread.values() for span in _spans(own)]
    spans.sort(key=attrgetter("start_us"))
    if all(span.sequence is None for span in spans):
        _number(spans, [event for event in host if event.thread not in on_thread], launches)
    return spans


def _is_node(event: HostSpan) -> bool:
    around = event.parent
    return bool(_NODE.match(event.name)) and (around is None or around.name != event.name)


def _spans(own: list[HostSpan | RuntimeCall]) -> list[HostSpan]:
    """The spans of one thread's nodes: those of one enclosing operator follow one another."""
    own.sort(key=attrgetter("start_us"))
    starts = [event.start_us for event in own]
    # A thread that also runs the rest of training shows no hooks that could be told from it.
    alone = not any(event.name.startswith((STEP_PREFIX, OPTIMIZER_PREFIX)) for event in own)
    siblings: dict[int, list[HostSpan]] = defaultdict(list)
    for event in own:
        if isinstance(event, HostSpan) and _is_node(event):
            siblings[id(event.parent)].append(event)
    spans = []
    for nodes in siblings.values():
        for k, node in enumerate(nodes):
            until = nodes[k + 1].start_us if k + 1 < len(nodes) else float("inf")
            if node.parent is not None:
                until = min(until, node.parent.end_us)
            end = node.end_us
            if alone:
                i = bisect_left(starts, node.start_us)
                while i < len(own) and own[i].start_us < until:
                    end = max(end, own[i].end_us)
                    i += 1
            name = f"{NODE_PREFIX}: {node.name}"
            end = max(node.end_us, min(end, until))
            spans.append(HostSpan(name, node.thread, node.start_us, end, False, _NO_ARGS, node.sequence))
    return spans


def _number(
    spans: Sequence[HostSpan], forward: Sequence[HostSpan], launches: dict[Any, list[RuntimeCall]]
) -> None:
    """Give nodes and the forward operators that they are of the same numbers, pass by pass."""
    wanted = {_kind(span.name.rpartition(": ")[2]) for span in spans}
    operators = sorted(
        (event for event in forward if _kind(event.name) in wanted and not _repeats(event)),
        key=attrgetter("start_us"),
    )
    for own in launches.values():
        own.sort(key=attrgetter("start_us"))
    first = 0
    for run, until in _passes(spans, operators):
        last = bisect_left(operators, until, key=attrgetter("start_us"))
        _number_pass(run, operators[first:last], launches, first)
        first = last


def _passes(spans: Sequence[HostSpan], operators: Sequence[HostSpan]) -> list[tuple[list[HostSpan], float]]:
    """Nodes between which no forward operator begins, and when the first of them does."""
    passes: list[tuple[list[HostSpan], float]] = []
    before = -1
    for span in spans:
        place = bisect_left(operators, span.start_us, key=attrgetter("start_us"))
        if place != before:
            passes.append(([], span.start_us))
        passes[-1][0].append(span)
        before = place
    return passes


def _number_pass(
    nodes: Sequence[HostSpan],
    operators: Sequence[HostSpan],
    launches: dict[Any, list[RuntimeCall]],
    begun: int,
) -> None:
    """Number one pass's nodes and operators, from ``begun`` on."""
    of_kind: dict[str, list[HostSpan]] = defaultdict(list)
    for operator in operators:
        of_kind[_kind(operator.name)].append(operator)
    run: dict[str, list[HostSpan]] = defaultdict(list)
    for node in reversed(nodes):
        run[_kind(node.name.rpartition(": ")[2])].append(node)
    holders: list[tuple[HostSpan, HostSpan]] = []
    for kind, own in run.items():
        if len(own) == len(of_kind[kind]):
            for node, operator in zip(own, of_kind[kind], strict=True):
                holder = _holder(operator, launches)
                if holder is not None:
                    holders.append((node, holder))
    for k, (node, holder) in enumerate(sorted(holders, key=lambda pair: pair[1].start_us), begun):
        # Two nodes of one operator share its number.
        node.sequence = holder.sequence = k if holder.sequence is None else holder.sequence


def _holder(operator: HostSpan, launches: dict[Any, list[RuntimeCall]]) -> HostSpan | None:
    """The operator that launches first from the beginning of ``operator`` on: what a view is made for."""
    own = launches.get(operator.thread, [])
    place = bisect_left(own, operator.start_us, key=attrgetter("start_us"))
    host = own[place].host if place < len(own) else None
    if host is None:
        return None
    around = operator.chain()[1:]
    within = [e for e in host.chain() if e.start_us >= operator.start_us and all(e is not a for a in around)]
    return within[-1] if within else None


def _repeats(event: HostSpan) -> bool:
    """Tell whether the operator around it is the same one, as it is dispatched anew."""
    return event.parent is not None and _kind(event.parent.name) == _kind(event.name)


def _kind(name: str) -> str:
    """An operator's bare name, or that of the one that a node is of: ``addmm`` of AddmmBackward0."""
    bare = _OF_NODE.sub("", name.rpartition("::")[2])
    return bare.replace("_", "").lower()
