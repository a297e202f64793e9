"""Traces that were imported wrong without a word, beside this repository, and the right values of each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hocket.errors import FormatError
from hocket.interop.kineto.kineto_step import import_kineto
from tests.unit.interop.test_kineto_data import REAL, counted

SHARED = Path(__file__).parents[4] / "shared" / "cases" / "traces"
WHOLE = (3, 4, 16 * 2**20)
SHARED_CASES: dict[str, tuple[int, int, int] | str] = {
    **{"base": WHOLE, "nometa": WHOLE, "coalesced": WHOLE, "two_ddp": WHOLE, "tp_sp_ddp": WHOLE},
    **{"manual_average": WHOLE, "accum4_step_per_microbatch": WHOLE, "bf16_hook": (3, 4, 8 * 2**20)},
    **{"ctrl_char": WHOLE, "bad_utf8": WHOLE, "inf": WHOLE, "neg_dur": WHOLE, "no_corr": WHOLE},
    "empty_pg_desc": WHOLE,
    "horovod": r"a step holds 1 all_reduce \(of unknown size\).* thread of its own, as Horovod",
    "zero1_after": r"exchanged by reduce_scatter.* 1 reduce_scatter \(16.00 MiB.* 1 all_gather \(16.00 MiB",
    "no_accgrad": r"no AccumulateGrad; its 1 all_reduce \(16.00 MiB",
    "cuda_graph": "10 of 11 operations of a step were launched by a CUDA graph",
}


@pytest.mark.skipif(not SHARED.is_dir(), reason="the traces are not here")
@pytest.mark.parametrize("name", SHARED_CASES)
def test_traces_that_misled(name: str) -> None:
    path, expected = SHARED / f"{name}.json.gz", SHARED_CASES[name]
    if isinstance(expected, str):
        with pytest.raises(FormatError, match=expected) as refused:
            import_kineto([path])
        assert "\n" not in str(refused.value)
        return
    graph, _ = import_kineto([path])
    assert counted(path) == expected
    assert (graph.num_samples, graph.num_parameters, graph.parameter_bytes.sum()) == expected


@pytest.mark.skipif(not SHARED.is_dir(), reason="the traces are not here")
def test_no_trace_that_misled_is_left_out() -> None:
    assert {path.name.removesuffix(".json.gz") for path in SHARED.glob("*.gz")} == set(SHARED_CASES)


def test_the_guide_lists_what_becomes_of_every_file() -> None:
    """Each file's row says what the tables here say."""
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "traces.md").read_text()
    rows = re.findall(r"^\| (\w[\w, ]*) \| ([^|]+) \|([^|]*)\|([^|]*)\|$", guide, re.MULTILINE)
    listed = {name: row[1:] for row in rows for name in row[0].split(", ")}
    for name, expected in (REAL | SHARED_CASES).items():
        said = [cell.strip() for cell in listed[name]]
        if isinstance(expected, str):
            assert said[1:] == ["", ""], name
        else:
            assert said == list(map(str, expected)), name
