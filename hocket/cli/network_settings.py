"""The network that a command's options and files describe, and where each of its figures came from."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from hocket.cli.answer_settings import DEFAULT, GIVEN, AnswerSetting, is_given
from hocket.cli.network_options import check_fits, read_network, window_bytes
from hocket.cli.node_settings import described_nodes, read_cluster
from hocket.document import convert_document
from hocket.graph.recorded_run import RecordedRun
from hocket.network import (
    USUAL_STARTUP_S,
    MeasuredReduction,
    Network,
    NetworkFile,
    parse_bandwidth,
    parse_duration,
    parse_seconds_per_byte,
)
from hocket.text import counted, duration_text, scaled_text

_BY_SIZE = AnswerSetting("pattern", "ring or tree", "pattern ring or tree by size", DEFAULT)
AS_RECORDED = "as recorded with the step"
_OF_NETWORK = (
    *("network_file", "cluster", "bandwidth", "latency", "parse_alpha", "parse_beta", "pattern", "racks"),
    *("gpus_per_node", "intra_bandwidth", "nics_per_node", "intra_latency", "in_switch", "machines_per_rack"),
)
_BETWEEN_RACKS = AnswerSetting("pattern", "ring", "pattern ring", "between racks")


def usual_latency(context: typer.Context) -> dict[str, str]:
    """The startup that :func:`described_network` takes where nothing says one.

    Between nodes of several GPUs that of ``rent``, which asks of them alone; else none, so 0.
    """
    return {"latency": f"{USUAL_STARTUP_S:g}s"} if context.params.get("gpus_per_node") else {}


def described_network(
    context: typer.Context,
    workers: int,
    servers: int,
    device: str = "",
    recorded: RecordedRun | None = None,
    **unless_given: str,
) -> tuple[Network, list[AnswerSetting]]:
    """The network that a command's files and options describe, and where each of its numbers came from.

    Given values go before the file, and the file before ``unless_given``. A measured all-reduce holds on
    the measured network only: where an option changes that one, all-reduces cost what follows from options.
    ``device``: that of the step, for what its datasheet says of the inside of a node; ``recorded``: the job
    that the step was recorded from, whose network holds where nothing describes one.
    """
    given: dict[str, Any] = context.params
    cluster = read_cluster(given)
    nodes, of_nodes = described_nodes(context, cluster, device)
    file = None if given.get("network_file") is None else read_network(given["network_file"])
    path: Path | str | None = given.get("network_file") if cluster is None else given["cluster"]
    if path is None and (file := recorded_network(context, recorded)) is not None:
        path = AS_RECORDED
    base = Network(num_workers=workers, num_servers=servers)
    if cluster is not None:
        base = dataclasses.replace(cluster.network(workers), num_servers=servers)
    elif file is not None:
        base = file.network(workers, servers)
    measured = file is not None and file.host is not None
    origin = DEFAULT if path is None else f"measured, {path}" if measured else str(path)
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
        if text is None and path is None:
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
        reduction=None if changed or nodes is not None else base.reduction,
        window_bytes=window_bytes(given.get("window")),
        nodes=nodes,
        shards=given.get("shards"),
    )
    if path is not None and file is not None:
        check_fits(path, file, _used_fits(given, network))
    return network, [*settings, *of_nodes, _reduction_setting(network, origin)]


def is_described(context: typer.Context) -> bool:
    """Tell whether an option describes a network."""
    return any(is_given(context, option) for option in _OF_NETWORK if option in context.params)


def recorded_network(context: typer.Context, recorded: RecordedRun | None) -> NetworkFile | None:
    """The network that a step was recorded on, unless an option describes one."""
    if recorded is None or recorded.network is None or is_described(context):
        return None
    fields = {name: value for name, value in recorded.network.items() if name != "format"}
    source = context.params.get("step", "the traces")
    return convert_document(fields, NetworkFile, f"{source}: recorded.network")


def _used_fits(given: Mapping[str, Any], network: Network) -> list[str]:
    """The fits of a network's file that stand behind ``network``, options having replaced the others."""
    from hocket.network.fit_quality import OF_SHARDS

    reduction = network.reduction if network.pattern is None else None
    used = ["allreduce"] if reduction is not None else []
    if reduction is not None and reduction.halves is not None and given.get("architecture") == "fsdp":
        used += OF_SHARDS
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
    if _in_racks(network):
        return _BETWEEN_RACKS
    measured: MeasuredReduction | None = network.reduction
    if measured is not None:
        text = f"all-reduces as timed between {measured.workers} workers"
        return AnswerSetting("pattern", "measured", text, origin)
    return _BY_SIZE


def as_reduced(settings: Sequence[AnswerSetting], seen: Iterable[Network]) -> list[AnswerSetting]:
    """``settings`` of a network, with how all-reduces run on those that machines make of it.

    Between racks they run in a ring, and what they were measured to cost holds on the measured links only.
    """
    described = next(setting for setting in settings if setting.key == "pattern")
    if described.source == GIVEN:
        return list(settings)
    patterns: dict[AnswerSetting, None] = {}
    for network in seen:
        if network.pattern is None and _in_racks(network):
            patterns[_BETWEEN_RACKS] = None
        elif network.pattern is not None:
            patterns[AnswerSetting("pattern", network.pattern, f"pattern {network.pattern}", "--racks")] = (
                None
            )
        else:
            patterns[described if network.reduction is not None else _BY_SIZE] = None
    return [setting for setting in settings if setting is not described] + list(patterns)


def _in_racks(network: Network) -> bool:
    """Tell whether the nodes of these workers are in several racks."""
    return network.nodes is not None and network.nodes.racks(network.num_workers) > 1


def link_text(network: Network, num_workers: int) -> str:
    """The rate out of a machine: ``10 Gbit/s``, ``1 x 400 Gbit/s each way for each node of 8 GPUs``.

    Of workers who fill one node at most, whom no NIC serves, the rate inside: ``450 GB/s inside one node``.
    """
    rate, nodes = scaled_text(network.bandwidth_bps, "bit/s"), network.nodes
    if nodes is None or (nodes.gpus == 1 and nodes.nics == 1):
        return rate
    if num_workers <= nodes.gpus and nodes.intra_bps is not None:
        return f"{scaled_text(nodes.intra_bps / 8, 'B/s')} inside one node"
    return f"{nodes.nics} x {rate} each way for each node of {counted(nodes.gpus, 'GPU')}"
