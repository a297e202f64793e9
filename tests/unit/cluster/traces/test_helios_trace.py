"""Helios' traces."""

from __future__ import annotations

from pathlib import Path

import pytest

from hocket.errors import FormatError, UnknownNameError
from tests.unit.cluster.traces.small_traces import HELIOS, PARTS, imported, says


def test_helios_keeps_what_held_a_gpu(trace: Path) -> None:
    trace.write_text(HELIOS)
    found = imported("helios", trace)
    first, second = found.jobs.jobs
    assert [(job.id, job.gpus, job.arrival_s) for job in (first, second)] == [("1", 1, 0.0), ("2", 8, 30.0)]
    assert (first.user, second.user) == ("u", "u")
    assert second.iterations == round(600 / PARTS[second.model])
    assert found.notes[2:] == (
        "a job belongs to its user; its vc is left out (--user vc)",
        "by state: 1 COMPLETED, 1 FAILED; all are kept, for as long as they held their GPUs, and succeed"
        " (--states finished: those that ended as COMPLETED alone)",
        "1 job left out: no GPU",
        "1 job left out: over at once",
    )


def test_helios_leaves_out_what_is_not_over(trace: Path) -> None:
    running = "5,u,v,4,16,1,RUNNING,2020-06-10 00:00:12,2020-06-10 00:00:12,,{},0\n"
    trace.write_text(HELIOS + running.format("") + running.replace("5,", "6,", 1).format("None"))
    found = imported("helios", trace)
    assert [job.id for job in found.jobs.jobs] == ["1", "2"]
    assert says(found, "2 jobs left out: not over")


def test_users_have_names_that_lists_of_users_can_hold(trace: Path) -> None:
    trace.write_text(HELIOS.replace("\n2,u,", "\n2,a b=c,").replace("\n1,u,", "\n1,,"))
    assert [job.user for job in imported("helios", trace).jobs.jobs] == ["", "a_b_c"]


def test_helios_has_virtual_clusters_and_states(trace: Path) -> None:
    trace.write_text(HELIOS.replace("2,u,v,", "2,u,vc1,"))
    found = imported("helios", trace, user="vc", states="finished")
    (job,) = found.jobs.jobs
    assert (job.id, job.user, job.arrival_s) == ("2", "vc1", 0.0)
    assert job.model == imported("helios", trace).jobs.jobs[1].model, "others are as they are without states"
    assert found.notes[2:] == (
        "a job belongs to its vc; its user is left out (--user user)",
        "1 job left out: ended as FAILED, not as COMPLETED",
        "1 job left out: no GPU",
        "1 job left out: over at once",
    )
    with pytest.raises(UnknownNameError, match="user: column 'account'"):
        imported("helios", trace, user="account")


def test_helios_needs_the_columns_that_are_asked_for(trace: Path) -> None:
    trace.write_text("job_id,gpu_num,submit_time,duration\n1,4,2020-06-10 00:00:12,60\n")
    (job,) = imported("helios", trace).jobs.jobs
    assert (job.user, job.gpus) == ("", 4)
    for column, options in (("vc", {"user": "vc"}), ("state", {"states": "finished"})):
        with pytest.raises(FormatError, match=f"line 1: has no column '{column}'; needed are job_id"):
            imported("helios", trace, **options)
