"""The guide's manifest for Kubernetes: kept to its schemas, and its container run in two nodes of a lab."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from hocket.lab import Lab, LabNode

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "cluster-on-ray.md"
BLOCKS = dict(re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', GUIDE.read_text(), re.DOTALL | re.MULTILINE))
MANIFESTS = list(yaml.safe_load_all(BLOCKS["hocket.yaml"]))
VERSION = "1.37"  # of Kubernetes, which the guide names
# In the first pod itself; what needs a cluster does nothing.
KUBECTL = """kubectl() {
  case $1 in
    exec) shift 3; "$@" ;;
    cp) cp "$2" "${3#hocket-0:}" ;;
    create | apply | port-forward) ;;
  esac
}
"""
LOGS = "hocket cluster logs --state /mnt/hocket/state"


def test_manifests_keep_to_the_schemas_that_the_guide_names() -> None:
    """Run by hand (pip install kubernetes-validate): 17,000 files for one manifest are no part of ``dev``."""
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    assert [each["kind"] for each in MANIFESTS] == ["PersistentVolumeClaim", "Service", "StatefulSet"]
    assert f"schemas of {VERSION}" in GUIDE.read_text()
    for each in MANIFESTS:
        assert kubernetes_validate.validate(each, VERSION, strict=True) == VERSION
    pods = MANIFESTS[2]["spec"]["template"]["spec"]
    pods["containers"][0]["comand"] = ["bash"]
    with pytest.raises(kubernetes_validate.ValidationError, match="comand"):
        kubernetes_validate.validate(MANIFESTS[2], VERSION, strict=True)
    del pods["containers"][0]["comand"]


class Pods:
    """The pods of the guide's StatefulSet, as processes in nodes of a lab: names, mounts, environment."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab, self._folder = lab, folder
        stateful = MANIFESTS[2]
        (self._container,) = stateful["spec"]["template"]["spec"]["containers"]
        name, service = stateful["metadata"]["name"], stateful["spec"]["serviceName"]
        self._names = {node: f"{name}-{node.index}" for node in lab.nodes}
        known = [f"{node.address} {pod} {pod}.{service}\n" for node, pod in self._names.items()]
        (folder / "hosts").write_text("127.0.0.1 localhost\n" + "".join(known))
        (folder / "mnt" / "hocket").mkdir(parents=True)

    def start(self, node: LabNode) -> None:
        """Start a pod's container, and again where it fails, as Kubernetes does."""
        again = ["bash", "-c", 'until "$@"; do sleep 2; done', "again"]
        with open(self._folder / f"{node.name}.txt", "a") as said:
            self._popen(node, [*again, *self._container["command"], *self._container["args"]], said)

    def run_in_first(self, code: str) -> str:
        """Run commands in the first pod, as ``kubectl exec`` does; what they print."""
        process = self._popen(self._lab.nodes[0], ["bash", "-euc", code], subprocess.PIPE)
        said, _ = process.communicate(timeout=300)
        told = "".join(path.read_text() for path in self._folder.glob("*.txt"))
        assert process.returncode == 0, f"{code}\n{said}\n{told}"
        return str(said)

    def states(self) -> list[str]:
        """What each job is doing."""
        told = self.run_in_first("hocket cluster status --state /mnt/hocket/state --all --json 2> /dev/null")
        return [job["state"] for job in json.loads(told)["jobs"]]

    def _popen(self, node: LabNode, command: list[str], said: Any) -> subprocess.Popen[str]:
        """A process with a pod's host name, the names of the others, the volume and a /dev/shm of its own."""
        inside = (
            'hostname "$0"; mount --bind "$1/hosts" /etc/hosts; mount --bind "$1/mnt" /mnt;'
            ' mount -t tmpfs tmpfs /dev/shm; shift; exec "$@"'
        )
        pod = ("unshare", "--uts", "--mount", "sh", "-euc", inside, self._names[node], str(self._folder))
        told = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "RAY_TMPDIR": str(self._folder / node.name),
            "RAY_USAGE_STATS_ENABLED": "0",
            "OMP_NUM_THREADS": "1",
        }
        return self._lab.popen(
            node,
            [*pod, *command],
            told | self._environment(node),
            cwd=self._folder,
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _environment(self, node: LabNode) -> dict[str, str]:
        """What the manifest says, as the cluster would fill it in."""
        filled = {"metadata.name": self._names[node], "status.podIP": node.address}
        found = {}
        for each in self._container["env"]:
            source = each.get("valueFrom", {})
            if "fieldRef" in source:
                found[each["name"]] = filled[source["fieldRef"]["fieldPath"]]
            else:
                found[each["name"]] = each.get("value") or "0f" * 32  # the secret's
        return found


def job_set() -> str:
    """A job on all GPUs, and a replayed one."""
    times = {"model": "m", "arrival_s": 0, "forward_s": 0.05, "backward_s": 0.05, "size_bytes": 4e5}
    where = {"id": "where", "gpus": 16, "iterations": 1, "command": ["hostname"]}
    pair = {"id": "pair", "gpus": 2, "iterations": 5}
    jobs = [each | times | {"memory_bytes": 1e9} for each in (where, pair)]
    return json.dumps({"format": "hocket.jobs/1", "jobs": jobs})


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_containers_run_the_two_jobs_that_the_guides_commands_submit(name: str, folder: Path) -> None:
    pytest.importorskip("ray")
    (folder / "jobs.json").write_text(job_set())
    with Lab(nodes=2, rate_bps=1e9, name=name) as lab:
        pods = Pods(lab, folder)
        for node in lab.nodes:
            pods.start(node)
        pods.run_in_first(KUBECTL + BLOCKS["on a Kubernetes cluster"])
        seen = pods.run_in_first("".join(f"{LOGS} where --rank {rank} --follow\n" for rank in range(16)))
        pods.run_in_first(f"{LOGS} pair --follow")
        states = pods.states()
    assert {"hocket-0", "hocket-1"} <= set(seen.split())
    assert states == ["finished"] * 2
