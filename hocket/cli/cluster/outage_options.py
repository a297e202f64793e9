"""Options of servers that are down in a simulation: failures, repairs, maintenance, and what jobs keep."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hocket.cli.answer_settings import DEFAULT, AnswerSetting, option_setting
from hocket.cli.cluster.cluster_options import SimulatedClusterOptions
from hocket.cli.list_options import long_duration
from hocket.cli.panels import MACHINES, option
from hocket.errors import HocketError

if TYPE_CHECKING:
    from hocket.cluster.simulator.outages import Maintenance, Outages

_REPAIR, _CHECKPOINT_EVERY, _NEVER = "4h", "30min", "never"
_WINDOW = re.compile(r"(?P<server>\d{1,9})\s*:\s*(?P<first>[^-:,]+)-(?P<last>[^-:,]+)", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class FailingClusterOptions(SimulatedClusterOptions):
    """Options for a simulated cluster whose servers fail or are maintained."""

    mtbf: Annotated[
        str | None,
        option(
            panel=MACHINES,
            metavar="TIME",
            help="Each server fails after so long, 30d, drawn by --seed (exponential).",
            show_default="none fails",
        ),
    ] = None
    repair: Annotated[
        str | None,
        option(
            panel=MACHINES,
            rare=True,
            metavar="TIME",
            help="Of a repair, likewise (the mean).",
            show_default=_REPAIR,
        ),
    ] = None
    maintenance: Annotated[
        str | None,
        option(
            panel=MACHINES,
            rare=True,
            metavar="LIST",
            help="Servers that are down, 3:10h-14h,4:1d-2d; or a file of these.",
        ),
    ] = None
    checkpoint_every: Annotated[
        str | None,
        option(
            panel=MACHINES,
            rare=True,
            metavar="TIME",
            help="Of computing, after which a job keeps its work if its server fails; or never.",
            show_default=_CHECKPOINT_EVERY,
        ),
    ] = None

    def outages(self, seed: int) -> Outages | None:
        """The outages that the options ask for; None without any."""
        from hocket.cluster.simulator.outages import Outages

        if self.repair is not None and self.mtbf is None:
            raise HocketError(f"--repair {self.repair} is of servers that fail; give --mtbf, too")
        if self.mtbf is None and self.maintenance is None:
            if self.checkpoint_every is not None:
                raise HocketError(
                    f"--checkpoint-every {self.checkpoint_every} counts where servers go down; give --mtbf"
                    " or --maintenance, too"
                )
            return None
        every = self.checkpoint_every or _CHECKPOINT_EVERY
        return Outages(
            mtbf_s=None if self.mtbf is None else long_duration(self.mtbf, "--mtbf"),
            repair_s=long_duration(self.repair or _REPAIR, "--repair"),
            maintenance=() if self.maintenance is None else _maintenance(self.maintenance),
            checkpoint_every_s=None if every == _NEVER else long_duration(every, "--checkpoint-every"),
            seed=seed,
        )

    def settings(self, context: typer.Context) -> list[AnswerSetting]:
        """The settings that the options came to, where there are outages."""
        settings = []
        if self.mtbf is not None:
            repair = self.repair or _REPAIR
            settings += [
                option_setting(context, "mtbf", self.mtbf),
                option_setting(context, "repair", repair),
            ]
        if self.maintenance is not None:
            settings.append(option_setting(context, "maintenance", self.maintenance))
        if settings:
            every = self.checkpoint_every or _CHECKPOINT_EVERY
            text = (
                "no checkpoints" if every == _NEVER else f"checkpoints after {every} of computing, at no cost"
            )
            settings.append(option_setting(context, "checkpoint_every", every, text))
        return settings

    def assumed(self, context: typer.Context) -> dict[str, Any]:
        """Those of the settings that were not given, by the option's name."""
        return {each.key: each.value for each in self.settings(context) if each.source == DEFAULT}


def _maintenance(text: str) -> tuple[Maintenance, ...]:
    """The times in ``3:10h-14h,4:1d-2d``, or in the file of that name, a line each."""
    path = Path(text)
    if path.is_file():
        lines = [line.partition("#")[0].strip() for line in path.read_text(errors="replace").splitlines()]
        return tuple(_window(line, f"{path}") for line in lines if line)
    return tuple(_window(part.strip(), "--maintenance") for part in text.split(","))


def _window(text: str, source: str) -> Maintenance:
    from hocket.cluster.simulator.outages import Maintenance

    match = _WINDOW.fullmatch(text)
    if match is None:
        raise HocketError(
            f"{source}: '{text}' is neither a server with its time, as 3:10h-14h, nor a file that is there"
        )
    first, last = match["first"].strip(), match["last"].strip()
    from_s = 0.0 if re.fullmatch(r"0+[a-z]*", first) else long_duration(first, f"{source}: from")
    return Maintenance(int(match["server"]), from_s, long_duration(last, f"{source}: to"))
