"""The table of commands: each can be loaded, and none is before it is named."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from hocket.cli.command_help import NamedCommand
from tests.unit.cli.test_commands import BRANCHES, COMMAND

RUNNING = """
import atexit, json, sys

atexit.register(lambda: print(json.dumps(list(sys.modules)), file=sys.stderr))
sys.argv = ["hocket", *{arguments!r}]
from hocket.__main__ import entry

entry()
"""


def _named(group: Any) -> Iterator[NamedCommand]:
    for command in group.commands.values():
        if isinstance(command, NamedCommand):
            yield command
        else:
            yield from _named(command)


NAMED = list(_named(COMMAND))


@pytest.mark.parametrize("command", NAMED, ids=lambda command: command.place)
def test_every_command_can_be_loaded_and_says_what_it_does(command: NamedCommand) -> None:
    assert command.loaded.name == command.name
    assert command.loaded.help
    assert command.loaded.callback is not None


@pytest.mark.parametrize(
    ("arguments", "own"),
    [
        ([], set()),
        (["--version"], set()),
        (["--help"], set()),
        (["predct"], set()),
        (["predict", BRANCHES, "--workers", "2", "--steps", "8"], {"commands.predict_command"}),
        (["cluster", "status", "--state", "missing"], {"cluster.client_commands"}),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_no_other_commands_module_is_imported(arguments: list[str], own: set[str]) -> None:
    code = RUNNING.format(arguments=arguments)
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    imported = set(json.loads(ran.stderr.splitlines()[-1]))
    modules = {command.place.partition(":")[0] for command in NAMED}
    assert {module for module in modules if f"hocket.cli.{module}" in imported} == own
    assert not {"torch", "jinja2", "asyncio"} & imported
