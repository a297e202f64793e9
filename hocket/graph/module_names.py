"""Modules of a model by the names of its parameters: blocks, and the modules that hold parameters."""

from __future__ import annotations


def block_of(parameter: str) -> str:
    """The block that a parameter is in, a numbered module such as ``layers.0``; "" where it is in none."""
    parts = parameter.split(".")
    number = next((k for k, part in enumerate(parts[:-1]) if part.isdecimal()), -1)
    return ".".join(parts[: number + 1])


def module_of(parameter: str) -> str:
    """The module that holds a parameter, such as ``layers.0.attention``; "" for the model itself."""
    return parameter.rpartition(".")[0]
