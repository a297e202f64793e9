"""Options that were given and decide an answer, beyond those that settings of their own are about."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from hocket.cli.answer_settings import GIVEN, AnswerSetting, applying, is_given

# Options that are shown already: by the step's name, by a setting of their own, or as a setting's source.
_SAID_OTHERWISE = frozenset(
    {"architecture", "mode", "policy", "plan", "workers", "servers", "window", "pattern", "network_file"}
    | {"bandwidth", "latency", "parse_alpha", "parse_beta", "model", "batch_size"}
    | {"cluster", "intra_bandwidth", "intra_latency"}
)
# Options that decide no answer, but where it is computed, written, shown, and compared with what.
_BESIDE_ANSWERS = frozenset(
    {"step", "output", "report", "plot", "timeline", "measured", "engine", "json", "wide"}
)
_FILES = {"network_file": "network", "plan": "plan", "cluster": "cluster"}


def other_options(context: typer.Context, settings: Sequence[AnswerSetting]) -> list[AnswerSetting]:
    """Every option that was given and decides the answer, but those that ``settings`` are about."""
    known = _SAID_OTHERWISE | _BESIDE_ANSWERS | {setting.key for setting in settings}
    return [
        AnswerSetting(name, value, _shown(name, value), GIVEN)
        for name, value in context.params.items()
        if name not in known and is_given(context, name)
    ]


def given(context: typer.Context, settings: Sequence[AnswerSetting], architecture: str) -> dict[str, Any]:
    """Keys and values of the given options, as ``settings`` have them, and of the given files."""
    files = {key: str(context.params[name]) for name, key in _FILES.items() if context.params.get(name)}
    return files | {each.key: each.value for each in applying(settings, architecture) if each.source == GIVEN}


def _shown(name: str, value: Any) -> str:
    """An option by its name, and the value that it was given; a flag has none."""
    words = name.replace("_", " ")
    if value is True:
        return words
    return f"{words} {value:.15g}" if isinstance(value, float) else f"{words} {value}"
