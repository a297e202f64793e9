"""Names for what two timelines of one training both have, where each calls it by names of its own.

A simulation runs operations (``forward/features.0/convolution``), and a training run records pieces between
two parameters (``forward features.0``, ``backward features.0.weight``, ``update features.0.weight and 8
more``). Operations are joined into the pieces that they are part of, by the module whose parameters they read
or whose gradients they produce; slices and updates by their parameter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby

import msgspec

from hocket.graph.timeline import Kind, Span, Timeline

_SLICE = re.compile(r"\[\d+\]\Z", re.ASCII)
_BATCH = re.compile(r" and (\d+) more\Z", re.ASCII)
_WHOLE_MODEL = "model"
_START = "start"  # of a forward pass, before a module reads a parameter
_BETWEEN_STEPS = "backward between steps"


def with_common_names(predicted: Timeline, measured: Timeline) -> tuple[Timeline, Timeline]:
    """Both timelines, with one name for what is the same; names that both have already stay."""
    if _has_operations(predicted) and _has_pieces(measured):
        predicted, measured = _by_piece(predicted, measured), _by_module(measured)
    elif _has_pieces(predicted) and _has_operations(measured):
        predicted, measured = _by_module(predicted), _by_piece(measured, predicted)
    kinds: tuple[Kind, ...] = ("reduce", "push", "pull")
    for kind in kinds:
        predicted, measured = _name_by_parameter(predicted, measured, kind, _subject_of_transfer)
    predicted, measured = _name_by_parameter(predicted, measured, "update", _subject_of_update)
    return _batch_updates(predicted, measured)


def why_unmatched(kind: Kind, name: str) -> str:
    """The reason that only one of two timelines has this name."""
    if kind == "wait":
        return "training alone records what it waits for; a simulation leaves the processor idle"
    if name in (f"forward {_START}", _BETWEEN_STEPS):
        return "the script's own code, which is in no step file"
    if name.startswith(f"{kind}/"):
        return "an operation apart from those of modules with parameters"
    return "the other file has nothing of this name"


def _has_operations(timeline: Timeline) -> bool:
    return any(span.kind == "forward" and span.name.startswith("forward/") for span in timeline.spans)


def _has_pieces(timeline: Timeline) -> bool:
    return any(span.kind == "forward" and span.name.startswith("forward ") for span in timeline.spans)


def _piece(kind: Kind, module: str) -> str:
    return f"{kind} {module or _WHOLE_MODEL}"


def _module_of(piece: str) -> str:
    """The module whose parameter a backward piece is named by."""
    return piece.removeprefix("backward ").rpartition(".")[0]


def _by_module(timeline: Timeline) -> Timeline:
    """A recorded timeline with one name for the gradients of each module."""

    def name(span: Span) -> str:
        if span.kind != "backward" or span.name == _BETWEEN_STEPS:
            return span.name
        return _piece("backward", _module_of(span.name))

    return _rename_spans(timeline, name)


def _by_piece(simulated: Timeline, recorded: Timeline) -> Timeline:
    """A simulated timeline whose operations are named by the pieces of ``recorded``.

    An operation of a module without parameters belongs to the piece that a recorder has open meanwhile: in
    the forward pass the last one that began, in the backward pass the one whose gradient comes next.
    """
    pieces = {span.name for span in _by_module(recorded).spans if span.kind in ("forward", "backward")}
    named: dict[Span, str] = {}
    for lane in range(len(simulated.lanes)):
        for run in _runs([span for span in simulated.spans if span.lane == lane]):
            own = [_piece_of_operation(span, pieces) for span in run]
            if run[0].kind == "forward":
                found = [name or f"forward {_START}" for name in _fill_forward(own)]
            else:
                found = _fill_forward(_fill_forward(own[::-1])[::-1])
            named.update((span, name) for span, name in zip(run, found, strict=True) if name)
    return _rename_spans(simulated, lambda span: named.get(span, span.name))


def _piece_of_operation(span: Span, pieces: set[str]) -> str:
    """The piece that an operation's module has of its own; empty without one."""
    module = span.name.partition("/")[2].rpartition("/")[0]
    name = _piece(span.kind, module)
    return name if name in pieces else ""


def _runs(spans: Sequence[Span]) -> list[list[Span]]:
    """A lane's forward and backward passes; one that the ends of a periodic timeline cut is put together."""
    computed = [span for span in spans if span.kind in ("forward", "backward")]
    runs = [list(run) for _, run in groupby(computed, key=lambda span: span.kind)]
    if len(runs) > 2 and runs[0][0].kind == runs[-1][0].kind:
        runs[0] = runs.pop() + runs[0]
    return runs


def _fill_forward(names: Iterable[str]) -> list[str]:
    """Each name, or where there is none the last one before it."""
    found, last = [], ""
    for name in names:
        last = name or last
        found.append(last)
    return found


def _subject_of_transfer(name: str) -> str:
    return _SLICE.sub("", name)


def _subject_of_update(name: str) -> str:
    """The parameter or the batch that an update is of: ``update/P/add_[3]`` and ``update P``."""
    whole = _SLICE.sub("", name)
    if whole.startswith("update/"):
        return whole.partition("/")[2].rpartition("/")[0] or whole
    return whole.removeprefix("update ")


def _name_by_parameter(
    predicted: Timeline, measured: Timeline, kind: Kind, subject_of: Callable[[str], str]
) -> tuple[Timeline, Timeline]:
    """Both timelines; spans of ``kind`` that they name differently get the name of their parameter."""
    ours, theirs = _names_of(predicted, kind, subject_of), _names_of(measured, kind, subject_of)
    differing = {subject for subject in ours.keys() & theirs if ours[subject] != theirs[subject]}
    prefix = "update " if kind == "update" else ""

    def name(span: Span) -> str:
        if span.kind == kind and (subject := subject_of(span.name)) in differing:
            return prefix + subject
        return span.name

    return _rename_spans(predicted, name), _rename_spans(measured, name)


def _names_of(timeline: Timeline, kind: Kind, subject_of: Callable[[str], str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for span in timeline.spans:
        if span.kind == kind:
            found.setdefault(subject_of(span.name), set()).add(span.name)
    return found


def _batch_updates(predicted: Timeline, measured: Timeline) -> tuple[Timeline, Timeline]:
    """Both timelines; updates of single parameters that the other one runs in batches have the batches' name.

    A batch is named by its first parameter and how many more there are. Which ones is not said: several
    batches are one name together.
    """
    ours, theirs = (set(_names_of(side, "update", _subject_of_update)) for side in (predicted, measured))
    alone = ours - theirs, theirs - ours
    for batches, single in (alone, alone[::-1]):
        sizes = [1 + int(found[1]) for each in batches if (found := _BATCH.search(each))]
        if not sizes or len(sizes) != len(batches) or sum(sizes) != len(single):
            continue
        joined = (
            f"update {next(iter(batches))}" if len(batches) == 1 else f"updates of {len(batches)} batches"
        )
        both = batches | single

        def name(span: Span, joined: str = joined, both: set[str] = both) -> str:
            return joined if span.kind == "update" and _subject_of_update(span.name) in both else span.name

        return _rename_spans(predicted, name), _rename_spans(measured, name)
    return predicted, measured


def _rename_spans(timeline: Timeline, name: Callable[[Span], str]) -> Timeline:
    spans = tuple(msgspec.structs.replace(span, name=name(span)) for span in timeline.spans)
    return Timeline(title=timeline.title, lanes=timeline.lanes, spans=spans)
