"""Datasheets of processors that a step can be derived for, apart from deriving: nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass

from hocket.errors import UnknownNameError


@dataclass(frozen=True, kw_only=True)
class Device:
    """A processor's datasheet."""

    peak_flops: float
    """Single precision operations per second, at boost clock where the datasheet gives one."""
    bandwidth_bps: float
    """Memory, bytes per second."""
    calibrated_as: str
    """The device whose fitted compute efficiency it uses; itself where there are published figures."""
    tensor_cores: tuple[str, ...] = ()
    """Types below 32 bits whose matrix products it has units of their own for, faster than float32's."""
    narrow_speedup: int = 1
    """How many times as fast those products are, dense ones by the datasheet."""


_NARROW = ("bfloat16", "float16")
DEVICES = {
    # NVIDIA's datasheets. K80: one of the board's two processors, as the published figures count.
    "k80": Device(peak_flops=4.37e12, bandwidth_bps=240e9, calibrated_as="k80"),
    "p100": Device(peak_flops=10.6e12, bandwidth_bps=732e9, calibrated_as="p100"),
    "v100": Device(
        peak_flops=15.7e12,
        bandwidth_bps=900e9,
        calibrated_as="v100",
        tensor_cores=("float16",),
        narrow_speedup=8,
    ),
    "a100": Device(
        peak_flops=19.5e12,
        bandwidth_bps=1555e9,
        calibrated_as="v100",
        tensor_cores=_NARROW,
        narrow_speedup=16,
    ),
    "h100": Device(
        peak_flops=67e12, bandwidth_bps=3350e9, calibrated_as="v100", tensor_cores=_NARROW, narrow_speedup=15
    ),
}
MEASURED_DEVICES = ("cpu", "cuda")


def is_derived(device: str) -> bool:
    """True if ``device`` is derived rather than measured; UnknownNameError lists both kinds."""
    if device not in (*MEASURED_DEVICES, *DEVICES):
        raise UnknownNameError("device", device, (*MEASURED_DEVICES, *DEVICES))
    return device in DEVICES
