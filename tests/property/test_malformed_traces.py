"""Whatever happens to a trace, it is imported or refused in one line, and what is imported can be planned."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hocket.graph import load_step
from tests.property.test_malformed import mutated
from tests.strategies import examples
from tests.unit.cli.test_commands import hocket, refused
from tests.unit.interop.traces import ddp, execution_trace

TRACE = json.dumps(ddp().document()).encode()
NODES = json.dumps(execution_trace()).encode()


@pytest.mark.parametrize("damaged", ["trace", "second rank", "execution trace"])
@given(data=st.data())
@examples(50)
def test_a_damaged_trace_is_imported_or_refused_in_one_line(damaged: str, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        output, paths = Path(folder) / "step.json", [Path(folder) / name for name in ("a.json", "b.json")]
        paths[0].write_bytes(data.draw(mutated(TRACE)) if damaged == "trace" else TRACE)
        command = ["import", "kineto", str(paths[0]), "-o", str(output)]
        if damaged == "second rank":
            paths[1].write_bytes(data.draw(mutated(json.dumps(ddp(1).document()).encode())))
            command.insert(3, str(paths[1]))
        elif damaged == "execution trace":
            paths[1].write_bytes(data.draw(mutated(NODES)))
            command += ["--execution-trace", str(paths[1])]
        ran = hocket(*command)
        if ran.status:
            assert any(refused(ran).startswith(f"hocket: {path}: ") for path in paths)
            assert not output.exists()
        else:
            assert load_step(output).num_operations > 0
