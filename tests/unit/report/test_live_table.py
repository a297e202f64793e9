"""A live cluster's table: what jobs are called, and what they said, is shown as it is."""

from __future__ import annotations

import io

import msgspec
from rich.console import Console

from hocket.cluster.live.manager_messages import JobStatus, Status
from hocket.report.live_table import live_table
from hocket.report.short_ids import short_ids

JOB = JobStatus(
    id="[bold]a", model="m", state="failed", stage="failed", gpus=((0, 0),), wanted=1, iteration=0,
    iterations=4, attempt=1, arrival_s=0.0, start_s=1.0, finish_s=2.0, jct_s=2.0, why="KeyError: [/data]",
)  # fmt: skip
STATUS = Status(
    now_s=3.0, placement="ls", policy="srpt", gpus_per_server=1, nodes=("[red]",), drained=("[red]",),
    silent=(), jobs=(JOB,), transfers=(), average_jct_s=None,
)  # fmt: skip


def printed(status: Status) -> str:
    screen = io.StringIO()
    Console(file=screen, width=160).print(live_table(status))
    return screen.getvalue()


def test_brackets_are_no_markup() -> None:
    for text in ("[bold]a", "KeyError: [/data]", "drained: [red]", "[red]:0", "waited [s]", "JCT [s]"):
        assert text in printed(STATUS)
    assert "type" not in printed(STATUS), "there is one, which has no name"


def test_what_would_move_a_terminals_cursor_is_escaped() -> None:
    job = msgspec.structs.replace(JOB, id="x\ny\x1b[31m", why="a\x1b[2J")
    table = printed(msgspec.structs.replace(STATUS, jobs=(job,)))
    assert "\x1b" not in table
    assert r"x y\x1b[31m" in table
    assert r"a\x1b[2J" in table


def test_long_ids_are_cut_and_still_told_apart() -> None:
    long = "train-" + "x" * 400
    ids = [f"{long}-1", f"{long}-2", f"{long}-lr0.1-{'y' * 300}", f"{long}-lr0.3-{'y' * 300}", "short"]
    waits = f"has its GPUs once {ids[1]} has saved"
    jobs = tuple(msgspec.structs.replace(JOB, id=each, why=waits) for each in ids)
    table = printed(msgspec.structs.replace(STATUS, jobs=jobs))
    lines = [line.strip() for line in table.splitlines() if "failed" in line]
    assert [line.split()[0] for line in lines] == [
        "train-xxxxxxxxxxxx…xxxxxxxxxxx-1", "train-xxxxxxxxxxxx…xxxxxxxxxxx-2", "trai…1…yyyy", "trai…3…yyyy",
        "short",
    ]  # fmt: skip
    assert all(
        line.endswith("has its GPUs once train-xxxxxxxxxxxx…xxxxxxxxxxx-2 has saved") for line in lines
    )
    assert "long ids are cut (--json has them in full)" in " ".join(table.split())
    assert "are cut" not in printed(STATUS)


def test_ids_of_any_kind_are_shown_apart() -> None:
    apart = [
        ["a" * n for n in range(1, 200)],
        [f"{'a' * n}b{'a' * (150 - n)}" for n in range(150)],
        [f"{'a' * 60}{'b' * n}{'a' * 60}" for n in range(40)],
        ["a" * 18 + "…" + "a" * 13, "a" * 50],
    ]
    for ids in apart:
        shown = [short_ids(ids).get(each, each) for each in ids]
        assert len(set(shown)) == len(ids)


def test_types_of_nodes_and_of_jobs_are_told() -> None:
    had: list[tuple[str, tuple[str, ...], str]] = [
        ("v100", ("a100", "v100"), "v100 (or a100)"),
        ("a100", ("a100",), " a100  "),
        ("v100", (), "v100 (or any)"),
        ("", ("a100", "v100", "k80"), "(a100, v100 or k80)"),
        ("", (), "(any)"),
    ]
    jobs = tuple(
        msgspec.structs.replace(JOB, id=f"j{i}", gpu_type=kind, accepted_types=accepted)
        for i, (kind, accepted, _) in enumerate(had)
    )
    kinds = (("a100", "v100"), ("v100",), ("a100", "v100"), (), *(("k80", "k80"),) * 4)
    shown = printed(
        msgspec.structs.replace(
            STATUS, jobs=jobs, nodes=tuple(f"n{k}" for k in range(8)), drained=(), gpu_types=kinds
        )
    )
    machines = "n0 n2: 1 a100 + 1 v100, n1: 1 v100, n3: no GPU, 4 nodes: 2 k80"
    assert machines in " ".join(shown.split())
    for job, (*_, text) in zip(jobs, had, strict=True):
        (line,) = [line for line in shown.splitlines() if line.strip().startswith(job.id)]
        assert text in line


def test_numbers_that_were_chosen_are_told_of_how_many() -> None:
    chosen = msgspec.structs.replace(JOB, wanted=8, wanted_min=2)
    waiting = msgspec.structs.replace(chosen, id="b", state="queued", gpus=())
    shown = printed(msgspec.structs.replace(STATUS, jobs=(chosen, waiting)))
    assert "[red]:0 (1 of 2 to 8)" in shown
    assert "(2 to 8 wanted)" in shown
