"""Datasheets of one's own, in a file."""

import json

import pytest

from hocket.errors import FormatError
from hocket.profiler.device_file import load_device

SHEET = {
    "format": "hocket.device/1",
    "name": "mycard",
    "peak_flops": {"float32": 50e12, "tf32": 100e12, "float16": 200e12},
    "memory_bytes_per_s": 1e12,
    "memory_bytes": 24e9,
    "multiprocessors": 80,
}


def load(tmp_path, **changed):
    path = tmp_path / "card.json"
    path.write_text(json.dumps(SHEET | changed))
    return load_device(path)


def test_a_datasheet_is_read(tmp_path):
    device = load(tmp_path, l2_bytes=1e6)
    assert (device.name, device.peak_flops, device.bandwidth_bps) == ("mycard", 50e12, 1e12)
    assert (device.multiprocessors, device.l2_bytes, device.default_precision) == (80, 1e6, "tf32")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"name": "A100-80GB"}, "name: 'A100-80GB' is a device that is there; give another"),
        ({"peak_flops": {"tf32": 1e12}}, "peak_flops.float32: is missing; every device multiplies float32"),
        ({"peak_flops": {"float32": 0}}, "peak_flops.float32: is 0; give a number above 0"),
        ({"multiprocessors": -1}, "multiprocessors: is -1; give a number above 0"),
        ({"memory_bytes": "24GB"}, "memory_bytes"),
        ({"peak_flops": {"float32": 1e12, "float8": 1e12}}, "peak_flops"),
        ({"peaks": {}}, "peaks"),
        ({"format": "hocket.step/1"}, "format"),
    ],
)
def test_a_wrong_datasheet_is_refused_by_its_field(tmp_path, changed, said):
    with pytest.raises(FormatError, match=r"card\.json") as refused:
        load(tmp_path, **changed)
    assert said in str(refused.value)
