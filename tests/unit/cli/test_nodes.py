"""Nodes of several GPUs on the command line: options, a cluster's file, what is assumed, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import hocket as api
from hocket.errors import FormatError
from hocket.network import ClusterFile, load_cluster, reduction_s, save_cluster
from tests.unit.cli.test_commands import BRANCHES, Ran, hocket, in_tmp, refused

__all__ = ["in_tmp"]
pytestmark = pytest.mark.usefixtures("in_tmp")

NODES = ("--gpus-per-node", "8", "--intra-bandwidth", "450GB/s", "--nics-per-node", "8")
FAST = {
    "plan": ("--policy", "ddp", "-o", "plan.json"),
    "simulate": ("--iterations", "2"),
    "tune": ("--iterations", "2", "--budget", "100ms"),
    "predict": ("--steps", "4"),
}


def run(command: str, *arguments: str) -> Ran:
    return hocket(command, BRANCHES, *FAST[command], "--workers", "16", *arguments)


def says(ran: Ran, *parts: str) -> None:
    line = refused(ran)
    assert all(part in line for part in parts), line


def cluster(path: str = "cluster.json", **fields: Any) -> str:
    known = {"gpus_per_node": 8, "bandwidth_bps": 4e11, "intra_bandwidth_bps": 3.6e12, "nics_per_node": 8}
    Path(path).write_text(json.dumps({"format": "hocket.cluster/1", **known, **fields}))
    return path


@pytest.mark.parametrize("command", FAST)
def test_every_command_says_what_nodes_it_answers_for(command: str) -> None:
    ran = run(command, *NODES, "--bandwidth", "400Gbit/s")
    assert ran.status == 0, ran.err
    said = ran.out + ran.err
    assert "8 x 400 Gbit/s each way for each node of 8 GPUs" in said
    assert "8 GPUs a node, 8 NICs a node, 450 GB/s inside" in said
    assert "a link of its own" not in said


@pytest.mark.parametrize("command", FAST)
def test_the_answer_for_one_node_names_its_inside_not_its_nics(command: str) -> None:
    ran = run(command, *NODES, "--bandwidth", "400Gbit/s", "--workers", "8")
    assert ran.status == 0, ran.err
    assert "at 450 GB/s inside one node" in ran.out
    assert "each way" not in ran.out


@pytest.mark.parametrize("command", ["simulate", "tune", "predict"])
def test_a_cluster_file_describes_the_same(command: str) -> None:
    keys = ("step_s", "iteration_s")

    def found(*arguments: str) -> list[float]:
        ran = run(command, *arguments, "--json")
        assert ran.status == 0, ran.err
        rows = json.loads(ran.out)
        rows = rows["ranked"][:1] if command == "tune" else rows if isinstance(rows, list) else [rows]
        return [row[key] for row in rows for key in keys if key in row]

    asked = found(*NODES, "--bandwidth", "400Gbit/s", "--latency", "5us")
    assert found("--cluster", cluster(startup_s=5e-6)) == asked
    # Options win over the file.
    slow = cluster("slow.json", bandwidth_bps=1e6, nics_per_node=1, startup_s=5e-6)
    assert found("--cluster", slow, "--bandwidth", "400Gbit/s", "--nics-per-node", "8") == asked
    assert found("--cluster", slow) != asked


def test_sources_of_a_cluster_are_named() -> None:
    ran = run(
        "simulate", "--cluster", cluster(nodes_per_rack=1, oversubscription=2), "--bandwidth", "1Gbit/s"
    )
    assert "given: workers 16, bandwidth 1 Gbit/s" in ran.out
    assert "cluster.json: 8 GPUs a node, 8 NICs a node, 450 GB/s inside" in ran.out
    assert "1 machine a rack, oversubscription 2" in ran.out
    assert "between racks: pattern ring" in ran.out
    found = json.loads(run("simulate", "--cluster", "cluster.json", "--json").out)
    assert found["given"]["cluster"] == "cluster.json"
    assert "nics_per_node" not in found["assumed"]
    one_nic = json.loads(run("simulate", *NODES[:4], "--json").out)
    assert one_nic["assumed"]["nics_per_node"] == 1
    assert one_nic["given"]["intra_bandwidth_bps"] == 3.6e12


def test_racks_are_machines_a_rack_in_every_command() -> None:
    racks = ("--machines-per-rack", "4", "--oversubscription", "8")
    free = ("--latency", "0s", "--json")
    by_command = {
        "simulate": json.loads(run("simulate", *racks, *free).out)["communication_s"],
        "one rack": json.loads(run("simulate", "--pattern", "ring", *free).out)["communication_s"],
    }
    # 16 machines in 4 racks; a rack's uplink is half as fast as one machine's interface.
    assert by_command["simulate"] == pytest.approx(2 * by_command["one rack"])
    same = run("predict", "--racks", "4", "--oversubscription", "8", "--json")
    (row,), (per_rack,) = json.loads(same.out), json.loads(run("predict", *racks, "--json").out)
    assert row["step_s"] == pytest.approx(per_rack["step_s"])


def test_the_next_command_has_the_nodes_too() -> None:
    ran = run("predict", *NODES, "--machines-per-rack", "1", "--oversubscription", "2")
    following = ran.out.splitlines()[-1]
    assert following.startswith("Next: hocket ")
    assert " ".join(NODES) in following
    assert "--machines-per-rack 1 " in following
    assert "--oversubscription 2" in following


def test_nodes_that_are_filled_in_part_are_pointed_out() -> None:
    ran = run("predict", *NODES, "--workers", "4,8,9,12,16")
    assert "9 and 12 workers: the last node is filled in part" in ran.err
    assert "in part" not in run("predict", *NODES, "--workers", "4,8,16").err
    # One NIC is near all GPUs of its node.
    assert "in part" not in run("predict", *NODES, "--nics-per-node", "1", "--workers", "4,8,9").err


def test_the_inside_of_a_node_may_be_the_devices() -> None:
    step = json.loads(Path(BRANCHES).read_text())
    Path("h100.json").write_text(json.dumps({**step, "device": "h100"}))
    ran = hocket("simulate", "h100.json", "--workers", "16", "--gpus-per-node", "8")
    assert "datasheet of h100: 450 GB/s inside" in ran.out
    says(
        run("simulate", "--gpus-per-node", "8"),
        "8 GPUs a node, and the step is of",
        "give --intra-bandwidth, e.g. 450GB/s (an H100's NVLink) or 32GB/s (PCIe 4.0)",
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpus-per-node", "0"), "0 GPUs a node are not from 1 to 1024"),
        (("--nics-per-node", "-1"), "-1 NICs a node are not from 1 to 64"),
        (("--intra-bandwidth", "450GB/s"), "inside of nodes of one GPU; give --gpus-per-node too"),
        ((*NODES[:2], "--intra-bandwidth", "450"), "'450'"),
        (("--oversubscription", "4"), "oversubscription 4 of one rack, whose uplink nothing crosses"),
        (("--machines-per-rack", "0"), "0 nodes a rack are not from 1 to 1000000"),
        ((*NODES, "--architecture", "ps"), "not modelled with parameter servers"),
        ((*NODES, "--pattern", "shuffle"), "pattern 'shuffle' between nodes of 8 GPUs"),
        (("--machines-per-rack", "4", "--pattern", "tree"), "pattern 'tree' between racks is not modelled"),
    ],
)
def test_senseless_nodes_are_refused_in_one_line(arguments: tuple[str, ...], said: str) -> None:
    says(run("simulate", *arguments), said)


def test_racks_and_links_of_machines_are_refused_beside_nodes() -> None:
    says(run("predict", *NODES, "--racks", "2"), "2 racks beside nodes of 8 GPUs")
    says(run("predict", *NODES, "--worker-bandwidth", "1Gbit/s"), "bandwidths of workers beside nodes")
    Path("network.json").write_text('{"format": "hocket.network/1", "bandwidth_bps": 1e9}')
    both = run("simulate", "--cluster", cluster(), "--network", "network.json")
    says(both, "both have a bandwidth; give one of --network and --cluster")


def test_a_cluster_is_written_and_read() -> None:
    file = ClusterFile(
        gpus_per_node=4, bandwidth_bps=25e9, intra_bandwidth_bps=1e12, nodes_per_rack=8, oversubscription=3.0
    )
    save_cluster(file, "mine.json")
    again = load_cluster("mine.json")
    assert again == file
    assert again.nodes == api.Nodes(gpus=4, intra_bps=1e12, per_rack=8, oversubscription=3.0)
    assert reduction_s(again.network(64), 1e8) > 0
    assert "nodes of 4 GPUs (125 GB/s inside) and 1 NIC" in repr(again)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gpus_per_node": 0}, "gpus_per_node"),
        ({"bandwidth_bps": "fast"}, "bandwidth_bps"),
        ({"intra_bandwidth_bps": None}, "8 GPUs a node and nothing between them"),
        ({"oversubscription": 2}, "oversubscription 2 of one rack"),
        ({"format": "hocket.cluster/2"}, "hocket.cluster/1"),
        ({"startup_s": -1}, "startup_s"),
    ],
)
def test_senseless_clusters_are_refused_in_one_line(fields: dict[str, Any], said: str) -> None:
    path = cluster(**fields)
    with pytest.raises(FormatError) as error:
        load_cluster(path)
    assert said in str(error.value)
    says(run("simulate", "--cluster", path), said)


def test_unknown_keys_of_a_cluster_are_named() -> None:
    ran = run("simulate", "--cluster", cluster(nic_per_node=4))
    assert "'nic_per_node' (did you mean 'nics_per_node'?) is ignored; hocket.cluster/1 has" in ran.err
