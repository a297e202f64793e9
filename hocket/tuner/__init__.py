"""The tuner: planners that ask the simulator, and the ranking of all of them on one step and network.

Names load on first use: a process that trains needs few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hocket.tuner.policies import Exchange, PlannedPolicy, make_plan, plan, policy_names
    from hocket.tuner.ranking import tune
    from hocket.tuner.tuning import Tuning

_HOME = {
    "Exchange": "policies",
    "PlannedPolicy": "policies",
    "Tuning": "tuning",
    "make_plan": "policies",
    "plan": "policies",
    "policy_names": "policies",
    "tune": "ranking",
}

__all__ = ["Exchange", "PlannedPolicy", "Tuning", "make_plan", "plan", "policy_names", "tune"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hocket.tuner' has no attribute '{name}'")
    return getattr(importlib.import_module(f"hocket.tuner.{_HOME[name]}"), name)
