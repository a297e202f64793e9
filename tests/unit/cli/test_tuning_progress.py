"""The progress of a tuning: parts counted, and a remedy where it takes long."""

from __future__ import annotations

import pytest

from hocket.cli.tuning_progress import tuning_progress
from hocket.tuner import policy_names, tune
from tests.golden.make import BRANCHES_NETWORK, branches


def test_parts_are_counted() -> None:
    told: list[tuple[str, float, float]] = []
    tune(
        branches(),
        BRANCHES_NETWORK,
        architecture="allreduce",
        iterations=2,
        budget_s=0.05,
        progress=lambda what, done, total: told.append((what, done, total)),
    )
    assert all(0 <= done <= total or what.startswith("search") for what, done, total in told)
    said = [what for what, *_ in told]
    planned = [what for what in said if what.startswith("planning by ")]
    number = int(planned[0].rpartition(" of ")[2])
    for k, name in enumerate(policy_names("allreduce")[:number]):
        assert f"planning by {name}, policy {k + 1} of {number}" in planned
    assert f"planning by ddp-best, policy 6 of {number}: buckets of 25 MiB, 1 of 4" in planned
    assert said[-1] == f"simulating search, policy {number + 1} of {number + 1}"


@pytest.mark.parametrize(
    ("iterations", "told"),
    [
        (20, " (20 steps on 256 workers; --iterations 5 takes less)"),
        (5, " (5 steps on 256 workers)"),
    ],
)
def test_where_it_takes_long_the_reason_and_a_remedy_are_told(
    iterations: int, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    for long_s, said in ((60.0, ""), (-1.0, told)):
        monkeypatch.setattr("hocket.cli.tuning_progress._LONG_S", long_s)
        with tuning_progress(256, iterations) as tell:
            tell("planning by ddp", 1, 2)
        assert f"planning by ddp{said} " in capsys.readouterr().err


def test_a_search_that_has_a_budget_takes_no_less_by_fewer_steps(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("hocket.cli.tuning_progress._LONG_S", -1.0)
    with tuning_progress(256, 20) as tell:
        tell("search (1 s), for at most 10 s", 1, 2)
    assert "--iterations" not in capsys.readouterr().err
