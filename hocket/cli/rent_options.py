"""Options of ``hocket rent``: the offers, the job, and the step where a model is given."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hocket.cli import options
from hocket.cli.list_options import amount, long_duration, whole_amount
from hocket.cli.panels import OFFERS, OUTPUT, PROFILE, TRAINED, option
from hocket.datasheets import Precision
from hocket.errors import HocketError

if TYPE_CHECKING:
    from hocket.offers import TrainingJob


def _print_example(asked: bool) -> None:
    if asked:
        from hocket.offers.offers_file import example_offers

        print(example_offers(), end="")
        raise typer.Exit


@dataclass(frozen=True, kw_only=True)
class RentOffers:
    """Options for what may be rented."""

    offers: Annotated[
        Path,
        option("--offers", panel=OFFERS, metavar="FILE", help="CSV with a line for each kind of node."),
    ]
    example_offers: Annotated[
        bool,
        option(
            "--example-offers",
            panel=OFFERS,
            is_eager=True,
            callback=_print_example,
            expose_value=False,
            help="Print such a file, with made-up prices, and exit.",
        ),
    ] = False


@dataclass(frozen=True, kw_only=True)
class RentJob:
    """Options for the job: one of examples, epochs and steps, its batches, and its limits."""

    examples: Annotated[
        str | None,
        option("--examples", panel=TRAINED, metavar="N", help="Examples, each as often as it comes: 90M."),
    ] = None
    epochs: Annotated[
        str | None,
        option("--epochs", panel=TRAINED, metavar="X", help="Or so often --dataset-size of them."),
    ] = None
    dataset_size: Annotated[
        str | None, option("--dataset-size", panel=TRAINED, metavar="N", help="Examples of an epoch: 1.28M.")
    ] = None
    steps: Annotated[
        str | None,
        option("--steps", panel=TRAINED, metavar="N", help="Or so many updates, of --global-batch each."),
    ] = None
    deadline: Annotated[
        str | None,
        option("--deadline", panel=TRAINED, metavar="HOURS", help="At the latest: 24h, 90min, 3d."),
    ] = None
    budget: Annotated[
        str | None, option("--budget", panel=TRAINED, metavar="X", help="At most, in the offers' currency.")
    ] = None
    global_batch: Annotated[
        str | None,
        option(
            "--global-batch",
            panel=TRAINED,
            metavar="N",
            help="Examples of an update over all cards (strong scaling).",
            show_default="the step's batch on each card (weak scaling)",
        ),
    ] = None
    accumulate: Annotated[
        str | None,
        option(
            "--accumulate",
            panel=TRAINED,
            metavar="N",
            help="Batches of a card summed up for an update.",
            show_default="1, or as many as a global batch takes",
        ),
    ] = None

    def job(self) -> TrainingJob:
        """The job that these options describe."""
        from hocket.offers import TrainingJob

        deadline_s = None if self.deadline is None else long_duration(self.deadline, "deadline")
        return TrainingJob(
            examples=self._examples(),
            global_batch=self._global_batch(),
            accumulate=None if self.accumulate is None else whole_amount(self.accumulate, "accumulate", "4"),
            deadline_s=deadline_s,
            budget=None if self.budget is None else amount(self.budget, "budget", "2000"),
        )

    def _examples(self) -> float:
        given = {"--examples": self.examples, "--epochs": self.epochs, "--steps": self.steps}
        named = [name for name, value in given.items() if value is not None]
        if len(named) != 1:
            said = " and ".join(named) or "no --examples, --epochs or --steps"
            raise HocketError(f"{said}: the job is one of them; give e.g. --examples 90M")
        if self.dataset_size is not None and self.epochs is None:
            raise HocketError(
                f"--dataset-size {self.dataset_size}: it is of --epochs; give both, or leave it out"
            )
        if self.examples is not None:
            return amount(self.examples, "examples", "90M")
        if self.epochs is not None:
            if self.dataset_size is None:
                raise HocketError(
                    f"--epochs {self.epochs}: of what size is not said; give --dataset-size 1.28M"
                )
            return amount(self.epochs, "epochs", "90") * amount(self.dataset_size, "dataset size", "1.28M")
        assert self.steps is not None, "one of three is given"
        global_batch = self._global_batch()
        if global_batch is None:
            raise HocketError(
                f"--steps {self.steps}: without --global-batch, more cards see more examples in as many"
                " steps, and none is faster; give --global-batch N, or --examples"
            )
        return amount(self.steps, "steps", "56k") * global_batch

    def _global_batch(self) -> int | None:
        return None if self.global_batch is None else whole_amount(self.global_batch, "global batch", "2048")


@dataclass(frozen=True, kw_only=True)
class RentStep:
    """Options for the step of a model, which is derived for each offer's card."""

    batch_size: Annotated[
        int | None,
        option(
            "--batch-size",
            panel=PROFILE,
            metavar="N",
            min=1,
            help="Of a model: examples of a card's batch, at most.",
            show_default="FACTORY's own, else 32",
        ),
    ] = None
    precision: Annotated[
        Precision | None,
        option(
            "--precision",
            panel=PROFILE,
            help="Of a model, as in hocket profile.",
            show_default="tf32 where a card has it, else fp32",
        ),
    ] = None
    channels_last: Annotated[
        bool, option("--channels-last", panel=PROFILE, help="Of a model: images with their channels last.")
    ] = False
    compile: Annotated[
        bool, option("--compile", panel=PROFILE, help="Of a model: fuse as torch.compile does (untried).")
    ] = False

    def check_of_files(self) -> None:
        """Refuse what a step's file has by itself."""
        for named, given in (
            (f"--batch-size {self.batch_size}", self.batch_size is not None),
            (f"--precision {self.precision}", self.precision is not None),
            ("--channels-last", self.channels_last),
            ("--compile", self.compile),
        ):
            if given:
                raise HocketError(f"{named}: a step's file has its own; leave it out, or give the model")


@dataclass(frozen=True, kw_only=True)
class RentOutput(options.PrintOptions):
    """Options for what is printed and written."""

    plot: Annotated[
        Path | None,
        option("--plot", panel=OUTPUT, metavar="FILE", help="Write a page: cost over time, and tables."),
    ] = None
