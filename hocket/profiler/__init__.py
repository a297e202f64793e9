"""Measuring one worker's step, or deriving it for hardware that is not there."""

from hocket.datasheets import DEVICES, is_derived
from hocket.errors import HocketError

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise HocketError("torch is not installed; pip install '.[torch]' in a clone of Hocket") from None

from torch import set_num_threads

from hocket.profiler._batch import arguments, first_extent, returned_loss
from hocket.profiler._fake import fake
from hocket.profiler._lightning import trains_itself
from hocket.profiler._step import ProfiledStep, make_step
from hocket.profiler.calibration import Calibration, Residual, calibrate, residuals, stored_residuals
from hocket.profiler.device import Target, derive
from hocket.profiler.factory import StepSetup, check_device, load, on_device
from hocket.profiler.network_measurement import launched, measure_network
from hocket.profiler.profiled_script import profile_script
from hocket.profiler.torch_step import Profile, profile, profile_step
from hocket.profiler.watching import Watching, described, watch

__all__ = [
    "DEVICES",
    "Calibration",
    "Profile",
    "ProfiledStep",
    "Residual",
    "StepSetup",
    "Target",
    "Watching",
    "arguments",
    "calibrate",
    "check_device",
    "derive",
    "described",
    "fake",
    "first_extent",
    "is_derived",
    "launched",
    "load",
    "make_step",
    "measure_network",
    "on_device",
    "profile",
    "profile_script",
    "profile_step",
    "residuals",
    "returned_loss",
    "set_num_threads",
    "stored_residuals",
    "trains_itself",
    "watch",
]
