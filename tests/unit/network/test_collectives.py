"""What an AllReduce costs: Table I of the contention paper by hand, chunks one by one."""

from __future__ import annotations

import dataclasses
import math

import pytest

from hocket.network import (
    PATTERNS,
    Network,
    Pattern,
    PatternChoice,
    choose_pattern,
    collective_cost,
    reduction_s,
)

STARTUP, PARSE, BETA, GAMMA = 0.01, 0.002, 1e-6, 4e-7
SIZE = 1000.0


def network(num_workers: int, pattern: PatternChoice | None = None) -> Network:
    return Network(
        bandwidth_bps=8 / BETA,
        startup_s=STARTUP,
        parse_s=PARSE,
        parse_s_per_byte=GAMMA,
        num_workers=num_workers,
        pattern=pattern,
    )


# For each pattern and number of workers: startups, messages parsed, and how often a byte is sent and reduced.
TABLE: list[tuple[Pattern, int, int, int, float, float]] = [
    ("ring", 2, 2, 2, 1.0, 0.5),
    ("ring", 4, 6, 6, 1.5, 0.75),
    ("ring", 6, 10, 10, 10 / 6, 5 / 6),
    ("ring", 8, 14, 14, 1.75, 0.875),
    ("halving-doubling", 2, 2, 2, 1.0, 0.5),
    ("halving-doubling", 4, 4, 4, 1.5, 0.75),
    ("halving-doubling", 6, 6, 6, 1.5 + 2, 0.75 + 1),  # 4 workers, and 2 that fold into partners
    ("halving-doubling", 8, 6, 6, 1.75, 0.875),
    ("tree", 2, 2, 2, 2.0, 1.0),
    ("tree", 4, 4, 4, 4.0, 2.0),
    ("tree", 6, 6, 6, 6.0, 3.0),
    ("tree", 8, 6, 6, 6.0, 3.0),
    ("shuffle", 2, 2, 2, 1.0, 0.5),
    ("shuffle", 4, 2, 6, 1.5, 0.75),
    ("shuffle", 6, 2, 10, 10 / 6, 5 / 6),
    ("shuffle", 8, 2, 14, 1.75, 0.875),
]


@pytest.mark.parametrize(("pattern", "workers", "startups", "messages", "sent", "reduced"), TABLE)
def test_collectives_cost_what_table_1_says(
    pattern: Pattern, workers: int, startups: int, messages: int, sent: float, reduced: float
) -> None:
    expected = startups * STARTUP + messages * PARSE + (sent * BETA + reduced * GAMMA) * SIZE
    assert reduction_s(network(workers, pattern), SIZE) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_one_worker_has_nothing_to_reduce(pattern: Pattern) -> None:
    assert reduction_s(network(1, pattern), 1e9, chunks=4) == 0.0


def pipeline(send_s: float, receive_s: float, chunks: int) -> float:
    """Chunk after chunk through the wire and then through the receiver."""
    sent = received = 0.0
    for _ in range(chunks):
        sent += send_s
        received = max(received, sent) + receive_s
    return received


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("workers", [2, 6, 8])
@pytest.mark.parametrize("chunks", [1, 2, 3, 8])
@pytest.mark.parametrize("size", [0.0, 1e3, 1e6, 1e8])
def test_chunks_are_a_pipeline(pattern: Pattern, workers: int, chunks: int, size: float) -> None:
    cost = collective_cost(pattern, network(workers, pattern))
    send_s = cost.wire_s_per_byte * size / chunks
    receive_s = cost.handling_s + cost.reduce_s_per_byte * size / chunks
    expected = cost.latency_s + pipeline(send_s, receive_s, chunks)
    assert cost.seconds(size, chunks) == pytest.approx(expected, rel=1e-12)
    assert reduction_s(network(workers, pattern), size, chunks) == cost.seconds(size, chunks)


def test_chunks_overlap_wire_and_reduction() -> None:
    # Two workers on a ring: 1 s on the wire, 0.4 * 0.5 s of reducing, 2 startups, 2 messages a chunk.
    two = network(2, "ring")
    assert reduction_s(two, 1e6) == pytest.approx(0.02 + 1.0 + 0.004 + 0.2)
    # Four chunks: the wire is the longer stage, and only the last chunk is reduced after it.
    assert reduction_s(two, 1e6, 4) == pytest.approx(0.02 + 1.0 + 0.004 + 0.05)
    # Small ones: every chunk pays its messages.
    assert reduction_s(two, 0.0, 4) == pytest.approx(0.02 + 4 * 0.004)


def test_a_network_keeps_its_own_pattern() -> None:
    assert all(choose_pattern(network(8, pattern), 1e9) == pattern for pattern in PATTERNS)


def test_the_cheapest_pattern_for_a_size() -> None:
    # Without parse costs a shuffle has the fewest startups and no more bytes than a ring.
    assert choose_pattern(Network(num_workers=8, startup_s=1e-3, pattern="cheapest"), 1e6) == "shuffle"
    # With them its 14 messages cost more than 6 of halving and doubling.
    parsing = Network(num_workers=8, parse_s=1e-3, pattern="cheapest")
    assert choose_pattern(parsing, 1e6) == "halving-doubling"
    # Six workers would have to fold: many bytes go round a ring.
    six = Network(num_workers=6, parse_s=1e-3, pattern="cheapest")
    assert choose_pattern(six, 1e3) == "halving-doubling"
    assert choose_pattern(six, 1e9) == "ring"
    # Chunks multiply messages and may change the choice.
    assert choose_pattern(six, 1e7) == "ring"
    assert choose_pattern(six, 1e7, chunks=8) == "halving-doubling"


def test_unless_asked_all_reduces_run_as_in_nccl_and_gloo() -> None:
    """512 workers that sent straight to each other would start twice; those in a ring start 1,022 times."""
    many = Network(num_workers=512, bandwidth_bps=100e9, startup_s=20e-6)
    assert choose_pattern(many, 100e6) == "ring"
    assert choose_pattern(many, 1e3) == "tree"
    assert reduction_s(many, 100e6) == reduction_s(dataclasses.replace(many, pattern="ring"), 100e6)
    assert reduction_s(many, 1e3) == reduction_s(dataclasses.replace(many, pattern="tree"), 1e3)
    assert reduction_s(dataclasses.replace(many, pattern="cheapest"), 100e6) < reduction_s(many, 100e6)
    # Without startups nothing is less than what a ring sends.
    assert choose_pattern(Network(num_workers=512), 1.0) == "ring"


@pytest.mark.parametrize("workers", [1, 2, 3, 8, 13])
def test_no_pattern_beats_the_choice(workers: int) -> None:
    for size in (0.0, 10.0, 1e4, 1e7):
        costs = [reduction_s(network(workers, pattern), size, 2) for pattern in PATTERNS]
        assert reduction_s(network(workers, "cheapest"), size, 2) == min(costs)
        assert math.isfinite(min(costs))
