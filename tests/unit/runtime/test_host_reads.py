"""Values that the host reads of tensors while it trains: each is a stall where they are a GPU's."""

from __future__ import annotations

import ast
from pathlib import Path

RUNTIME = Path(__file__).parents[3] / "hocket" / "runtime"
READING = {"item", "tolist", "numpy", "cpu", "equal", "is_nonzero"}

OF_HOST = {
    ("training/buffer_changes.py", "changed_names", "torch.equal"),
    ("training/buffers.py", "_receive_verdict", "message.tolist"),
    ("transfers/coordinator.py", "_follow_choices", "message.tolist"),
    ("transfers/gloo_group.py", "new_group_name", "drawn.tolist"),
    ("transfers/gloo_group.py", "max_over_ranks", "tensor.tolist"),
    ("transfers/gloo_group.py", "_unpack", "data.numpy"),
    ("transfers/norms.py", "add", "powers.values.tolist"),
    ("transfers/norms.py", "_over_ranks", "sums.tolist"),
    ("transfers/norms.py", "_over_ranks", "largest.tolist"),
    ("transfers/sparse_sums.py", "start", "row.tolist"),
    ("transfers/sparse_sums.py", "start", "mine.cpu"),
    ("transfers/used_flags.py", "wait", "part.tolist"),
}
"""Messages and copies, the host's on any device; sparse gradients and norms, which threads wait for."""

OF_PROCESSORS = {
    ("transfers/used_flags.py", "of", "bucket.memory.used_flags.tolist"),
    ("training/buffer_changes.py", "equals", "torch.equal"),
    ("training/buffer_changes.py", "is_still", "torch.equal"),
}
"""Gradients' flags and buffers' values, for which a device has others, and versions."""


def reads() -> set[tuple[str, str, str]]:
    return {
        (str(path.relative_to(RUNTIME)), function.name, ast.unparse(call.func))
        for folder in ("training", "transfers", "lazy")
        for path in RUNTIME.joinpath(folder).rglob("*.py")
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in READING
    }


def test_a_step_reads_no_tensor_but_messages_and_what_is_named_here() -> None:
    assert reads() == OF_HOST | OF_PROCESSORS
