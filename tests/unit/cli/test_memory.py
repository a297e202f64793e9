"""Memory on the command line: whether a derived step fits its device, first of all where it does not."""

from __future__ import annotations

import json
from pathlib import Path

from tests.unit.cli.test_commands import hocket, in_tmp

__all__ = ["in_tmp"]


def test_a_derived_step_says_what_memory_it_needs_and_first_where_it_does_not_fit(
    in_tmp: Path,
) -> None:
    fits = hocket("profile", "alexnet_v2", "--device", "v100", "--batch-size", "4", "-o", "small.json")
    assert "A batch of 4 fits: it needs " in fits.err
    assert "of the v100's 16.9 GB" in fits.err
    card = {"float32": 1e12}
    sheet = {"format": "hocket.device/1", "name": "mine", "multiprocessors": 8, "peak_flops": card}
    sheet |= {"memory_bytes_per_s": 1e11, "memory_bytes": 1.2e9}
    Path("mine.json").write_text(json.dumps(sheet))
    ran = hocket(
        "profile", "alexnet_v2", "--device-file", "mine.json", "--batch-size", "64", "-o", "big.json"
    )
    said = [line for line in ran.err.splitlines() if line and not line.startswith("deriving")]
    assert said[0].startswith("A batch of 64 does not fit: it needs ")
    assert "largest batch: none; sharded over 8 (FSDP): " in said[0]
    kept = json.loads(Path("big.json").read_text())["memory"]
    assert kept["batch_size"] == 64


def test_answers_about_a_step_that_does_not_fit_begin_with_that(in_tmp: Path) -> None:
    hocket("profile", "alexnet_v2", "--device", "v100", "--batch-size", "4", "-o", "step.json")
    document = json.loads(Path("step.json").read_text())
    document["memory"]["optimizer_bytes"] = 54e9
    Path("step.json").write_text(json.dumps(document))
    for command in ("predict step.json --workers 1-2", "plan step.json --policy ddp -o plan.json"):
        ran = hocket(*command.split())
        assert ran.out.startswith("A batch of 4 with DDP's buckets does not fit: it needs "), command
    (row,) = json.loads(hocket("predict", "step.json", "--workers", "2", "--json").out)
    assert row["memory"]["fits"] is False
    assert row["memory"]["largest_batch"] == 0
    on_servers = hocket("predict", "step.json", "--workers", "2", "--architecture", "ps").out
    assert on_servers.startswith("A batch of 4 does not fit: it needs ")
    del document["memory"]
    Path("step.json").write_text(json.dumps(document))
    assert "its file has no memory" in hocket("predict", "step.json", "--workers", "2").out
