"""``hocket doctor``: whether this machine or job can train, and what to mend where it cannot."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli import options
from hocket.cli.panels import PLANNING, option
from hocket.cli.printing import print_json, progress, warn
from hocket.cli.screen import show
from hocket.text import counted, digits, duration_text, listed, scaled_text

if TYPE_CHECKING:
    from hocket.doctor import Examination
    from hocket.doctor.rank_facts import RankFacts

_MOST_LINES = 3
"""Lines of one kind, where machines differ; --json has all."""


def doctor(
    plan: Annotated[
        str | None,
        option(
            panel=PLANNING,
            metavar="FILE",
            help="The plan, or policy, that every rank is to be given.",
            show_default="HOCKET_PLAN's, or auto",
        ),
    ] = None,
    timeout: options.Timeout = "120s",
    json: options.Json = False,
) -> None:
    """Examine this machine or job before it trains: its ranks, its network, and a short test of training.

    Alone it starts two ranks here; started by torchrun it is one rank of the job, and rank 0 prints. The
    status is 1 where something is to be mended.
    """
    from hocket.doctor import examination_document, examine
    from hocket.network import parse_duration
    from hocket.profiler import launched

    place = launched()
    first = place is None or place.rank == 0
    with progress("examining the ranks") if first else contextlib.nullcontext():
        found = examine(plan=plan, timeout_s=parse_duration(timeout))
    if found is None:
        return
    if not first:  # it did not reach rank 0, which prints for all that did
        warn("\n".join(finding.line for finding in found.findings))
    elif json:
        print_json(examination_document(found))
    else:
        _show(found, launched=place is not None)
    if not found.green:
        raise typer.Exit(1)


def _show(found: Examination, *, launched: bool) -> None:
    """Print the verdict, what is to be mended, what there is, and what to do next."""
    if found.green:
        answers = [f"Green: {counted(found.workers, 'rank')} can train, {_where(found)}"]
        if found.workers > 1 and len({each.machine for each in found.ranks}) == 1:
            answers.append(
                "Ranks on one machine exchange through its memory: an order of transfers has next to"
                " nothing to gain here"
            )
    else:
        count = counted(len(found.findings), "thing")
        answers = [f"Red: {count} to mend before {counted(found.workers, 'rank')} can train:"]
        answers += [f"- {finding.line}" for finding in found.findings]
    rows = [f"{label:<10} {text}" for label, text in _rows(found)]
    again = "the same command on every machine" if launched else "hocket doctor"
    following = _following(found, launched=launched) if found.green else f"mend it, then {again}"
    show(answers, assumptions="\n".join(rows), following=following)


def _following(found: Examination, *, launched: bool) -> str:
    """The next command: several machines train; on one it is looked first at whether anything is to gain."""
    machines = len({each.machine for each in found.ranks})
    if launched and machines > 1:
        return "on every machine 'hocket train' with torchrun's options, the same as here, and your script"
    return "hocket profile train.py -o step.json  # train.py: your script as it is under DDP"


def _where(found: Examination) -> str:
    machines = len({each.machine for each in found.ranks})
    on_processors = (
        "on processors alone, as training uses no GPU, " if any(r.gpus for r in found.ranks) else ""
    )
    return f"{on_processors}on {counted(machines, 'machine')}; examined in {duration_text(found.wall_s)}"


def _rows(found: Examination) -> Iterator[tuple[str, str]]:
    if not found.ranks:
        return
    kinds: dict[str, Callable[[RankFacts], str]] = {
        "versions": _versions,
        "GPUs": _gpus,
        "backends": lambda facts: ", ".join(facts.backends),
        "machine": _machine,
        "network": _network,
        "plan": lambda facts: (
            "none" if facts.plan.error else f"{facts.plan.name} (digest {facts.plan.digest})"
        ),
    }
    for label, text_of in kinds.items():
        yield from _alike(label, text_of, found.ranks)
    clocks = [abs(offset) for offset in found.clock_offsets_s if offset is not None]
    if clocks:
        yield "clocks", f"at most {duration_text(max(clocks))} from rank 0's"
    yield "self-test", _self_test(found)
    if (test := found.self_test) is not None and test.peak_bytes is not None:
        of_ddp = "unknown" if test.ddp_peak_bytes is None else scaled_text(test.ddp_peak_bytes, "B")
        size = scaled_text(test.size_bytes, "B")
        yield "memory", f"peak {scaled_text(test.peak_bytes, 'B')}, DDP's {of_ddp}, of a model of {size}"


def _alike(
    label: str, text_of: Callable[[RankFacts], str], ranks: list[RankFacts]
) -> Iterator[tuple[str, str]]:
    """A row for all ranks, or for those of each text where they differ."""
    from hocket.doctor.findings import ranks_text

    having: dict[str, list[int]] = {}
    for facts in ranks:
        having.setdefault(text_of(facts), []).append(facts.rank)
    for text, numbers in list(having.items())[:_MOST_LINES]:
        yield label, text if len(having) == 1 else f"{ranks_text(numbers)}: {text}"
    if len(having) > _MOST_LINES:
        yield label, f"and {len(having) - _MOST_LINES} more (--json)"


def _versions(facts: RankFacts) -> str:
    return f"hocket {facts.hocket}, torch {facts.torch}, Python {facts.python}"


def _gpus(facts: RankFacts) -> str:
    built = f"CUDA {facts.cuda}" if facts.cuda else "no CUDA"
    nccl = f"NCCL {facts.nccl}" if facts.nccl else "no NCCL"
    if not facts.gpus:
        return f"none (torch has {built}, {nccl})"
    names = listed([f"{facts.gpus.count(name)} x {name}" for name in dict.fromkeys(facts.gpus)])
    return f"{names}, unused: hocket.distribute trains on CPUs over gloo today ({built}, {nccl})"


def _machine(facts: RankFacts) -> str:
    parts = [f"{facts.host}: {counted(facts.processors, 'core')}, {counted(facts.threads, 'thread')} a rank"]
    if facts.shared_memory_free_bytes is not None:
        free = scaled_text(facts.shared_memory_free_bytes, "B")
        parts.append(f"{facts.shared_memory_path} {free} free")
    if facts.open_files_limit is not None:
        parts.append(f"up to {facts.open_files_limit} open files")
    return ", ".join(parts)


def _network(facts: RankFacts) -> str:
    shown = []
    for each in facts.interfaces:
        if each.up and each.addresses:
            rate = "" if each.rate_bps is None else f" {scaled_text(each.rate_bps, 'bit/s')}"
            shown.append(f"{each.name} {each.addresses[0]}{rate}")
    named = facts.named_interfaces
    takes = f"{listed(named)} (GLOO_SOCKET_IFNAME)" if named else f"{facts.gloo_address} (the host's name)"
    return f"{', '.join(shown)}; gloo takes {takes}"


def _self_test(found: Examination) -> str:
    test = found.self_test
    if test is None:
        return "failed" if any(each.about == "self-test" for each in found.findings) else "not run"
    equal = "parameters equal DistributedDataParallel's bit by bit"
    if test.difference:
        rounded = ", by rounding," if found.green else ""
        of_ddp = f"differ from DistributedDataParallel's by {digits(test.difference)} of the largest"
        equal = f"parameters {of_ddp}{rounded}"
    steps = counted(test.steps, "step")
    return f"{equal} after {steps}; {test.transfers} of {test.planned} transfers seen"
