"""Users, priorities, quotas and fair shares, on cases worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from hocket.cluster.cluster import Cluster
from hocket.cluster.engine.scheduling import Scheduling
from hocket.cluster.engine.users import check_users
from hocket.cluster.jobs import Job, JobSet
from hocket.cluster.simulator.simulate import ClusterRun, simulate
from hocket.errors import HocketError, UnknownNameError


def job(name: str, gpus: int, seconds: int, arrival_s: float, user: str = "", priority: int = 0) -> Job:
    return Job(
        id=name, model="toy", gpus=gpus, iterations=seconds, arrival_s=arrival_s, forward_s=0.25,
        backward_s=0.75, size_bytes=0.0, memory_bytes=1e9, user=user, priority=priority,
    )  # fmt: skip


def run(*jobs: Job, **scheduling: Any) -> ClusterRun:
    """On one server of eight GPUs that nobody shares."""
    chosen = Scheduling(**{"placement": "ff", "policy": "srsf-1", "jobs_per_gpu": 1} | scheduling)
    return simulate(JobSet(jobs=jobs), Cluster(num_servers=1, gpus_per_server=8), chosen)


POLICIES = ["srsf-1", "ada-srsf", "tiresias", "fifo", "strict-fifo", "psrsf", "kway", "fair-share"]


@pytest.mark.parametrize("policy", POLICIES)
def test_who_has_priority_is_placed_first_whatever_the_policy(policy: str) -> None:
    jobs = [job("now", 8, 10, 0.0)]
    jobs += [job("low", 8, 1, 1.0, priority=-1), job("usual", 8, 5, 2.0), job("high", 8, 9, 3.0, priority=2)]
    assert run(*jobs, policy=policy).start_s.tolist() == [0.0, 24.0, 19.0, 10.0]


def test_of_one_priority_the_policy_says() -> None:
    jobs = [job("now", 8, 10, 0.0), job("long", 8, 9, 1.0, priority=1), job("short", 8, 2, 2.0, priority=1)]
    assert run(*jobs).start_s.tolist() == [0.0, 12.0, 10.0]
    assert run(*jobs, policy="fifo").start_s.tolist() == [0.0, 10.0, 19.0]


def test_priority_orders_the_queue_alone() -> None:
    """On a GPU that two jobs share the one with less left computes first."""
    jobs = [job("urgent", 8, 9, 0.0, priority=1), job("short", 8, 2, 0.0)]
    assert run(*jobs, jobs_per_gpu=2).finish_s.tolist() == [11.0, 2.0]


def test_who_has_queued_for_long_goes_before_any_priority() -> None:
    urgent = [job(f"urgent{k}", 8, 10, 1.0 + 5 * k, priority=1) for k in range(5)]
    jobs = [job("now", 8, 10, 0.0), job("usual", 8, 1, 0.5), *urgent]
    assert run(*jobs).start_s[1] == 60.0
    assert run(*jobs, starvation_s=20.0).start_s[1] == 30.0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_over_its_users_quota_waits_and_stops_nobody_else(policy: str) -> None:
    jobs = [job("a", 3, 10, 0.0, "alice"), job("b", 2, 10, 1.0, "alice"), job("c", 5, 4, 2.0, "bob")]
    found = run(*jobs, policy=policy, quotas={"alice": 4})
    assert found.start_s.tolist() == [0.0, 10.0, 2.0]
    assert run(*jobs[:2], policy=policy, quotas={"alice": 5}).start_s.tolist() == [0.0, 1.0]


def test_the_star_is_each_other_user_and_jobs_without_one() -> None:
    jobs = [job(f"{user or 'none'}{k}", 2, 10, 0.0, user) for user in ("alice", "bob", "") for k in range(2)]
    found = run(*jobs, quotas={"alice": 4, "*": 2})
    assert found.start_s.tolist() == [0.0, 0.0, 0.0, 10.0, 0.0, 10.0]


def test_a_job_that_has_queued_for_long_has_its_users_quota_kept_for_it() -> None:
    """Alice's wide job would wait behind all of her small ones, which leave it too little of her quota."""
    small = [job(f"small{k:02}", 1, 10, 2.0 * k, "alice") for k in range(40)]
    jobs = [*small, job("wide", 4, 10, 9.0, "alice")]
    late = run(*jobs, quotas={"alice": 5}, policy="fifo")
    assert late.start_s[-1] >= 80.0
    found = run(*jobs, quotas={"alice": 5}, policy="fifo", starvation_s=10.0)
    # From 20 s on it is: of the four that run then, three have ended at 26 s.
    assert found.start_s[-1] == 26.0
    held = (found.start_s[:-1] <= found.start_s[-1]) & (found.finish_s[:-1] > found.start_s[-1])
    assert held.sum() == 1


def test_one_over_its_quota_holds_no_gpus() -> None:
    jobs = [
        job("long", 4, 100, 0.0, "alice"),
        job("over", 4, 10, 1.0, "alice"),
        job("bob", 4, 50, 20.0, "bob"),
    ]
    found = run(*jobs, quotas={"alice": 4}, starvation_s=5.0)
    assert found.start_s.tolist() == [0.0, 100.0, 20.0]


def test_the_user_who_has_had_least_goes_first() -> None:
    jobs = [job("a", 8, 10, 0.0, "alice"), job("b", 8, 4, 1.0, "bob")]
    jobs += [job(f"a{k}", 8, 1, 2.0, "alice") for k in range(3)]
    jobs += [job(f"b{k}", 8, 3, 3.0, "bob") for k in range(3)]
    # Alice had 80 GPU seconds, then Bob has 32, 56, 80; at 20 s both have 80, and hers came first.
    found = run(*jobs, policy="fair-share")
    assert found.start_s.tolist() == [0.0, 10.0, 20.0, 24.0, 25.0, 14.0, 17.0, 21.0]
    # With a share of two what Alice has had counts half, 40: she goes first when Bob has had 56.
    found = run(*jobs, policy="fair-share", shares={"alice": 2})
    assert found.start_s.tolist() == [0.0, 10.0, 17.0, 18.0, 19.0, 14.0, 20.0, 23.0]


def test_gpus_that_a_user_holds_count_until_now() -> None:
    jobs = [job("a", 4, 100, 0.0, "alice"), job("now", 4, 10, 0.0, "carol")]
    jobs += [job("more", 4, 1, 1.0, "alice"), job("b", 4, 1, 2.0, "bob"), job("c", 4, 1, 3.0, "carol")]
    # At 10 s Alice and Carol have had 40, Bob nothing; at 11 s Alice 44, as her job goes on.
    assert run(*jobs, policy="fair-share").start_s.tolist() == [0.0, 0.0, 12.0, 10.0, 11.0]


def test_with_a_half_life_what_was_had_long_ago_counts_less() -> None:
    early = [job("a", 8, 10, 0.0, "alice"), job("b", 8, 6, 20.0, "bob"), job("wait", 8, 4, 26.0)]
    jobs = [*early, job("a1", 8, 1, 28.0, "alice"), job("b1", 8, 1, 28.0, "bob")]
    # At 30 s Alice has had 80 GPU seconds, Bob 48: he goes first.
    assert run(*jobs, policy="fair-share").start_s.tolist() == [0.0, 20.0, 26.0, 31.0, 30.0]
    # Of hers, 20 to 30 s old, more than a quarter counts with 10 s and at most 80 / 4: his are 4 to 10 s old.
    assert run(*jobs, policy="fair-share", half_life_s=10.0).start_s.tolist()[3:] == [30.0, 31.0]
    # With shares of hers it is as without.
    few = run(*jobs, policy="fair-share", half_life_s=10.0, shares={"bob": 3})
    assert few.start_s.tolist()[3:] == [31.0, 30.0]
    # A very long one counts all.
    assert run(*jobs, policy="fair-share", half_life_s=1e9).start_s.tolist()[3:] == [31.0, 30.0]


def test_users_who_have_had_the_same_are_level_with_a_half_life_too() -> None:
    """Bob's four GPUs came one after the other and Alice's at once: rounding is not to tell them apart."""
    jobs = [job("a", 4, 7, 0.0, "alice"), *(job(f"b{k}", 1, 7, 0.0, "bob") for k in range(4))]
    jobs += [job(f"more of {user}", 8, 1, at, user) for user, at in (("alice", 3.0), ("bob", 3.5))]
    found = run(*jobs, policy="fair-share", half_life_s=3.0)
    assert found.start_s.tolist()[5:] == [7.0, 8.0]


WRONG = [
    ({"quotas": {"alice": 2}}, "job 'a' needs 3 GPUs and alice's quota is 2; it can never be placed: raise"),
    ({"quotas": {"*": 2}}, "job 'a' needs 3 GPUs and alice's quota is 2"),
    ({"quotas": {"alice": -1}}, "quota -1 of alice is not a whole number from 0 to 1000000; give e.g."),
    ({"quotas": {"a b": 1}}, "quota of 'a b', which is no name of a user: give up to 100 characters"),
    ({"policy": "fair-share", "shares": {"bob": 0}}, "share 0 of bob is not a whole number from 1"),
    ({"shares": {"bob": 1}}, "shares of users, and policy 'srsf-1' knows none; take policy fair-share"),
    ({"policy": "fair-share", "half_life_s": 0.0}, "half-life of 0.0 s: give seconds above 0 and up to 1e9"),
    ({"half_life_s": 60.0}, "half-life of what users have had, and policy 'srsf-1' does not count it; take"),
]


@pytest.mark.parametrize(("wrong", "line"), WRONG, ids=[line for _, line in WRONG])
def test_what_is_wrong_is_one_line(wrong: dict[str, Any], line: str) -> None:
    with pytest.raises(HocketError) as refused:
        run(job("a", 3, 1, 0.0, "alice"), **wrong)
    assert str(refused.value).startswith(line)


def test_the_quota_of_jobs_without_a_user() -> None:
    with pytest.raises(
        HocketError, match="and the quota of jobs without a user is 1; it can never be placed"
    ):
        run(job("a", 3, 1, 0.0), quotas={"*": 1})


def test_a_user_whom_no_job_has_is_named_with_the_nearest() -> None:
    scheduling = Scheduling(placement="ff", policy="srsf-1", quotas={"alcie": 2, "*": 3})
    with pytest.raises(UnknownNameError, match="alice"):
        check_users(scheduling, [job("a", 1, 1, 0.0, "alice")])
