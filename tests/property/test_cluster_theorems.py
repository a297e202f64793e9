"""Two and three transfers: what admission decides, against closed forms and brute force over start times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.policies.kway import total_finish
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.simulator.simulate import simulate
from tests.strategies import examples

B, ETA = 1e-9, 0.275e-9
THRESHOLD = B / (2 * (B + ETA))
COMPUTE_S = 1e-6
CLOSE = 2e-5  # computing delays transfers by so much
SIZES = st.floats(1e8, 2e9)


def ends_s(policy: str, sizes: list[float], ready_s: list[float]) -> list[float]:
    """When transfers between the same two servers end, each of a job of its own that hardly computes."""
    cluster = Cluster(
        num_servers=2, gpus_per_server=1, startup_s=0.0, per_byte_s=B, contention_per_byte_s=ETA
    )
    jobs = [
        Job(
            id=str(i),
            model="toy",
            gpus=2,
            iterations=1,
            arrival_s=ready,
            forward_s=0.0,
            backward_s=COMPUTE_S,
            size_bytes=size,
            memory_bytes=0.0,
        )
        for i, (size, ready) in enumerate(zip(sizes, ready_s, strict=True))
    ]
    run = simulate(JobSet(jobs=tuple(jobs)), cluster, Scheduling(placement="ff", policy=policy))
    return run.finish_s.tolist()


def total_if_started(left: list[float], size: float, start_s: float) -> float:
    """Finish times added up, of transfers that run from 0 on and one that starts later: fluid, Eq. 5."""
    rest = dict(enumerate(left))
    now, total, joined = 0.0, 0.0, False
    while rest or not joined:
        if not joined and now >= start_s:
            rest[-1], joined = size, True
        k = len(rest)
        cost = k * B + (k - 1) * ETA
        step = min([amount * cost for amount in rest.values()] + ([] if joined else [start_s - now]))
        now += step
        rest = {i: amount - step / cost if k else amount for i, amount in rest.items()}
        for i in [i for i, amount in rest.items() if amount <= 1e-3]:
            del rest[i]
            total += now
    return total


@examples(60)
@given(small=SIZES, large=SIZES)
def test_of_two_at_once_the_smaller_goes_first(small: float, large: float) -> None:
    """Theorem 1: both at 0, M1 <= M2: one after the other, (2 b M1 + b M2) / 2 on average (Eq. 14a)."""
    small, large = min(small, large), max(small, large)
    assume(large > small * 1.01)
    # The smaller one's job has the shorter service, computes first and is ready first.
    assert sum(ends_s("ada-srsf", [small, large], [0.0, 0.0])) == pytest.approx(
        2 * B * small + B * large, abs=CLOSE
    )


@examples(100)
@given(size=SIZES, left=SIZES, ran_s=st.floats(0.01, 1.0), policy=st.sampled_from(["ada-srsf", "kway"]))
def test_second_starts_when_theorem_2_says(size: float, left: float, ran_s: float, policy: str) -> None:
    """One runs and has ``left`` bytes: the average is the least of all start times of the second."""
    assume(abs(size / left - THRESHOLD) > 1e-3)
    ends = ends_s(policy, [left + ran_s / B, size], [0.0, ran_s])
    total = sum(ends) - 2 * ran_s
    if size / left < THRESHOLD:
        closed = 2 * (2 * B + ETA) * size + B * (left - size)
    else:
        closed = 2 * B * left + B * size
    assert total == pytest.approx(closed, abs=CLOSE)
    tried = [total_if_started([left], size, start) for start in np.linspace(0.0, B * left, 50)]
    assert total <= min(tried) + CLOSE


@examples(100)
@given(lefts=st.lists(SIZES, min_size=1, max_size=4), size=SIZES)
def test_kway_is_best_of_all_start_times(lefts: list[float], size: float) -> None:
    """Total finish times of starting after each completion, against brute force; the best of them is best."""
    left = np.array(sorted(lefts))
    totals = [total_finish(left, len(left), size, after, B, ETA) for after in range(len(left) + 1)]
    ends, time, moved = [0.0], 0.0, 0.0
    for i, amount in enumerate(left):
        k = len(left) - i
        time += (amount - moved) * (k * B + (k - 1) * ETA)
        moved = amount
        ends.append(time)
    for total, start in zip(totals, ends, strict=True):
        assert total == pytest.approx(total_if_started(left.tolist(), size, start), abs=1e-6)
    grid = np.linspace(0.0, time, 40)
    assert min(totals) <= min(total_if_started(left.tolist(), size, start) for start in grid) + 1e-6


@examples(200)
@given(first=SIZES, second=SIZES, size=SIZES)
def test_third_starts_when_the_closed_form_says(first: float, second: float, size: float) -> None:
    """Two run with R1 <= R2 left, M <= R1."""
    r1, r2 = min(first, second), max(first, second)
    assume(size <= r1)
    after_first = ((2 * B + ETA) * r1 + B * (r2 - r1)) / (4 * (B + ETA))
    after_all = (2 * B + ETA) / (2 * (B + ETA)) * r1
    assume(min(abs(size / after_first - 1), abs(size / after_all - 1), abs(size / (r2 - r1 + 1) - 1)) > 1e-6)
    starts = size < after_first and (size >= r2 - r1 or size < after_all)
    left = np.array([r1, r2])
    totals = [total_finish(left, 2, size, after, B, ETA) for after in range(3)]
    assert starts == (totals[0] <= min(totals))


def test_srsf_2_shares_a_link_at_the_rate_of_equation_5() -> None:
    sizes = [3e8, 1e9]
    ends = ends_s("srsf-2", sizes, [0.0, 0.0])
    both = (2 * B + ETA) * sizes[0]
    assert ends == pytest.approx([both, both + B * (sizes[1] - sizes[0])], abs=CLOSE)


def test_srpt_preempts_at_the_end_of_a_chunk_and_pays_for_each() -> None:
    """A small transfer comes while a chunk of a large one is under way: it waits for that chunk's end."""
    cluster = Cluster(num_servers=2, gpus_per_server=1, startup_s=0.01, per_byte_s=B)
    jobs = [
        Job(
            id=str(i),
            model="toy",
            gpus=2,
            iterations=1,
            arrival_s=arrival,
            forward_s=0.0,
            backward_s=0.001,
            size_bytes=size,
            memory_bytes=0.0,
        )
        for i, (size, arrival) in enumerate([(1e9, 0.0), (1e8, 0.25)])
    ]
    run = simulate(
        JobSet(jobs=tuple(jobs)), cluster, Scheduling(placement="ff", policy="srpt", chunk_bytes=1e8)
    )
    # Chunks take 0.11 s each: the third of the large one is over at 0.331 s.
    assert run.finish_s == pytest.approx([0.001 + 11 * 0.11, 0.331 + 0.11])
    assert run.network_wait_s == pytest.approx([0.11, 0.331 - 0.251])
