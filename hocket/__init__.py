"""Hocket keeps a training cluster's processors and network busy at the same time.

Names load on first use, so that ``import hocket`` costs next to nothing and never imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hocket.errors import FormatError, HocketError, UnknownNameError
    from hocket.graph import (
        MemoryMoment,
        MemoryNeed,
        Plan,
        Pull,
        Push,
        Reduction,
        ResultRow,
        StepGraph,
        StepMemory,
        Timeline,
        load_plan,
        load_step,
        save_plan,
        save_step,
    )
    from hocket.interop import load_timeline, save_timeline
    from hocket.network import (
        ClusterFile,
        MeasuredHalves,
        MeasuredLine,
        MeasuredReduction,
        Network,
        NetworkFile,
        Nodes,
        load_cluster,
        load_network,
        save_cluster,
        save_network,
    )
    from hocket.offers import Offer, Rental, RentalRow, TrainingJob, load_offers
    from hocket.offers.compare_offers import rent
    from hocket.predictor import Machines, Prediction, Predictions, predict
    from hocket.profiler import profile, watch
    from hocket.runtime.training.clip import clip_grad_norm_
    from hocket.sim import Result, simulate
    from hocket.tuner import Tuning, plan, policy_names, tune
    from hocket.tuner.distribute import distribute
    from hocket.tuner.sharded_training import shard

__version__ = "0.1.0"

_HOME = {
    "ClusterFile": "hocket.network",
    "FormatError": "hocket.errors",
    "HocketError": "hocket.errors",
    "Machines": "hocket.predictor",
    "MeasuredHalves": "hocket.network",
    "MeasuredLine": "hocket.network",
    "MeasuredReduction": "hocket.network",
    "MemoryMoment": "hocket.graph",
    "MemoryNeed": "hocket.graph",
    "Network": "hocket.network",
    "NetworkFile": "hocket.network",
    "Nodes": "hocket.network",
    "Offer": "hocket.offers",
    "Plan": "hocket.graph",
    "Prediction": "hocket.predictor",
    "Predictions": "hocket.predictor",
    "Pull": "hocket.graph",
    "Push": "hocket.graph",
    "Reduction": "hocket.graph",
    "Rental": "hocket.offers",
    "RentalRow": "hocket.offers",
    "Result": "hocket.sim",
    "ResultRow": "hocket.graph",
    "StepGraph": "hocket.graph",
    "StepMemory": "hocket.graph",
    "Timeline": "hocket.graph",
    "TrainingJob": "hocket.offers",
    "Tuning": "hocket.tuner",
    "UnknownNameError": "hocket.errors",
    "clip_grad_norm_": "hocket.runtime.training.clip",
    "distribute": "hocket.tuner.distribute",
    "load_cluster": "hocket.network",
    "load_network": "hocket.network",
    "load_offers": "hocket.offers",
    "load_plan": "hocket.graph",
    "load_step": "hocket.graph",
    "load_timeline": "hocket.interop",
    "plan": "hocket.tuner",
    "policy_names": "hocket.tuner",
    "predict": "hocket.predictor",
    "profile": "hocket.profiler",
    "rent": "hocket.offers",
    "save_cluster": "hocket.network",
    "save_network": "hocket.network",
    "save_plan": "hocket.graph",
    "save_step": "hocket.graph",
    "save_timeline": "hocket.interop",
    "shard": "hocket.tuner.sharded_training",
    "simulate": "hocket.sim",
    "tune": "hocket.tuner",
    "watch": "hocket.profiler",
}

_PACKAGES = ("graph", "offers", "predictor", "profiler", "runtime")
"""The packages of what the reference names by its whole path."""

__all__ = [
    "ClusterFile",
    "FormatError",
    "HocketError",
    "Machines",
    "MeasuredHalves",
    "MeasuredLine",
    "MeasuredReduction",
    "MemoryMoment",
    "MemoryNeed",
    "Network",
    "NetworkFile",
    "Nodes",
    "Offer",
    "Plan",
    "Prediction",
    "Predictions",
    "Pull",
    "Push",
    "Reduction",
    "Rental",
    "RentalRow",
    "Result",
    "ResultRow",
    "StepGraph",
    "StepMemory",
    "Timeline",
    "TrainingJob",
    "Tuning",
    "UnknownNameError",
    "clip_grad_norm_",
    "distribute",
    "load_cluster",
    "load_network",
    "load_offers",
    "load_plan",
    "load_step",
    "load_timeline",
    "plan",
    "policy_names",
    "predict",
    "profile",
    "rent",
    "save_cluster",
    "save_network",
    "save_plan",
    "save_step",
    "save_timeline",
    "shard",
    "simulate",
    "tune",
    "watch",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"hocket.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'hocket' has no attribute '{name}'")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
