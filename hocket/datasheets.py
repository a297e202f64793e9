"""Datasheets of processors that a step can be derived for, apart from deriving: nothing here needs torch.

Numbers are of the vendor's datasheet or architecture paper (NVIDIA, AMD): peaks at boost clock and for
dense matrices; half precision with sums in float32. Numbers that no vendor states are left out. The memory
that a program can have is another than the one on the box, and is of torch's messages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from hocket.errors import HocketError, UnknownNameError

Number = Literal["float32", "tf32", "float16", "bfloat16"]
Precision = Literal["fp32", "tf32", "amp", "bf16", "fp16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
_NEEDS: dict[Precision, Number] = {
    "fp32": "float32",
    "tf32": "tf32",
    "amp": "float16",
    "bf16": "bfloat16",
    "fp16": "float16",
}


@dataclass(frozen=True, kw_only=True)
class Device:
    """A processor's datasheet."""

    name: str
    title: str
    """As its vendor calls it."""
    peaks: dict[Number, float]
    """Operations a second in products of matrices, by the numbers multiplied, on tensor cores where there
    are any for them; without what it has no units for."""
    bandwidth_bps: float
    """Memory, bytes per second."""
    memory_bytes: float
    """As sold, in powers of ten as written on the box, or as a file says."""
    multiprocessors: int
    """Streaming multiprocessors or compute units."""
    l2_bytes: float = 0.0
    """The cache that all multiprocessors share; 0 where it is not known."""
    peer_bytes_per_s: float = 0.0
    """To the other cards of its node, one way: half of what NVLink or Infinity Fabric carry both ways, else
    of its PCIe slot; 0 where it is not known."""
    reported_bytes: float = 0.0
    """Memory that ``torch.cuda.get_device_properties`` says it has in all; 0 where it is not known."""

    @property
    def capacity_bytes(self) -> float:
        """The memory that a program can have: as reported, else as sold."""
        return self.reported_bytes or self.memory_bytes

    @property
    def peak_flops(self) -> float:
        """Single precision operations a second."""
        return self.peaks["float32"]

    @property
    def default_precision(self) -> Precision:
        """TF32 where there is any, else float32."""
        return "tf32" if "tf32" in self.peaks else "fp32"

    def check(self, precision: Precision) -> None:
        """Refuse a precision that it has no numbers for.

        Raises
        ------
        HocketError
            Naming those it has.
        """
        if _NEEDS[precision] not in self.peaks:
            there = ", ".join(each for each in PRECISIONS if _NEEDS[each] in self.peaks)
            raise HocketError(f"precision {precision}: {self.name} has no units for it; give one of: {there}")


def _device(
    name: str,
    title: str,
    teraflops: tuple[float, float | None, float | None, float | None],
    gigabytes: tuple[float, float, float],
    chips: tuple[int, float],
) -> Device:
    """A row: float32, TF32, float16, bfloat16; memory a second, its size, to others a second; chips."""
    numbers: tuple[Number, ...] = get_args(Number)
    peaks = {number: peak * 1e12 for number, peak in zip(numbers, teraflops, strict=True) if peak is not None}
    return Device(
        name=name,
        title=title,
        peaks=peaks,
        bandwidth_bps=gigabytes[0] * 1e9,
        memory_bytes=gigabytes[1] * 1e9,
        peer_bytes_per_s=gigabytes[2] * 1e9,
        multiprocessors=chips[0],
        l2_bytes=chips[1] * 2**20,
        reported_bytes=_REPORTED_GIB.get(name, 0.0) * 2**30,
    )


# Total capacities in GiB as torch's out-of-memory messages on these cards have them ("GPU 0; 23.69 GiB total
# capacity"), where users posted some; the least where drivers differ (H100: 79.10 to 79.33). Memory of 16 GB
# is 16 GiB less what error correction and the driver keep.
_REPORTED_GIB = {
    "k80": 11.17,
    "p100": 15.89,
    "v100": 15.77,
    "v100-32gb": 31.73,
    "a100": 39.39,
    "a100-pcie": 39.39,
    "a100-80gb": 79.15,
    "a100-80gb-pcie": 79.14,
    "h100": 79.10,
    "h100-pcie": 79.10,
    "h200": 139.72,
    "b200": 178.35,
    "l4": 21.96,
    "l40s": 44.39,
    "a10": 21.99,
    "rtx3090": 23.69,
    "rtx4090": 23.64,
    "rtx5090": 31.36,
    "rtx6000ada": 47.50,
    "mi250x": 63.98,
    "mi300x": 191.69,
}

_SHEETS = (
    # One of the board's two processors, as the published figures count.
    _device("k80", "Tesla K80, one of two", (4.37, None, None, None), (240, 12, 16), (13, 1.5)),
    _device("p100", "Tesla P100 SXM2", (10.6, None, 21.2, None), (732, 16, 80), (56, 4)),
    _device("v100", "Tesla V100 SXM2 16 GB", (15.7, None, 125, None), (900, 16, 150), (80, 6)),
    _device("v100-32gb", "Tesla V100 SXM2 32 GB", (15.7, None, 125, None), (900, 32, 150), (80, 6)),
    _device("a100", "A100 SXM4 40 GB", (19.5, 156, 312, 312), (1555, 40, 300), (108, 40)),
    _device("a100-pcie", "A100 PCIe 40 GB", (19.5, 156, 312, 312), (1555, 40, 32), (108, 40)),
    _device("a100-80gb", "A100 SXM4 80 GB", (19.5, 156, 312, 312), (2039, 80, 300), (108, 40)),
    _device("a100-80gb-pcie", "A100 PCIe 80 GB", (19.5, 156, 312, 312), (1935, 80, 32), (108, 40)),
    _device("h100", "H100 SXM5 80 GB", (67, 494.5, 989.5, 989.5), (3350, 80, 450), (132, 50)),
    _device("h100-pcie", "H100 PCIe 80 GB", (51, 378, 756.5, 756.5), (2000, 80, 64), (114, 50)),
    _device("h200", "H200 SXM 141 GB", (67, 494.5, 989.5, 989.5), (4800, 141, 450), (132, 50)),
    _device("b200", "B200 SXM 180 GB", (75, 1100, 2250, 2250), (8000, 180, 900), (148, 126)),
    _device("l4", "L4", (30.3, 60, 121, 121), (300, 24, 32), (58, 48)),
    _device("l40s", "L40S", (91.6, 183, 362, 362), (864, 48, 32), (142, 96)),
    _device("a10", "A10", (31.2, 62.5, 125, 125), (600, 24, 32), (72, 6)),
    _device("rtx3090", "GeForce RTX 3090", (35.6, 35.6, 71, 71), (936, 24, 32), (82, 6)),
    _device("rtx4090", "GeForce RTX 4090", (82.6, 82.6, 165.2, 165.2), (1008, 24, 32), (128, 72)),
    _device("rtx5090", "GeForce RTX 5090", (104.8, 104.8, 209.5, 209.5), (1792, 32, 64), (170, 96)),
    _device("rtx6000ada", "RTX 6000 Ada", (91.1, 182.1, 364.2, 364.2), (960, 48, 32), (142, 96)),
    # One of the board's two processors, as torch counts devices; to others over one link of 50 GB/s.
    _device("mi250x", "Instinct MI250X, one of two", (47.9, None, 191.5, 191.5), (1638, 64, 50), (110, 8)),
    _device("mi300x", "Instinct MI300X", (163.4, 653.7, 1307.4, 1307.4), (5300, 192, 448), (304, 0)),
)
DEVICES = {sheet.name: sheet for sheet in _SHEETS}
MEASURED_DEVICES = ("cpu", "cuda")

# Words that names of cards carry and that tell none apart.
_UNTOLD = (
    *("nvidia", "amd", "geforce", "tesla", "instinct", "gcd", "oam"),
    *("hbm2", "hbm2e", "hbm3", "generation"),
)
_SXM = re.compile(r"sxm\d?")
_SERIES = re.compile(r"^(rtx)-(\d{4})(-ada)?")


def device_name(name: str) -> str:
    """The name of :data:`DEVICES` that ``name`` means, in any case, its memory or socket named or not.

    A name that means none of them is returned in lower case.
    """
    lower = name.strip().lower()
    told = [word for word in re.split(r"[\s_-]+", lower) if word not in _UNTOLD and not _SXM.fullmatch(word)]
    words = _SERIES.sub(
        lambda found: found[1] + found[2] + ("ada" if found[3] else ""), "-".join(told)
    ).split("-")
    head, rest = words[0], set(words[1:])
    family = [sheet for sheet in DEVICES.values() if _family(sheet.name) == head]
    sizes = {_size(sheet) for sheet in family}
    for sheet in family:
        size, parts = _size(sheet), set(sheet.name.split("-")[1:])
        asked = rest & sizes or (parts & sizes and {""}) or {size}
        if rest - {size} == parts - {size} and asked == {size}:
            return sheet.name
    return lower


def _size(sheet: Device) -> str:
    return f"{sheet.memory_bytes / 1e9:.0f}gb"


def _family(name: str) -> str:
    return name.partition("-")[0]


def device_named(name: str, others: Iterable[str] = MEASURED_DEVICES) -> Device:
    """The datasheet of the device called so.

    Raises
    ------
    UnknownNameError
        Listing all, and ``others``, for a name that is none.
    """
    found = DEVICES.get(device_name(name))
    if found is None:
        raise UnknownNameError("device", name, (*others, *DEVICES))
    return found


def is_derived(device: str) -> bool:
    """True if ``device`` is derived rather than measured; UnknownNameError lists both kinds."""
    return device.lower() not in MEASURED_DEVICES and device_named(device) is not None
