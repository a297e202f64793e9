"""Use of the machine, read from a kernel's files."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from hocket.profiler.machine_use import BusyNotice, MachineUse, UseMeter
from hocket.profiler.torch_step import Profile
from tests import strategies

TICKS = os.sysconf("SC_CLK_TCK")


def write(proc: Path, busy: int, processes: dict[int, tuple[int, int]]) -> None:
    """Files of two processors that worked ``busy`` ticks, and of processes: parent and ticks of each."""
    line = f"{busy} 0 0 500 70 0 0 0 33 0"
    (proc / "stat").write_text(f"cpu  {line}\ncpu0 {line}\ncpu1 {line}\nintr 5 1\n")
    for process, (parent, ticks) in processes.items():
        (proc / str(process)).mkdir(exist_ok=True)
        text = f"{process} (a (b) c) S {parent} 1 1 0 -1 0 0 0 0 0 {ticks} 0 0 0 20 0 1 0 77"
        (proc / str(process) / "stat").write_text(text)


def test_children_are_ours_and_the_rest_are_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    me = os.getpid()
    write(tmp_path, 1000, {1: (0, 5), me: (1, 100), me + 1: (me, 10), me + 2: (me + 1, 10)})
    meter = UseMeter(tmp_path)
    assert meter.use() is None
    now[0] += 2.0
    # Of 300 ticks in two seconds ours are 60 + 20 + 20.
    write(tmp_path, 1300, {1: (0, 205), me: (1, 160), me + 1: (me, 30), me + 2: (me + 1, 30)})
    use = meter.use()
    assert use is not None
    assert use.own == pytest.approx(100 / TICKS / 2.0)
    assert use.others == pytest.approx(200 / TICKS / 2.0)
    assert use.processors == 2


def test_other_ranks_of_a_launchers_job_are_no_other_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [10.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    launcher, me, sibling = os.getppid(), os.getpid(), os.getpid() + 1
    write(tmp_path, 1000, {launcher: (0, 0), me: (launcher, 0), sibling: (launcher, 0)})
    meter = UseMeter(tmp_path)
    now[0] += 1.0
    write(tmp_path, 1190, {launcher: (0, 1), me: (launcher, 80), sibling: (launcher, 79)})
    use = meter.use()
    assert use is not None
    assert (use.own, use.others) == (pytest.approx(160 / TICKS), pytest.approx(30 / TICKS))


def test_nothing_is_said_where_nobody_counts(tmp_path: Path) -> None:
    assert UseMeter(tmp_path).use() is None


def test_this_machine_counts_the_work_of_this_process() -> None:
    meter = UseMeter()
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    use = meter.use()
    assert use is not None
    assert 0.0 < use.own <= use.processors * 1.1


def _measured(use: MachineUse, sums_s: tuple[float, ...] = (1.0,)) -> Profile:
    operation = strategies.operation("f", [*sums_s], reads=["a"])
    graph = strategies.step([strategies.parameter("a", 8)], [operation])
    ones = np.ones(len(sums_s))
    return Profile(graph=graph, plain_step_s=ones, own_sum_s=ones, use=use)


@pytest.mark.parametrize(
    ("use", "crowded"),
    [
        (MachineUse(own=1.0, others=0.9, processors=2), True),
        (MachineUse(own=2.0, others=0.1, processors=2), False),
        (MachineUse(own=0.5, others=0.5, processors=2), False),
        (MachineUse(own=8.0, others=40.0, processors=128), False),
    ],
)
def test_others_matter_where_they_leave_no_room(use: MachineUse, crowded: bool) -> None:
    assert use.crowded == crowded
    measured = _measured(use)
    said = f"the step was measured while other programs used {use.others:.1f} of {use.processors} processors:"
    assert measured.caveat.startswith(said) == bool(measured.caveat) == crowded
    kept = measured.with_caveats("compiled").graph.caveat
    assert kept == ("; ".join(["compiled", measured.caveat]) if crowded else "compiled")


def test_a_busy_machine_errs_one_way_and_its_step_decides_nothing() -> None:
    caveat = _measured(MachineUse(1.0, 1.0, 2)).caveat
    assert (
        ": computing looks too slow, rho too small and, below rho 1, a plan's gain too small, so do not "
        in caveat
    )
    assert caveat.endswith("measure again on a quiet machine")
    assert ";" not in caveat  # one sentence, as semicolons part cautions


def test_sums_far_off_a_step_err_either_way() -> None:
    far_off = _measured(MachineUse(1.0, 1.0, 2), (0.3,)).caveat
    assert (
        "sum to 30% of a step without profiler: times, and answers from them, may be far off, so do"
        in far_off
    )
    assert "too s" not in far_off


class _Meter:
    """A meter that has seen ``use``."""

    def __init__(self, use: MachineUse | None) -> None:
        self._use = use

    def use(self) -> MachineUse | None:
        return self._use


def test_others_are_told_of_once_and_as_soon_as_they_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [10.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    uses = iter([MachineUse(1.0, 0.1, 2), None, MachineUse(1.0, 0.9, 2), MachineUse(1.0, 1.0, 2)])
    said: list[str] = []
    notice = BusyNotice(said.append, lambda: _Meter(next(uses)))  # type: ignore[arg-type,return-value]
    notice.look()
    assert said == []  # too early
    for looks in range(4):
        now[0] += 2.5
        notice.look()
        assert len(said) == (looks >= 2)
    assert said[0].startswith("other programs use 0.9 of 2 processors while steps are measured")


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (
            MachineUse(1.0, 0.1, 2),
            [
                "over all steps other programs used 0.1 of 2 processors and this one 1.0: below what is kept"
                " as a caution, so the step file has none of that"
            ],
        ),
        (MachineUse(1.0, 0.9, 2), []),
        (None, []),
    ],
)
def test_others_that_were_told_of_and_disturbed_little_over_all_steps_are_taken_back(
    monkeypatch: pytest.MonkeyPatch, use: MachineUse | None, said: list[str]
) -> None:
    now = [10.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    told: list[str] = []
    quiet = BusyNotice(told.append, lambda: _Meter(MachineUse(1.0, 0.1, 2)))  # type: ignore[arg-type,return-value]
    busy = BusyNotice(told.append, lambda: _Meter(MachineUse(1.0, 0.9, 2)))  # type: ignore[arg-type,return-value]
    now[0] += 2.5
    for notice in (quiet, busy):
        notice.look()
    quiet.end(use)
    busy.end(use)
    assert told[1:] == said
