"""Settings that a command answers for, and where each came from: what an answer holds for has to be in it.

They stand above every table, and ``--json`` names as ``assumed`` those that nobody gave, as ``given`` others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from hocket.cli.network_options import check_fits, read_network, window_bytes
from hocket.network import (
    MeasuredReduction,
    Network,
    parse_bandwidth,
    parse_duration,
    parse_seconds_per_byte,
)
from hocket.text import duration_text, scaled_text

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


class AnswerSetting(NamedTuple):
    """One setting: its key and value in JSON, how a heading says it (nothing: not at all), and its source."""

    key: str
    value: Any
    text: str
    source: str


SYNCHRONOUS = AnswerSetting("mode", "sync", "mode sync", "always")
_BY_SIZE = AnswerSetting("pattern", "ring or tree", "pattern ring or tree by size", DEFAULT)


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


def described_network(
    context: typer.Context, workers: int, servers: int, **unless_given: str
) -> tuple[Network, list[AnswerSetting]]:
    """The network that a command's file and options describe, and where each of its numbers came from.

    Given values go before the file, and the file before ``unless_given``. A measured all-reduce holds on
    the measured network only: where an option changes that one, all-reduces cost what follows from options.
    """
    given: dict[str, Any] = context.params
    path: Path | None = given.get("network_file")
    file = None if path is None else read_network(path)
    base = (
        Network(num_workers=workers, num_servers=servers) if file is None else file.network(workers, servers)
    )
    origin = DEFAULT if file is None else f"measured, {path}" if file.host is not None else str(path)
    settings, values = [], {}
    for option, key, parse, shown in (
        ("bandwidth", "bandwidth_bps", parse_bandwidth, _bandwidth_shown),
        ("latency", "startup_s", parse_duration, lambda s: f"startup {duration_text(s)}"),
        ("parse_beta", "parse_s", parse_duration, lambda s: f"parsing {duration_text(s)} a message"),
        (
            *("parse_alpha", "parse_s_per_byte", parse_seconds_per_byte),
            lambda s: f"{duration_text(s)} a byte",
        ),
    ):
        text = given.get(option)
        if text is None and file is None:
            text, source = unless_given.get(option), DEFAULT
        else:
            source = origin if text is None else GIVEN
        values[key] = getattr(base, key) if text is None else parse(text)
        if source == str(path) and not values[key]:
            source = DEFAULT  # a file by hand names what it wants other than 0
        settings.append(AnswerSetting(key, values[key], shown(values[key]), source))
    changed = any(
        given.get(option) is not None for option in ("bandwidth", "latency", "parse_alpha", "parse_beta")
    )
    network = Network(
        num_workers=workers,
        num_servers=servers,
        **values,
        pattern=given.get("pattern"),
        reduction=None if changed else base.reduction,
        window_bytes=window_bytes(given.get("window")),
    )
    if path is not None and file is not None:
        check_fits(path, file, _used_fits(given, network))
    return network, [*settings, _reduction_setting(network, origin)]


def _used_fits(given: Mapping[str, Any], network: Network) -> list[str]:
    """The fits of a network's file that stand behind ``network``, options having replaced the others."""
    used = ["allreduce"] if network.reduction is not None and network.pattern is None else []
    for fit, names in (("transfer", ("bandwidth", "latency")), ("parse", ("parse_alpha", "parse_beta"))):
        if any(given.get(name) is None for name in names):
            used.append(fit)
    return used


def _bandwidth_shown(bits_per_second: float) -> str:
    return f"bandwidth {scaled_text(bits_per_second, 'bit/s')}"


def _reduction_setting(network: Network, origin: str) -> AnswerSetting:
    """The settings that the cost of an all-reduce follows from."""
    if network.pattern is not None:
        return AnswerSetting("pattern", network.pattern, f"pattern {network.pattern}", GIVEN)
    measured: MeasuredReduction | None = network.reduction
    if measured is not None:
        text = f"all-reduces as timed between {measured.workers} workers"
        return AnswerSetting("pattern", "measured", text, origin)
    return _BY_SIZE


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


def as_reduced(settings: Sequence[AnswerSetting], seen: Iterable[Network]) -> list[AnswerSetting]:
    """``settings`` of a network, with how all-reduces run on those that machines make of it.

    Between racks they run in a ring, and what they were measured to cost holds on the measured links only.
    """
    described = next(setting for setting in settings if setting.key == "pattern")
    if described.source == GIVEN:
        return list(settings)
    patterns: dict[AnswerSetting, None] = {}
    for network in seen:
        if network.pattern is not None:
            patterns[AnswerSetting("pattern", network.pattern, f"pattern {network.pattern}", "--racks")] = (
                None
            )
        else:
            patterns[described if network.reduction is not None else _BY_SIZE] = None
    return [setting for setting in settings if setting is not described] + list(patterns)


def applying(settings: Sequence[AnswerSetting], architecture: str) -> list[AnswerSetting]:
    """Those of ``settings`` that the architecture has."""
    without = _OF_ALL_REDUCE if architecture == "ps" else (*_OF_SERVERS, "window_bytes")
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
    if set(by_source.get(DEFAULT, ())) >= _FREE_PARSING:
        unsaid = [text for text in by_source[DEFAULT] if text not in _FREE_PARSING]
        by_source[DEFAULT] = [*unsaid, "parsing 0 s"]
    by_source["by default"] = by_source.pop(DEFAULT, [])
    said = [f"{source}: {', '.join(texts)}" for source, texts in by_source.items() if texts]
    from hocket.graph.update_operations import waits_for_all_gradients

    step = f"{_named(graph)}, batches of {graph.batch_size}{_kind_of_examples(graph)} a worker"
    if waits_for_all_gradients(graph):
        step += ", updates wait for all gradients, as clipping by norm does"
    elif graph.produced.any() and not any(setting.key == "clip" and setting.value for setting in settings):
        step += ", gradients not clipped"
    return "; ".join([step, *said])


def caution(graph: StepGraph) -> list[str]:
    """The step's caveat as a sentence below an answer, of which it says which way it errs; empty: none."""
    return [f"Caution, of the step: {graph.caveat}"] if graph.caveat else []


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

    if not graph.precision and graph.device not in DEVICES:
        return graph.model
    said = graph.precision if graph.precision not in ("", "fp32") else "float32 without TF32"
    return f"{graph.model} as derived for {graph.device} ({said})"


def assumed(
    context: typer.Context, settings: Sequence[AnswerSetting], architecture: str | None = None
) -> dict[str, Any]:
    """Everything that was not given: of ``settings``, and every other option with a default of its own."""
    without = {setting.key for setting in settings}
    if architecture is not None:
        without |= set(_OF_ALL_REDUCE if architecture == "ps" else _OF_SERVERS)
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
