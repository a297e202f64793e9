"""Writes docs/openapi.json, the description of the manager's HTTP API that is kept in the documentation."""

from __future__ import annotations

import json
from pathlib import Path

from hocket.cluster.live.api.openapi import description

if __name__ == "__main__":
    path = Path(__file__).parents[1] / "docs" / "openapi.json"
    path.write_text(json.dumps(description(), indent=1) + "\n")
