"""``hocket doctor``: its screen by what was found, and its status."""

from __future__ import annotations

import json

import msgspec
import pytest

from hocket.doctor import Examination
from hocket.doctor.examination import examination
from hocket.doctor.findings import Finding
from hocket.doctor.interfaces import Interface
from tests.unit.cli.test_commands import Ran, hocket
from tests.unit.doctor.facts import LOOPBACK, facts
from tests.unit.doctor.test_examination import examined


def doctor(found: Examination | None, monkeypatch: pytest.MonkeyPatch, *options: str) -> Ran:
    monkeypatch.setattr("hocket.doctor.examine", lambda **_: found)
    return hocket("doctor", *options)


def test_what_is_wrong_is_told_first_and_the_status_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examination([facts(0), facts(1, torch="2.10.0")], [], 2)
    ran = doctor(found, monkeypatch)
    assert ran.status == 1
    first, second, *rest = ran.out.splitlines()
    assert first == "Red: 1 thing to mend before 2 ranks can train:"
    assert second.startswith("- rank 1 has torch 2.10.0, rank 0 has 2.13.0+cpu; ")
    assert "versions   rank 1: hocket 0.1.0, torch 2.10.0, Python 3.11.7" in rest
    assert "self-test  not run" in rest
    assert rest[-1] == "Next: mend it, then hocket doctor"


def test_a_gpu_that_training_leaves_unused_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus = {"gpus": ["NVIDIA H100"] * 2, "cuda": "12.8", "nccl": "2.27.5", "cuda_available": True}
    out = doctor(examination([facts(0, **with_gpus)], [], 1), monkeypatch).out
    told = (
        "2 x NVIDIA H100, unused: hocket.distribute trains on CPUs over gloo today (CUDA 12.8, NCCL 2.27.5)"
    )
    assert f"GPUs       {told}" in out.splitlines()


def test_machines_that_differ_have_lines_of_their_own_up_to_three(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = [
        facts(
            k, machine=f"m{k}", interfaces=[LOOPBACK, Interface(name="e", addresses=[f"10.0.0.{k}"], up=True)]
        )
        for k in range(6)
    ]
    lines = doctor(examination(ranks, [], 6), monkeypatch).out.splitlines()
    assert lines[0].startswith("Green: 6 ranks can train, on 6 machines; ")
    assert "Ranks on one machine" not in lines[1]
    of_network = [line for line in lines if line.startswith("network")]
    assert of_network[-1] == "network    and 3 more (--json)"
    assert len(of_network) == 4


def test_rounding_among_three_ranks_is_said_to_be_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    found = examined(3)
    assert found.self_test is not None
    found = msgspec.structs.replace(
        found, self_test=msgspec.structs.replace(found.self_test, difference=1e-8)
    )
    out = doctor(found, monkeypatch).out
    assert "differ from DistributedDataParallel's by 1e-08 of the largest, by rounding, after 12 steps" in out


def test_one_machine_is_told_that_no_order_gains_there(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = doctor(examined(), monkeypatch).out.splitlines()
    assert lines[1].startswith(
        "Ranks on one machine exchange through its memory: an order of transfers has next to"
    )


def test_the_record_is_one_document(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = doctor(examined(), monkeypatch, "--json")
    document = json.loads(ran.out)
    assert (document["format"], document["green"], document["findings"]) == ("hocket.doctor/1", True, [])
    assert set(document) == {
        *("format", "green", "workers", "findings", "ranks", "clock_offsets_s", "self_test", "wall_s")
    }


def test_other_ranks_print_nothing_but_what_kept_them_away(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}.items():
        monkeypatch.setenv(name, value)
    assert doctor(None, monkeypatch)[:2] == (0, "")
    lost = [Finding(about="ranks", line="rank 1 did not meet all 2 ranks")]
    ran = doctor(Examination(green=False, workers=2, findings=lost, ranks=[]), monkeypatch, "--json")
    assert ran == (1, "", "rank 1 did not meet all 2 ranks\n")
