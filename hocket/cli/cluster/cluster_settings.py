"""Settings of a cluster that commands answer for, and where each came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer

from hocket.cli.answer_settings import DEFAULT, AnswerSetting, defaults, is_given, option_setting
from hocket.text import duration_text

if TYPE_CHECKING:
    from hocket.cluster.cluster import Cluster

_OPTIONS = (
    "placement",
    "placements",
    "policy",
    "policies",
    "servers",
    "gpu_types",
    "gpus_per_server",
    "memory",
    "sharing",
    "starvation",
    "exclusive",
    "jobs_per_gpu",
    "wait_for_faster",
    "resize",
    "quota",
    "shares",
    "half_life",
    "checkpoint_cost",
)


def cluster_settings(context: typer.Context, cluster: Cluster) -> list[AnswerSetting]:
    """Placement, policy, machines, and what a transfer costs between them."""
    given: dict[str, Any] = context.params
    values = {name: given.get(name) for name in _OPTIONS}
    if "gpus_per_server" in given:
        values["servers"], values["gpus_per_server"] = cluster.num_servers, cluster.gpus_per_server
    settings = [
        option_setting(context, name, value, name.replace("_", " ") if value is True else None)
        for name, value in values.items()
        if value not in (None, False)
    ]
    if given.get("gpu_types") is not None and not is_given(context, "servers"):
        at = next(i for i, setting in enumerate(settings) if setting.key == "servers")
        settings[at] = settings[at]._replace(source="--gpu-types")
    if cluster.racks > 1:
        settings.append(option_setting(context, "racks", cluster.racks))
    path = given.get("network_file")
    source = f"{DEFAULT}, two nodes on 10 Gbit/s Ethernet" if path is None else str(path)
    startup, byte, more = map(duration_text, (cluster.startup_s, cluster.per_byte_s, cluster.eta_s))
    text = f"transfers of {startup} and {byte} a byte, {more} more for each at once"
    return [*settings, AnswerSetting("transfers", None, text, source)]


def assumed_of_cluster(
    context: typer.Context, cluster: Cluster, unsaid: Sequence[Mapping[str, str]] = ()
) -> dict[str, Any]:
    """Everything that was not given: options with their defaults, and what transfers cost without a file.

    unsaid : of each job set what is assumed about what its jobs do not say, by field.
    """
    options = defaults(context)
    if not is_given(context, "servers"):
        options["servers"] = cluster.num_servers
    if "gpus_per_server" in options:
        options["gpus_per_server"] = cluster.gpus_per_server
    if context.params.get("network_file") is None:
        costs = (cluster.startup_s, cluster.per_byte_s, cluster.eta_s)
        options |= zip(("startup_s", "per_byte_s", "contention_per_byte_s"), costs, strict=True)
    for field in dict.fromkeys(field for each in unsaid for field in each):
        options[field] = "; ".join(dict.fromkeys(each[field] for each in unsaid if field in each))
    return options
