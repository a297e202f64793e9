"""The rules of fully sharded plans: units, prefetch lists and resharding, each breach said in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hocket.errors import FormatError
from hocket.graph.plan import Plan

if TYPE_CHECKING:
    from hocket.graph.step import StepGraph

_PREFETCHES = ("forward_prefetch", "backward_prefetch")


def check_units(plan: Plan, source: str) -> None:
    """Refuse a fully sharded plan that contradicts itself, and units in a plan of another architecture.

    Raises
    ------
    FormatError
        Naming ``source``, the field and the rule.
    """
    breach = _breach_without_units(plan) if plan.architecture != "fsdp" else _breach(plan)
    if breach is not None:
        raise FormatError(source, *breach)


def _breach_without_units(plan: Plan) -> tuple[str, str] | None:
    for field in ("units", "reshard_after_forward", *_PREFETCHES):
        if getattr(plan, field):
            rule = f"is for architecture 'fsdp', and this plan's is '{plan.architecture}'; leave it out"
            return field, rule
    return None


def _breach(plan: Plan) -> tuple[str, str] | None:
    count = len(plan.units)
    if not count:
        return "units", "is empty; list each unit's parameters, in the order in which they are first read"
    for field in ("pulls", "pushes", "reductions"):
        if getattr(plan, field):
            return field, "is not for architecture 'fsdp', which has units instead; leave it out"
    if plan.compute_order is not None:
        rule = "is not for architecture 'fsdp', whose modules run as the program has them; give null"
        return "compute_order", rule
    if plan.barrier != "step":
        return "barrier", f"'{plan.barrier}' is for parameter servers; leave it out"
    seen: set[str] = set()
    for i, unit in enumerate(plan.units):
        for name in unit:
            if name in seen:
                return f"units[{i}]", f"'{name}' is a duplicate; each parameter is in one unit"
            seen.add(name)
    for field in ("reshard_after_forward", *_PREFETCHES):
        listed = getattr(plan, field)
        if listed is not None and len(listed) != count:
            return field, f"has {len(listed)} entries for {count} units; give one for each unit"
    return _prefetch_breach(plan)


def _prefetch_breach(plan: Plan) -> tuple[str, str] | None:
    count = len(plan.units)
    for field in _PREFETCHES:
        for i, ahead in enumerate(getattr(plan, field) or ()):
            for k, target in enumerate(ahead):
                if target >= count:
                    return f"{field}[{i}][{k}]", f"{target} is no unit; there are 0 to {count - 1}"
                if field == "forward_prefetch" and target <= i:
                    rule = f"{target} is not behind unit {i}; prefetch units that run later"
                    return f"{field}[{i}][{k}]", rule
                if field == "backward_prefetch" and target >= i:
                    rule = f"{target} is not before unit {i}; the backward pass goes to earlier units"
                    return f"{field}[{i}][{k}]", rule
            if len(set(ahead)) < len(ahead):
                return f"{field}[{i}]", f"{list(ahead)} names a unit twice; gather each once"
    return None


def units_breach(plan: Plan, graph: StepGraph) -> tuple[str, str] | None:
    """The field and the rule that the order of units, which cover the step, breaks; None for none."""
    first = dict(zip(graph.parameter_names, graph.first_reader().tolist(), strict=True))
    reads = [min(first[name] for name in unit) for unit in plan.units]
    for i in range(1, len(reads)):
        if reads[i] < reads[i - 1]:
            rule = f"is read before unit {i - 1}; list units in the order of their first reads"
            return f"units[{i}]", rule
    return None
