"""Scripts and data inside a page: compressed, as text that no HTML parser reads anything into."""

from __future__ import annotations

import base64
import gzip
from importlib import resources
from typing import Any

import msgspec


def pack_json(data: Any) -> str:
    """``data`` as JSON, gzip and base64; the same text for the same data."""
    return _as_text(gzip.compress(msgspec.json.encode(data), mtime=0))


def pack_plotly() -> str:
    """The script that draws figures (``plotly.js-basic-dist-min`` 4.1.1, unchanged), gzip and base64."""
    return _as_text(resources.files("hocket.report").joinpath("plotly-basic.min.js.gz").read_bytes())


def _as_text(compressed: bytes) -> str:
    return base64.b64encode(compressed).decode("ascii")
