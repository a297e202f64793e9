"""Names on the command line: taken in any case, and completed in the shell."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any


def lowercase(value: Any) -> Any:
    """Names, or one, as Hocket spells them; None stays None."""
    if isinstance(value, list):
        return [lowercase(each) for each in value]
    return value.lower() if isinstance(value, str) else value


def lowercase_unless_file(value: Any) -> Any:
    """As :func:`lowercase`, of what may also be a file or FILE.py:FUNCTION, which stays as it is."""
    if isinstance(value, list):
        return [lowercase_unless_file(each) for each in value]
    is_file = isinstance(value, str) and (":" in value or "." in value or Path(value).exists())
    return value if is_file else lowercase(value)


def completion(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Complete one of ``names``, or the last one of several by commas.

    ``names`` is called for a completion only: what it imports may take long.
    """

    def complete(incomplete: str) -> list[str]:
        before, comma, last = incomplete.rpartition(",")
        return [f"{before}{comma}{name}" for name in names() if name.startswith(last)]

    return complete


def _policies() -> list[str]:
    from hocket.tuner.policies import policy_names

    return policy_names()


def _training_policies() -> list[str]:
    from hocket.tuner.policies import policy_names

    return ["auto", *(name for name in policy_names() if name != "exact")]


def _cluster_policies() -> list[str]:
    from hocket.cluster.engine.policies.named_policies import POLICY_NAMES

    return [name.replace("-N", "-1") for name in POLICY_NAMES]


def _placements() -> list[str]:
    from hocket.cluster.engine.placement.named_placements import PLACEMENT_NAMES

    return [name.replace("-K", "-1") for name in PLACEMENT_NAMES]


def _devices() -> list[str]:
    from hocket.datasheets import DEVICES, MEASURED_DEVICES

    return [*MEASURED_DEVICES, *DEVICES]


def _models() -> list[str]:
    from hocket import models

    return list(models.names())


def _patterns() -> list[str]:
    from typing import get_args

    from hocket.network import PatternChoice

    return list(get_args(PatternChoice))


complete_policy = completion(_policies)
complete_training_policy = completion(_training_policies)
complete_cluster_policy = completion(_cluster_policies)
complete_placement = completion(_placements)
complete_device = completion(_devices)
complete_model = completion(_models)
complete_pattern = completion(_patterns)
