"""Hocket keeps a training cluster's processors and network busy at the same time.

Names load on first use, so that ``import hocket`` costs next to nothing and never imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hocket.errors import FormatError, HocketError, UnknownNameError
    from hocket.graph import Plan, StepGraph, Timeline, load_plan, load_step, save_plan, save_step
    from hocket.network import Network, load_network
    from hocket.predictor import Machines, Prediction, Predictions, predict
    from hocket.profiler import profile, watch
    from hocket.runtime.training.clip import clip_grad_norm_
    from hocket.sim import Result, simulate
    from hocket.tuner import Tuning, plan, tune
    from hocket.tuner.distribute import distribute

__version__ = "0.1.0"

_HOME = {
    "FormatError": "hocket.errors",
    "HocketError": "hocket.errors",
    "Machines": "hocket.predictor",
    "Network": "hocket.network",
    "Plan": "hocket.graph",
    "Prediction": "hocket.predictor",
    "Predictions": "hocket.predictor",
    "Result": "hocket.sim",
    "StepGraph": "hocket.graph",
    "Timeline": "hocket.graph",
    "Tuning": "hocket.tuner",
    "UnknownNameError": "hocket.errors",
    "clip_grad_norm_": "hocket.runtime.training.clip",
    "distribute": "hocket.tuner.distribute",
    "load_network": "hocket.network",
    "load_plan": "hocket.graph",
    "load_step": "hocket.graph",
    "plan": "hocket.tuner",
    "predict": "hocket.predictor",
    "profile": "hocket.profiler",
    "save_plan": "hocket.graph",
    "save_step": "hocket.graph",
    "simulate": "hocket.sim",
    "tune": "hocket.tuner",
    "watch": "hocket.profiler",
}

__all__ = [
    "FormatError",
    "HocketError",
    "Machines",
    "Network",
    "Plan",
    "Prediction",
    "Predictions",
    "Result",
    "StepGraph",
    "Timeline",
    "Tuning",
    "UnknownNameError",
    "clip_grad_norm_",
    "distribute",
    "load_network",
    "load_plan",
    "load_step",
    "plan",
    "predict",
    "profile",
    "save_plan",
    "save_step",
    "simulate",
    "tune",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'hocket' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
