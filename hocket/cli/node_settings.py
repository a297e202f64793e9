"""Nodes that a command's options, its cluster file and the step's device describe, with their sources."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import typer

from hocket.cli.answer_settings import DEFAULT, GIVEN, AnswerSetting, is_given
from hocket.cli.printing import note
from hocket.errors import HocketError
from hocket.network import ClusterFile, Nodes, load_cluster, parse_bandwidth, parse_duration
from hocket.text import counted, duration_text, scaled_text

_OPTIONS = (
    *("gpus_per_node", "intra_bandwidth", "nics_per_node", "intra_latency", "in_switch"),
    "machines_per_rack",
)


def read_cluster(given: Mapping[str, Any]) -> ClusterFile | None:
    """The cluster file that was given; None: none.

    Raises
    ------
    HocketError
        For a network's file beside it: both have the bandwidth.
    """
    if given.get("cluster") is None:
        return None
    if given.get("network_file") is not None:
        raise HocketError(
            f"{given['network_file']} and {given['cluster']} both have a bandwidth;"
            " give one of --network and --cluster"
        )
    return load_cluster(given["cluster"], note)


def described_nodes(
    context: typer.Context, file: ClusterFile | None, device: str
) -> tuple[Nodes | None, list[AnswerSetting]]:
    """The nodes of these options, and a setting for each of their figures; None: workers have machines each.

    Given values go before the file, and the file before the datasheet of the step's ``device``.

    Raises
    ------
    HocketError
        When nothing says what connects the GPUs of a node, or the values do not fit together.
    """
    given: Mapping[str, Any] = context.params
    asked = [name for name in _OPTIONS if given.get(name) is not None]
    above = [name for name in ("oversubscription",) if name in given and is_given(context, name)]
    if file is None and not asked:
        if above and "racks" not in given:
            raise HocketError(
                f"oversubscription {given['oversubscription']:g} of one rack, whose uplink nothing crosses;"
                " give --machines-per-rack too, or leave it out"
            )
        return None, []
    origin = DEFAULT if file is None else str(given["cluster"])
    found = {} if file is None else _of_file(file)
    sources = dict.fromkeys(found, origin)
    for name in (*asked, *above):
        field, value = _read(name, given[name])
        found[field], sources[field] = value, GIVEN
    gpus = found.setdefault("gpus", 1)
    if gpus == 1 and "intra_bandwidth" in asked:
        raise HocketError(
            f"--intra-bandwidth {given['intra_bandwidth']} inside of nodes of one GPU;"
            " give --gpus-per-node too"
        )
    if gpus > 1 and found.get("intra_bps") is None:
        found["intra_bps"], sources["intra_bps"] = _of_datasheet(gpus, device)
    nodes = Nodes(**found)
    return nodes, _settings(nodes, sources)


def _of_file(file: ClusterFile) -> dict[str, Any]:
    return {field.name: getattr(file.nodes, field.name) for field in dataclasses.fields(Nodes)}


def _read(option: str, value: Any) -> tuple[str, Any]:
    """The field of Nodes that an option gives, and its value."""
    if option == "intra_bandwidth":
        return "intra_bps", parse_bandwidth(value)
    if option == "intra_latency":
        return "intra_startup_s", parse_duration(value)
    fields = {"gpus_per_node": "gpus", "nics_per_node": "nics", "machines_per_rack": "per_rack"}
    return fields.get(option, option), value


def _of_datasheet(gpus: int, device: str) -> tuple[float, str]:
    """The rate of one GPU of the step's device to others of its node, and the source's name."""
    from hocket.datasheets import DEVICES, device_name

    sheet = DEVICES.get(device_name(device))
    if sheet is None or not sheet.peer_bytes_per_s:
        raise HocketError(
            f"{gpus} GPUs a node, and the step is of '{device}', whose links inside of a node are not known;"
            " give --intra-bandwidth, e.g. 450GB/s (an H100's NVLink) or 32GB/s (PCIe 4.0)"
        )
    return 8 * sheet.peer_bytes_per_s, f"datasheet of {sheet.name}"


def _settings(nodes: Nodes, sources: Mapping[str, str]) -> list[AnswerSetting]:
    """A setting for each figure that has a meaning here; those that nobody gave and few know are not said."""

    def setting(key: str, field: str, value: Any, text: str) -> AnswerSetting:
        return AnswerSetting(key, value, text, sources.get(field, DEFAULT))

    found = [
        setting("gpus_per_node", "gpus", nodes.gpus, f"{counted(nodes.gpus, 'GPU')} a node"),
        setting("nics_per_node", "nics", nodes.nics, f"{counted(nodes.nics, 'NIC')} a node"),
    ]
    if nodes.gpus > 1 and nodes.intra_bps is not None:
        inside = f"{scaled_text(nodes.intra_bps / 8, 'B/s')} inside"
        found.append(setting("intra_bandwidth_bps", "intra_bps", nodes.intra_bps, inside))
        known = "intra_startup_s" in sources
        startup = f"startup inside {duration_text(nodes.intra_startup_s)}" if known else ""
        found.append(setting("intra_startup_s", "intra_startup_s", nodes.intra_startup_s, startup))
        summing = "switches inside sum up" if nodes.in_switch else ""
        found.append(setting("in_switch", "in_switch", nodes.in_switch, summing))
    if nodes.per_rack is not None:
        racks = f"{counted(nodes.per_rack, 'machine')} a rack"
        found.append(setting("machines_per_rack", "per_rack", nodes.per_rack, racks))
        above = f"oversubscription {nodes.oversubscription:g}"
        found.append(setting("oversubscription", "oversubscription", nodes.oversubscription, above))
    return found
