"""All-reduces between nodes of several GPUs: beside rings and trees step by step, and what must hold."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.errors import HocketError
from hocket.network import (
    MeasuredReduction,
    Network,
    Nodes,
    PatternChoice,
    check_exchange,
    choose_pattern,
    collective_cost,
    half_costs,
    halves_s,
    number_s,
    patterns_of,
    reduction_s,
)
from hocket.network.node_collectives import IN_SWITCH, INSIDE, LAUNCH_S, PROTOCOLS, TREE
from tests.naive.ring import Link, halves_sent, ring_s

NVLINK = 8 * 450e9
SLOT = 8 * 32e9
SIZES = st.floats(0.0, 1e10)


def network(workers: int, nodes: Nodes | None, **more: Any) -> Network:
    fields: dict[str, Any] = {"bandwidth_bps": 400e9, "startup_s": 5e-6, **more}
    return Network(num_workers=workers, nodes=nodes, **fields)


H100S = Nodes(gpus=8, intra_bps=NVLINK, nics=8)


@st.composite
def clusters(draw: st.DrawFn) -> Network:
    gpus = draw(st.integers(1, 9))
    nodes = Nodes(
        gpus=gpus,
        intra_bps=draw(st.floats(1e9, 1e13)),
        nics=draw(st.integers(1, 9)),
        intra_startup_s=draw(st.sampled_from([0.0, 1e-6, 1e-3])),
        in_switch=gpus > 1 and draw(st.booleans()),
    )
    return network(
        draw(st.integers(1, 40)),
        nodes,
        bandwidth_bps=draw(st.floats(1e8, 1e12)),
        startup_s=draw(st.sampled_from([0.0, 5e-6, 1e-3])),
        parse_s=draw(st.sampled_from([0.0, 1e-5])),
        parse_s_per_byte=draw(st.sampled_from([0.0, 1e-10])),
    )


def with_nodes(of: Network, **changed: Any) -> Network:
    assert of.nodes is not None
    return dataclasses.replace(of, nodes=dataclasses.replace(of.nodes, **changed))


@given(
    gpus=st.integers(2, 6),
    workers=st.integers(2, 20),
    protocol=st.sampled_from(["LL", "Simple"]),
    size=SIZES,
    startups=st.lists(st.floats(1e-9, 1e-3), min_size=2, max_size=2).map(sorted),
    rates=st.tuples(st.floats(1e9, 4e11), st.floats(1e8, 1e12)),
)
def test_a_ring_takes_what_its_chunks_take_over_the_links_one_by_one(
    gpus: int, workers: int, protocol: Any, size: float, startups: list[float], rates: tuple[float, float]
) -> None:
    nodes = Nodes(gpus=gpus, intra_bps=rates[0], intra_startup_s=startups[0])
    cluster = network(workers, nodes, bandwidth_bps=rates[1], startup_s=startups[1])
    known = PROTOCOLS[protocol]
    inside = Link(startups[0] + known.inside_s, 8 / (INSIDE * rates[0] * known.reached))
    between = Link(startups[1] + known.between_s, 8 / (rates[1] * known.reached))
    filled = [min(gpus, workers - first) for first in range(0, workers, gpus)]
    cost = collective_cost(f"ring {protocol}", cluster)  # type: ignore[arg-type]
    startups_s = cost.latency_s - LAUNCH_S
    assert ring_s(filled, 0.0, inside, between) == pytest.approx(startups_s, rel=1e-9)
    bytes_s = ring_s(filled, size, inside._replace(startup_s=0.0), between._replace(startup_s=0.0))
    assert bytes_s == pytest.approx(cost.wire_s_per_byte * size, rel=1e-9, abs=1e-15)
    together_s = ring_s(filled, size, inside, between)
    least_s = max(startups_s, bytes_s)
    assert least_s * (1 - 1e-9) <= together_s <= (startups_s + bytes_s) * (1 + 1e-9)
    if len(filled) == 1:
        assert together_s == pytest.approx(startups_s + bytes_s, rel=1e-9)


@given(st.integers(2, 300))
def test_no_node_sends_more_in_two_trees_than_twice_the_batch(num_nodes: int) -> None:
    assert max(halves_sent(num_nodes)) <= min(2, num_nodes - 1)


def test_a_tree_is_a_chain_inside_and_two_binary_trees_between() -> None:
    known = PROTOCOLS["Simple"]
    four = collective_cost("tree Simple", network(32, H100S))
    assert four.latency_s == pytest.approx(
        LAUNCH_S + 14 * (0.6e-6 + known.inside_s) + 4 * (5e-6 + known.between_s)
    )
    inside_s, between_s = 2 * 7 / 8 / (TREE * INSIDE * 450e9), 2 / (TREE * 8 * 50e9)
    assert four.wire_s_per_byte == pytest.approx(max(inside_s, between_s))
    slow = dataclasses.replace(network(32, H100S), bandwidth_bps=100e9)
    assert collective_cost("tree Simple", slow).wire_s_per_byte == pytest.approx(4 * between_s)
    two = dataclasses.replace(slow, num_workers=16)
    assert collective_cost("tree Simple", two).wire_s_per_byte == pytest.approx(2 * between_s)


def test_switches_that_sum_up_pass_a_byte_once() -> None:
    summing = dataclasses.replace(H100S, in_switch=True)
    one = collective_cost("in-switch Simple", network(8, summing))
    assert one.wire_s_per_byte == pytest.approx(1 / (IN_SWITCH * 450e9))
    assert choose_pattern(network(8, summing), 1e9) == "in-switch Simple"
    assert choose_pattern(network(8, H100S), 1e9) == "ring Simple"


@given(clusters(), SIZES, st.integers(1, 8))
def test_nodes_of_one_gpu_are_the_flat_network(cluster: Network, size: float, chunks: int) -> None:
    flat = dataclasses.replace(cluster, nodes=None)
    alone = dataclasses.replace(cluster, nodes=Nodes(gpus=1))
    assert reduction_s(alone, size, chunks) == reduction_s(flat, size, chunks)
    assert halves_s(alone, size, chunks) == halves_s(flat, size, chunks)
    assert number_s(alone) == number_s(flat)
    twice = dataclasses.replace(cluster, nodes=Nodes(gpus=1, nics=2))
    doubled = dataclasses.replace(flat, bandwidth_bps=2 * flat.bandwidth_bps)
    assert reduction_s(twice, size, chunks) == reduction_s(doubled, size, chunks)


@given(clusters(), SIZES, st.integers(1, 8))
def test_more_of_anything_is_never_slower(cluster: Network, size: float, chunks: int) -> None:
    assert cluster.nodes is not None
    assert cluster.nodes.intra_bps is not None
    now_s = reduction_s(cluster, size, chunks)
    better = [
        with_nodes(cluster, nics=cluster.nodes.nics + 1),
        with_nodes(cluster, intra_bps=2 * cluster.nodes.intra_bps),
        with_nodes(cluster, intra_startup_s=0.0),
        with_nodes(cluster, in_switch=cluster.nodes.gpus > 1),
        dataclasses.replace(cluster, bandwidth_bps=2 * cluster.bandwidth_bps),
        dataclasses.replace(cluster, startup_s=0.0),
    ]
    assert all(reduction_s(other, size, chunks) <= now_s for other in better)
    assert reduction_s(cluster, 2 * size, chunks) >= now_s
    assert sum(halves_s(cluster, size, chunks)) >= 0.0


@given(clusters(), SIZES)
def test_inside_of_one_node_no_interface_counts(cluster: Network, size: float) -> None:
    assert cluster.nodes is not None
    inside = dataclasses.replace(cluster, num_workers=min(cluster.num_workers, cluster.nodes.gpus))
    slow = dataclasses.replace(inside, bandwidth_bps=1.0, startup_s=100.0)
    assert reduction_s(slow, size) == reduction_s(inside, size)


def test_a_part_of_a_node_has_the_nics_near_its_gpus() -> None:
    assert H100S.out_bps(400e9, 16) == 8 * 400e9
    assert H100S.out_bps(400e9, 9) == 400e9
    assert H100S.out_bps(400e9, 12) == 4 * 400e9
    assert Nodes(gpus=8, intra_bps=SLOT, nics=2).out_bps(25e9, 11) == 25e9
    assert Nodes(gpus=8, intra_bps=SLOT, nics=2).out_bps(25e9, 13) == 2 * 25e9
    assert [H100S.count(n) for n in (1, 8, 9, 512)] == [1, 1, 2, 64]
    assert [H100S.in_last(n) for n in (1, 8, 9, 512)] == [1, 8, 1, 8]


def test_racks_hold_rings_up_by_their_uplinks() -> None:
    racks = dataclasses.replace(H100S, per_rack=4, oversubscription=8.0)
    assert racks.racks(32) == 1
    assert racks.racks(33) == 2
    assert racks.out_bps(400e9, 32) == 8 * 400e9
    assert racks.out_bps(400e9, 64) == 400e9 * 4 * 8 / 8
    assert all("ring" in way for way in patterns_of(network(64, racks)))
    assert reduction_s(network(32, racks), 1e8) == reduction_s(network(32, H100S), 1e8)
    free = dataclasses.replace(racks, oversubscription=1.0)
    assert reduction_s(network(64, free), 1e10) < reduction_s(network(64, racks), 1e10)
    # Nodes of one GPU, the flat network: a rack of 4 machines and 8 times too little above.
    flat = Nodes(gpus=1, per_rack=4, oversubscription=8.0)
    half = Network(num_workers=8, bandwidth_bps=5e9, pattern="ring")
    assert reduction_s(Network(num_workers=8, bandwidth_bps=10e9, nodes=flat), 1e6) == reduction_s(half, 1e6)


def test_protocols_are_chosen_by_size() -> None:
    one = network(8, H100S)
    assert [choose_pattern(one, size).split(" ")[1] for size in (8.0, 2e6, 1e9)] == ["LL", "LL128", "Simple"]
    many = network(512, H100S)
    assert choose_pattern(many, 1e4).startswith("tree")
    assert choose_pattern(network(64, H100S), 1e10) == "ring Simple"
    cards = network(8, Nodes(gpus=8, intra_bps=SLOT))
    assert not any("LL128" in way for way in patterns_of(cards))
    assert number_s(many) == pytest.approx(reduction_s(many, 8.0))
    assert number_s(network(1, H100S)) == 0.0 == reduction_s(network(1, H100S), 1e9)


@pytest.mark.parametrize("pattern", ["ring", "tree"])
def test_a_pattern_that_is_asked_for_is_the_only_one(pattern: PatternChoice) -> None:
    asked = network(64, H100S, pattern=pattern)
    assert {way.split(" ")[0] for way in patterns_of(asked)} == {pattern}
    # Halves go in rings, whatever reductions do, and each is launched.
    scatter, gather = half_costs(asked)[0]
    whole = collective_cost("ring LL", asked)
    assert scatter.latency_s + gather.latency_s == pytest.approx(whole.latency_s + LAUNCH_S)
    assert scatter.wire_s_per_byte + gather.wire_s_per_byte == pytest.approx(whole.wire_s_per_byte)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"gpus": 0, "intra_bps": 1e9}, "0 GPUs a node are not from 1 to 1024; give e.g. 8"),
        ({"gpus": 2.0, "intra_bps": 1e9}, "2.0 GPUs a node: give a whole number"),
        ({"gpus": 8}, "8 GPUs a node and nothing between them; give what one GPU sends to the others"),
        ({"gpus": 8, "intra_bps": 0}, "inside of a node: bandwidth 0 bit/s is not between 1 and 1e18"),
        ({"gpus": 8, "intra_bps": 1e9, "nics": 0}, "0 NICs a node are not from 1 to 64"),
        ({"gpus": 8, "intra_bps": 1e9, "nics": True}, "True NICs a node: give a whole number"),
        (
            {"gpus": 8, "intra_bps": 1e9, "intra_startup_s": -1},
            "startup inside of a node -1 s is neither 0 nor",
        ),
        ({"gpus": 1, "in_switch": True}, "switches that sum up inside of nodes of one GPU; leave them out"),
        ({"gpus": 1, "per_rack": 0}, "0 nodes a rack are not from 1 to 1000000"),
        ({"gpus": 1, "per_rack": 4, "oversubscription": 0.5}, "oversubscription 0.5 is not between 1 (none)"),
        ({"gpus": 1, "oversubscription": 4}, "oversubscription 4 of one rack, whose uplink nothing crosses"),
    ],
)
def test_senseless_nodes_are_refused_in_one_line(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(HocketError) as refused:
        Nodes(**fields)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"nodes": 8}, "nodes 8 is not a Nodes"),
        ({"nodes": H100S, "pattern": "shuffle"}, "pattern 'shuffle' between nodes of 8 GPUs"),
        ({"nodes": H100S, "pattern": "cheapest"}, "is not modelled; use ring or tree"),
        (
            {"nodes": Nodes(gpus=1, per_rack=2), "pattern": "tree"},
            "pattern 'tree' between racks is not modelled; use ring or one rack",
        ),
        (
            {"nodes": H100S, "reduction": MeasuredReduction(workers=4, a_s=1e-3, b_s_per_byte=1e-9)},
            "an all-reduce measured between 4 workers says nothing of nodes of 8 GPUs",
        ),
    ],
)
def test_what_nodes_do_not_go_with_is_refused(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(HocketError) as refused:
        Network(num_workers=16, **fields)
    assert said in str(refused.value)


def test_parameter_servers_have_no_nodes() -> None:
    with pytest.raises(HocketError, match=r"nodes of 8 GPUs .* not modelled with parameter servers"):
        check_exchange(network(16, H100S), "ps")
    check_exchange(network(16, H100S), "allreduce")


def test_nodes_say_what_they_are() -> None:
    text = repr(network(16, H100S))
    assert "nodes of 8 GPUs (450 GB/s inside) and 8 NICs" in text
    assert "400 Gbit/s a NIC" in text
    racks = Nodes(gpus=4, intra_bps=SLOT, per_rack=16, oversubscription=3.0)
    assert racks.text == ("nodes of 4 GPUs (32 GB/s inside) and 1 NIC, 16 a rack, uplinks 3x oversubscribed")
    assert "oversubscription 3" in repr(racks)
    assert "16 nodes a rack" in repr(racks)


@pytest.mark.parametrize(
    ("gpus", "workers", "several"),
    [(8, 16, True), (8, 8, False), (8, 20, False), (8, 4, False), (1, 4, False)],
)
def test_workers_fill_several_nodes_where_none_is_filled_in_part(
    gpus: int, workers: int, several: bool
) -> None:
    nodes = Nodes(gpus=gpus, intra_bps=None if gpus == 1 else 1e12)
    assert nodes.fills_several(workers) is several
