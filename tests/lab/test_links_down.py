"""Links of a lab that go down and come back while a cluster's jobs transfer over them."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from hocket.cluster.live.nodes import lab_nodes
from hocket.lab import Lab, LabNode
from hocket.lab.namespaces import NodeLink
from tests.unit.cluster.live.clusters import LIMIT_S, live_job, running


def set_link(node: LabNode, state: str) -> None:
    command = ("ip", "-n", node.namespace, "link", "set", node.interface, state)
    subprocess.run(command, check=True, timeout=30)


def test_a_link_tells_that_it_is_down_and_lets_its_lab_end(name: str) -> None:
    with Lab(nodes=2, rate_bps=100e6, name=name) as lab:
        node = lab.nodes[1]
        link = NodeLink(node.namespace, node.interface)
        for state in ("up", "down", "up"):
            set_link(node, state)
            deadline = time.monotonic() + LIMIT_S
            while link.is_down() is not (state == "down"):  # the kernel may tell of it a moment later
                assert time.monotonic() < deadline
                time.sleep(0.01)
    assert not link.is_down()  # nor is it there
    assert link._socket is None


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_job_whose_link_was_down_is_tried_again_and_has_not_failed_by_itself(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link is back before its node is given up, and after its connections were."""
    monkeypatch.setattr("tests.unit.cluster.live.clusters.LIMIT_S", 120.0)
    job = live_job("a", 2, iterations=40, size_bytes=2e6)
    with (
        Lab(nodes=2, rate_bps=100e6, name=name) as lab,
        running(
            tmp_path, [job], nodes=lab_nodes(tmp_path, lab), gpus=1, restarts=1, lost_after_s=600.0
        ) as cluster,
    ):
        cluster.until(lambda s: s.jobs[0].iteration > 2)
        set_link(lab.nodes[1], "down")
        try:
            cluster.until(lambda s: s.silent == ("node1",))
            run = cluster.manager._context.runs["a"]
            cluster.until(lambda _: run.ending is not None)
        finally:
            set_link(lab.nodes[1], "up")
        cluster.until(lambda s: not s.silent)
        record = cluster.join(120.0)["a"]
    assert (record.state, record.attempt) == ("finished", 2)
    assert (record.own_failures, record.lost_attempts) == (0, 0)
    (tried,) = record.tried
    assert "rank 0 on node0 lost its connection to rank 1 on node1: " in tried.why
