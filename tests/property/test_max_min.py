"""Max-min rates against their naive twin, their definition, and the rule for two servers of a paper."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.network.max_min import max_min_bps
from hocket.network.topology import Topology
from tests.naive.max_min import Flow, capacities, path, rates
from tests.strategies import examples, topologies


def pairs(topology: Topology) -> list[Flow]:
    """All flows in the order of ``routes``."""
    workers, servers = len(topology.worker_bps), len(topology.server_bps)
    return [(way, w, s) for way in ("pull", "push") for w in range(workers) for s in range(servers)]


def shared(topology: Topology, flows: list[Flow]) -> dict[Flow, float]:
    rows = [pairs(topology).index(flow) for flow in flows]
    bps = max_min_bps(topology.routes()[rows], topology.capacity_bps())
    return dict(zip(flows, bps.tolist(), strict=True))


@st.composite
def sending(draw: st.DrawFn) -> tuple[Topology, list[Flow]]:
    topology = draw(topologies(draw(st.integers(1, 5)), draw(st.integers(1, 4))))
    return topology, draw(st.lists(st.sampled_from(pairs(topology)), unique=True))


@given(sending())
@examples(150)
def test_rates_are_those_of_the_naive_twin(case: tuple[Topology, list[Flow]]) -> None:
    topology, flows = case
    assert shared(topology, flows) == pytest.approx(rates(topology, flows), rel=1e-9)


@given(sending())
@examples(150)
def test_links_hold_and_every_flow_is_stopped_by_one_where_nobody_has_more(
    case: tuple[Topology, list[Flow]],
) -> None:
    topology, flows = case
    bps = shared(topology, flows)
    over = {link: [bps[f] for f in flows if link in path(topology, f)] for link in capacities(topology)}
    full = set()
    for link, capacity in capacities(topology).items():
        assert sum(over[link]) <= capacity * (1 + 1e-9)
        if sum(over[link]) >= capacity * (1 - 1e-9):
            full.add(link)
    for flow in flows:
        assert any(
            bps[flow] >= max(over[link]) * (1 - 1e-9) for link in full.intersection(path(topology, flow))
        )


@given(st.data())
@examples(200)
def test_two_servers_share_as_the_throughput_prediction_paper_says(data: st.DataObject) -> None:
    workers = data.draw(st.integers(1, 6))
    topology = Topology(worker_bps=(1.0,) * workers, server_bps=(1.0, 1.0))
    way = data.draw(st.sampled_from(["pull", "push"]))
    at_one, at_two = (data.draw(st.sets(st.integers(0, workers - 1))) for _ in range(2))
    bps = shared(topology, [(way, w, s) for s, here in enumerate((at_one, at_two)) for w in here])
    for s, (here, there) in enumerate([(at_one, at_two), (at_two, at_one)]):
        rule = 1 / max(1, len(here))
        if len(here) == 1 and len(there) >= 2 and here <= there:
            rule = 1 - 1 / len(there)
        elif here == there and len(here) == 1:
            rule = 1 / 2
        assert [bps[way, w, s] for w in here] == pytest.approx([rule] * len(here))


def test_a_worker_held_back_at_one_server_leaves_its_share_to_others() -> None:
    topology = Topology(worker_bps=(1.0, 1.0), server_bps=(1.0, 1.0, 1.0))
    flows = [("pull", 0, 0), ("pull", 0, 1), ("pull", 0, 2), ("pull", 1, 0)]
    assert list(shared(topology, flows).values()) == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2 / 3])


def test_an_oversubscribed_uplink_is_shared_by_what_leaves_the_rack() -> None:
    topology = Topology(worker_bps=(1.0,) * 4, server_bps=(2.0, 2.0), racks=2, oversubscription=8)
    bps = shared(topology, [("pull", w, 0) for w in range(4)])
    # Workers 2 and 3 share a half behind server 0's uplink; 0 and 1 share the rest of its interface.
    assert list(bps.values()) == pytest.approx([0.75, 0.75, 0.25, 0.25])
    assert np.isclose(topology.uplink_bps, 0.5).all()
