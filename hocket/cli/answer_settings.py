"""Settings that a command answers for, and where each came from: what an answer holds for has to be in it.

They stand above every table, and ``--json`` names as ``assumed`` those that nobody gave, as ``given`` others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from hocket.network import Network
from hocket.text import caution_lines, scaled_text

if TYPE_CHECKING:
    from hocket.graph import Plan, StepGraph
    from hocket.planner import Architecture

DEFAULT, GIVEN = "default", "given"

_FREE_PARSING = frozenset({"parsing 0 s a message", "0 s a byte"})
# Options that only parameter servers have: a command that gives one of these has them.
_OF_SERVERS = (
    *("servers", "server_bandwidth", "price_per_server_hour", "barrier", "window", "updates", "spread"),
    "backup",
)
_OF_ALL_REDUCE = ("fusion", "pattern", "clip")
_OF_SHARDS = ("memory", "shards")


class AnswerSetting(NamedTuple):
    """One setting: its key and value in JSON, how a heading says it (nothing: not at all), and its source."""

    key: str
    value: Any
    text: str
    source: str


SYNCHRONOUS = AnswerSetting("mode", "sync", "mode sync", "always")


def is_given(context: typer.Context, option: str) -> bool:
    """Tell whether an option stands on the command line."""
    source = context.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"


def architecture_setting(
    context: typer.Context, policy: str | None, plan: Plan | None = None
) -> AnswerSetting:
    """The way gradients are exchanged: as asked, as the plan or the policy does it, as an option implies it.

    Where nothing says so: by all-reduce, as PyTorch's users have it.
    """
    from hocket.tuner.policies import own_architecture

    given: dict[str, Any] = context.params
    implied = [option for option in _OF_SERVERS if is_given(context, option)]
    found: tuple[Architecture, str]
    if plan is not None:
        found = plan.architecture, str(given["plan"])
    elif given.get("architecture") is not None:
        found = given["architecture"], GIVEN
    elif (own := own_architecture(policy)) is not None:
        found = own, f"policy {policy}"
    elif given.get("mode") == "async":
        found = "ps", "--mode async"
    elif implied:
        found = "ps", f"--{implied[0].replace('_', '-')}"
    else:
        found = "allreduce", DEFAULT
    return AnswerSetting("architecture", found[0], f"architecture {found[0]}", found[1])


def option_setting(
    context: typer.Context, option: str, value: Any, text: str | None = None, key: str | None = None
) -> AnswerSetting:
    """The value that an option came to."""
    shown = f"{option.replace('_', ' ')} {value}" if text is None else text
    return AnswerSetting(key or option, value, shown, GIVEN if is_given(context, option) else DEFAULT)


def plan_setting(context: typer.Context, policy: str | None, plan: Plan | None) -> AnswerSetting:
    """The order of transfers: a plan's file, or a policy."""
    if plan is not None:
        return AnswerSetting("policy", plan.policy, f"policy {plan.policy}", str(context.params["plan"]))
    return option_setting(context, "policy", policy)


def step_settings(context: typer.Context, network: Network) -> list[AnswerSetting]:
    """The numbers of workers and servers, and the window of their transfers."""
    return [
        option_setting(context, "workers", network.num_workers),
        option_setting(context, "servers", network.num_servers),
        window_setting(context, network.window_bytes or 0.0),
    ]


def window_setting(context: typer.Context, size_bytes: float) -> AnswerSetting:
    """The window between workers and servers."""
    text = f"window {scaled_text(size_bytes, 'B')}" if size_bytes else "window off"
    return option_setting(context, "window", size_bytes, text, "window_bytes")


def without_for(architecture: str) -> tuple[str, ...]:
    """The keys of settings that the architecture does not have."""
    others = () if architecture == "fsdp" else _OF_SHARDS
    return (*_OF_ALL_REDUCE, *others) if architecture == "ps" else (*_OF_SERVERS, "window_bytes", *others)


def applying(settings: Sequence[AnswerSetting], architecture: str) -> list[AnswerSetting]:
    """Those of ``settings`` that the architecture has."""
    without = without_for(architecture)
    return [setting for setting in settings if setting.key not in without]


def heading(settings: Sequence[AnswerSetting]) -> str:
    """Lines for people: each setting and its source, those of the network on a line of their own."""
    lines: list[list[str]] = [[]]
    for setting in settings:
        if setting.key == "bandwidth_bps" and lines[-1]:
            lines.append([])
        if setting.text:
            lines[-1].append(f"{setting.text} ({setting.source})")
    return "\n".join(map(", ".join, lines))


def assumptions(graph: StepGraph, settings: Sequence[AnswerSetting]) -> str:
    """One line for people: the step, then each setting, those of one source together and defaults last."""
    by_source: dict[str, list[str]] = {GIVEN: []}
    for setting in settings:
        if setting.text:
            by_source.setdefault(setting.source, []).append(setting.text)
    by_source["by default"] = [text for text in by_source.pop(DEFAULT, []) if text not in _FREE_PARSING]
    said = [f"{source}: {', '.join(texts)}" for source, texts in by_source.items() if texts]
    from hocket.graph.update_operations import waits_for_all_gradients

    step = f"{_named(graph)}, batches of {graph.batch_size}{_kind_of_examples(graph)} a worker"
    if waits_for_all_gradients(graph):
        step += ", updates wait for all gradients, as clipping by norm or an update of all at once does"
    elif graph.produced.any() and not any(setting.key == "clip" and setting.value for setting in settings):
        step += ", gradients not clipped"
    return "; ".join([step, *said])


def caution(graph: StepGraph) -> list[str]:
    """The step's caveat as lines below an answer, of which they say which way it errs; empty: none."""
    return caution_lines(graph.caveat)


def caveat_setting(graph: StepGraph) -> list[AnswerSetting]:
    """The step's caveat, for JSON; for people :func:`caution` says it."""
    return [AnswerSetting("caveat", graph.caveat, "", DEFAULT)] if graph.caveat else []


def _kind_of_examples(graph: StepGraph) -> str:
    """The kind of example that a zoo model takes, where it is no image; empty for a user's own."""
    from hocket.models import zoo

    spec = zoo.spec(graph.model) if graph.model in zoo.names() else None
    tokens = spec is not None and spec.input_kind == "tokens"
    return f" sequences of {spec.input_shape[0]} tokens" if spec is not None and tokens else ""


def _named(graph: StepGraph) -> str:
    """The step's model, and of a step that was derived what its durations are for."""
    from hocket.datasheets import DEVICES
    from hocket.models import zoo

    if not graph.precision and graph.device not in DEVICES:
        return graph.model
    of_slim = graph.model in zoo.names() and "TF-Slim" in zoo.spec(graph.model).description
    whose = " (TF-Slim's, not torchvision's)" if of_slim else ""
    said = graph.precision if graph.precision not in ("", "fp32") else "float32 without TF32"
    return f"{graph.model}{whose} as derived for {graph.device} ({said})"


def assumed(
    context: typer.Context, settings: Sequence[AnswerSetting], architecture: str | None = None
) -> dict[str, Any]:
    """Everything that was not given: of ``settings``, and every other option with a default of its own."""
    without = {setting.key for setting in settings}
    if architecture is not None:
        without |= set(without_for(architecture)) - {"window_bytes"}
        settings = applying(settings, architecture)
    options = {name: value for name, value in defaults(context).items() if name not in without}
    return {**{s.key: s.value for s in settings if s.source == DEFAULT}, **options}


def defaults(context: typer.Context) -> dict[str, Any]:
    """Every option that was not given and has a default of its own."""
    unsaid = {name: value for name, value in context.params.items() if not is_given(context, name)}
    shown = ("json", "wide")  # what is printed is no assumption
    return {name: value for name, value in unsaid.items() if value is not None and name not in shown}


def option_settings(context: typer.Context) -> list[AnswerSetting]:
    """Every option that says something, for commands whose options are all there is to say."""
    said = {name: value for name, value in context.params.items() if value is not None and value is not False}
    return [
        option_setting(context, name, ",".join(value) if isinstance(value, list) else value)
        for name, value in said.items()
        if name not in ("json", "plot")
    ]
