"""Datasheets: the numbers of cards that people rent, found by any of their names."""

from dataclasses import replace

import pytest

from hocket.datasheets import DEVICES, device_name, device_named
from hocket.errors import UnknownNameError


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        *((each, "a100") for each in ("A100", "a100-40gb", "A100-SXM4-40GB", "nvidia a100")),
        *((each, "a100-80gb") for each in ("a100-80GB", "NVIDIA A100-SXM4-80GB")),
        *((each, "a100-80gb-pcie") for each in ("a100-80gb-pcie", "A100-PCIE-80GB")),
        *((each, "a100-pcie") for each in ("a100-pcie", "a100-pcie-40gb")),
        *((each, "h100") for each in ("H100", "h100-sxm5-80gb", "h100-80gb", "NVIDIA H100 80GB HBM3")),
        *((each, "v100") for each in ("V100", "v100-16gb", "Tesla V100-SXM2-16GB")),
        ("v100-32gb", "v100-32gb"),
        *((each, "rtx3090") for each in ("RTX 3090", "rtx-3090", "NVIDIA GeForce RTX 3090", "rtx3090-24gb")),
        *((each, "rtx6000ada") for each in ("RTX 6000 Ada", "NVIDIA RTX 6000 Ada Generation")),
        ("AMD Instinct MI300X", "mi300x"),
        *((each, each.lower()) for each in ("a100-96gb", "rtx", "", "NVIDIA")),
    ],
)
def test_a_card_has_many_names(said, meant):
    assert device_name(said) == meant


@pytest.mark.parametrize("name", DEVICES)
def test_a_name_means_itself_and_numbers_are_those_of_a_card(name):
    sheet = device_named(name.upper())
    assert sheet is DEVICES[name]
    assert 9 <= sheet.peak_flops / sheet.bandwidth_bps <= 120
    peaks = [sheet.peaks[each] for each in ("float32", "tf32", "float16") if each in sheet.peaks]
    assert peaks == sorted(peaks)
    assert sheet.peaks.get("bfloat16", peaks[-1]) == peaks[-1]
    assert 12e9 <= sheet.memory_bytes <= 192e9
    # A card of 80 GB has 80 GiB less what the driver, and error correction of GDDR6, keep.
    assert 0.91 <= sheet.capacity_bytes / sheet.memory_bytes < 2**30 / 1e9
    assert 16e9 <= sheet.peer_bytes_per_s < sheet.bandwidth_bps
    assert sheet.default_precision == ("tf32" if "tf32" in sheet.peaks else "fp32")


def test_an_unknown_card_is_refused_with_its_neighbours():
    with pytest.raises(UnknownNameError, match=r"'rtx3091' is unknown; did you mean 'rtx3090'"):
        device_named("rtx3091")


def test_memory_is_what_torch_reports_and_else_as_sold():
    assert device_named("rtx3090").capacity_bytes == 23.69 * 2**30
    assert replace(device_named("rtx3090"), reported_bytes=0.0).capacity_bytes == 24e9
