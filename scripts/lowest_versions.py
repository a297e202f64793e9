"""Print, as pip's constraints, the lowest versions that pyproject.toml allows of what Hocket needs.

python scripts/lowest_versions.py > lowest.txt
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[1] / "pyproject.toml"
_FLOOR = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)(\[[^]]*\])?>=(?P<version>[0-9.]+)")
_OURS = "hocket["
NOT_RUN_WITH = ("dev", "docs")
"""Extras that nobody runs Hocket with: they have the versions of constraints.txt."""


def lowest() -> dict[str, str]:
    """The lowest version of each package; AssertionError for a requirement that has none."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    extras = project["optional-dependencies"]
    needed = [
        *project["dependencies"],
        *(r for e, each in extras.items() if e not in NOT_RUN_WITH for r in each),
    ]
    found = {}
    for requirement in needed:
        if requirement.startswith(_OURS):
            continue
        floor = _FLOOR.match(requirement)
        assert floor is not None, f"{requirement} has no lowest version"
        found[floor["name"]] = floor["version"]
    return found


if __name__ == "__main__":
    for name, version in lowest().items():
        print(f"{name}=={version}")
