"""Groups of options: what typer sees of them, and what a command is given."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from hocket.cli.command_help import App
from hocket.cli.option_groups import grouped
from hocket.cli.panels import GENERAL, NETWORK, option


@dataclass(frozen=True, kw_only=True)
class Link:
    file: Annotated[str | None, option("--network", panel=NETWORK, help="A file.")] = None
    bandwidth: Annotated[str, option(panel=NETWORK, help="Each way.")] = "10Gbit/s"


@dataclass(frozen=True, kw_only=True)
class SlowLink(Link):
    bandwidth: Annotated[str, option(panel=NETWORK, help="Of a slow link.")] = "1Gbit/s"


@dataclass(frozen=True, kw_only=True)
class Needed:
    policy: Annotated[str, option("-p", "--policy", panel=GENERAL)]


def made(command: Any) -> App:
    app = App()
    app.command("it")(command)
    return app


def ask(command: Any, *words: str) -> Any:
    return CliRunner().invoke(made(command), words, catch_exceptions=False)


def test_fields_stand_in_place_of_their_group() -> None:
    @grouped
    def command(context: typer.Context, link: Link, needed: Needed, seed: int = 0) -> None: ...

    names = list(inspect.signature(command).parameters)
    assert names == ["context", "file", "bandwidth", "policy", "seed"]


def test_a_command_is_given_its_groups_and_the_context_flat_names() -> None:
    given: dict[str, Any] = {}

    @grouped
    def command(
        context: typer.Context,
        step: Annotated[str, typer.Argument()],
        link: Link,
        needed: Needed,
        seed: Annotated[int, option("--seed", panel=GENERAL)] = 0,
    ) -> None:
        given.update(step=step, link=link, needed=needed, seed=seed, params=dict(context.params))

    result = ask(command, "a.json", "--network", "n.json", "-p", "tac", "--seed", "3")
    assert result.exit_code == 0, result.output
    assert given.pop("params") == {
        "step": "a.json",
        "file": "n.json",
        "bandwidth": "10Gbit/s",
        "policy": "tac",
        "seed": 3,
    }
    assert given == {"step": "a.json", "link": Link(file="n.json"), "needed": Needed(policy="tac"), "seed": 3}


def test_a_subclass_overrides_a_default_and_a_help_where_the_field_stands() -> None:
    given = []

    @grouped
    def command(link: SlowLink) -> None:
        given.append(link)

    assert ask(command).exit_code == 0
    assert given == [SlowLink(file=None, bandwidth="1Gbit/s")]
    text = ask(command, "--help").output
    assert text.index("--network") < text.index("--bandwidth") < text.index("Of a slow link.")
    assert "Each way." not in text


def test_an_option_without_a_default_is_asked_for() -> None:
    @grouped
    def command(link: Link, needed: Needed) -> None: ...

    result = CliRunner().invoke(made(command), [])
    assert result.exit_code == 2
    assert "--policy" in result.output


@dataclass(frozen=True)
class SameName:
    bandwidth: Annotated[str, option("--rate", panel=NETWORK)] = ""


@dataclass(frozen=True)
class SameOption:
    path: Annotated[str, option("--network", panel=NETWORK)] = ""


@dataclass(frozen=True)
class SameImplied:
    rate: Annotated[str, option("--bandwidth", panel=NETWORK)] = ""


@pytest.mark.parametrize(
    ("other", "twice"),
    [(SameName, "bandwidth"), (SameOption, "--network"), (SameImplied, "--bandwidth")],
)
def test_two_groups_with_one_option_are_refused_at_declaration(other: type, twice: str) -> None:
    def command(link: Any, more: Any) -> None: ...

    command.__annotations__ = {"link": Link, "more": other}
    with pytest.raises(TypeError, match=f"the command command declares {twice} twice"):
        grouped(command)
