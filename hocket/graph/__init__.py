"""The nouns: steps, plans and timelines, their files and their rules. Imports nothing else of Hocket's."""

from hocket.graph.csr import Csr
from hocket.graph.format_rules import (
    OperationRow,
    ParameterRow,
    StepRows,
    check_exchanges,
    check_plan,
    step_from_rows,
)
from hocket.graph.io import load_plan, load_step, save_plan, save_step
from hocket.graph.plan import Plan, Predicted, Pull, Push, Reduction
from hocket.graph.result import ResultRow
from hocket.graph.step import Phase, StepGraph
from hocket.graph.step_memory import MemoryMoment, MemoryNeed, StepMemory
from hocket.graph.timeline import Lane, MemoryPoint, Span, Timeline

__all__ = [
    "Csr",
    "Lane",
    "MemoryMoment",
    "MemoryNeed",
    "MemoryPoint",
    "OperationRow",
    "ParameterRow",
    "Phase",
    "Plan",
    "Predicted",
    "Pull",
    "Push",
    "Reduction",
    "ResultRow",
    "Span",
    "StepGraph",
    "StepMemory",
    "StepRows",
    "Timeline",
    "check_exchanges",
    "check_plan",
    "load_plan",
    "load_step",
    "save_plan",
    "save_step",
    "step_from_rows",
]
