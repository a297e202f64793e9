"""Real training on torch.distributed: a plan in force."""

import importlib
from types import ModuleType

from hocket.errors import HocketError

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise HocketError("torch is not installed; pip install '.[torch]' in a clone of Hocket") from None

from hocket.runtime.training.allreduce_setup import distribute
from hocket.runtime.training.choice_folder import folder_of_environment
from hocket.runtime.training.plan_source import PlanSource
from hocket.runtime.training.ranks import RankZeroValues, TrainingRanks
from hocket.runtime.training.step_settings import StepSettings

__all__ = [
    "PlanSource",
    "RankZeroValues",
    "StepSettings",
    "TrainingRanks",
    "distribute",
    "folder_of_environment",
]


def __getattr__(name: str) -> ModuleType:
    """Load fully sharded training when it is asked for: torch's sharding takes long to import."""
    if name != "sharding":
        raise AttributeError(f"module 'hocket.runtime' has no attribute '{name}'")
    importlib.import_module("hocket.runtime.sharding.sharded_handle")
    return importlib.import_module("hocket.runtime.sharding")
