"""``hocket rent``: the time and the cost of a job on each offer, with each number of nodes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from hocket.cli import options
from hocket.cli.name_options import complete_model, lowercase_unless_file
from hocket.cli.option_groups import grouped
from hocket.cli.printing import note, print_json, progress
from hocket.cli.rent_options import RentJob, RentOffers, RentOutput, RentStep
from hocket.cli.screen import MORE, Sheet, command_line, show
from hocket.errors import HocketError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hocket.offers import Offer, Rental, TrainingJob
    from hocket.offers.steps_by_card import StepsByCard

_STEP_FILES = (".json", ".zst", ".gz")


@grouped
def rent(
    context: typer.Context,
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="STEP...|MODEL|FILE.py:FACTORY",
            help="hocket.step/1 files, one for each card; or a model, whose step is derived for each card.",
            callback=lowercase_unless_file,
            autocompletion=complete_model,
        ),
    ],
    offers: RentOffers,
    job: RentJob,
    step: RentStep,
    output: RentOutput,
) -> None:
    """Compare offers of machines for a job: hours, cost, and the best number of nodes of each."""
    from hocket.document import write_whole
    from hocket.offers import load_offers
    from hocket.offers.compare_offers import rent_by

    output.check()
    asked = job.job()
    files = [Path(each) for each in sources if _is_file(each)]
    if output.plot is not None:
        options.check_beside_result(output.plot, *files, offers.offers)
    offered = load_offers(offers.offers)
    with progress("predicting", is_even=False) as report:
        telling = _Telling(report, offered)
        telling.done(0, len(offered))
        source = _source(sources, files, step, asked, telling.derives)
        rental = rent_by(source, offered, asked, progress=telling.done)
        page = None if output.plot is None else rental.plot().html
    if output.plot is not None and page is not None:
        write_whole(page.encode(), output.plot)
    if output.json:
        print_json(_document(rental))
    else:
        _show(context, rental, wide=output.wide)
    if output.plot is not None:
        note(f"{output.plot}: open it in a browser")


class _Telling:
    """The progress of offers: the one under way, its cards, and what is being derived for it."""

    def __init__(self, report: Callable[..., None], offers: Sequence[Offer]) -> None:
        self._report, self._offers, self._done = report, offers, 0

    def done(self, done: int, total: int) -> None:
        self._done = done
        self._say("predicting" if done < total else "comparing offers")

    def derives(self, what: str) -> None:
        self._say(f"deriving {what} for" if what else "predicting")

    def _say(self, doing: str) -> None:
        done, total = self._done, len(self._offers)
        if done < total:
            offer = self._offers[done]
            doing += f" {offer.name} ({offer.card} x {offer.gpus}), offer {done + 1} of {total}"
        self._report(done, total, doing)


def _is_file(name: str) -> bool:
    return name == "-" or name.endswith(_STEP_FILES)


def _source(
    names: list[str], files: list[Path], step: RentStep, job: TrainingJob, telling: Callable[[str], object]
) -> StepsByCard:
    """The steps of files, or of one model that is derived for each card."""
    from hocket.graph import load_step
    from hocket.models.target import check_target
    from hocket.offers.derived_steps import DerivedSteps
    from hocket.offers.steps_by_card import GivenSteps

    if files:
        if len(files) < len(names):
            other = next(name for name in names if not _is_file(name))
            raise HocketError(
                f"{other} is no step's file (.json, .json.gz, .json.zst); give files alone, or one model"
            )
        step.check_of_files()
        return GivenSteps(map(load_step, files), fixed_batch=job.global_batch is None)
    if len(names) > 1:
        raise HocketError(f"{' and '.join(names[:2])}: give one model, or the files of its steps")
    check_target(names[0])
    return DerivedSteps(
        target=names[0],
        batch_size=step.batch_size,
        precision=step.precision,
        channels_last=step.channels_last,
        compile=step.compile,
        telling=telling,
    )


def _document(rental: Rental) -> dict[str, Any]:
    """The one document of ``--json``."""
    from hocket.offers.rental_answer import assumptions, left_out, not_included, verdicts

    def plain(row: object) -> Any:
        return msgspec.to_builtins(row)

    job = rental.job
    return {
        "model": rental.model,
        "job": {name: getattr(job, name) for name in job.__dataclass_fields__},
        "currency": rental.currency,
        "answer": verdicts(rental),
        "cheapest": plain(rental.cheapest),
        "fastest": plain(rental.fastest),
        "offers": [
            {
                "offer": outcome.offer.name,
                "device": outcome.offer.card,
                "left_out": outcome.left_out or None,
                "nodes_left_out": list(outcome.skipped),
                "cheapest": plain(outcome.best[0]) if outcome.rows else None,
                "fastest": plain(outcome.best[1]) if outcome.rows else None,
                "network_bound_from": outcome.bound_from,
                "caveats": list(dict.fromkeys(each.caveat for each in outcome.steps if each.caveat)),
            }
            for outcome in rental.outcomes
        ],
        "front": [plain(row) for row in rental.front],
        "rows": [plain(row) for row in rental],
        "assumed": assumptions(rental),
        "left_out": left_out(rental),
        "not_included": not_included(rental),
    }


def _show(context: typer.Context, rental: Rental, *, wide: bool) -> None:
    from hocket.columns import in_one_line, narrow
    from hocket.offers.rental_answer import assumptions, cautions, left_out, not_included, verdicts
    from hocket.report.rental_table import (
        hardly_cheaper,
        offer_columns,
        offers_of,
        row_columns,
        worth_a_look,
    )

    rows = list(rental) if wide else worth_a_look(rental)
    named = (rental.cheapest, rental.fastest)
    offers = offers_of(rental)
    columns = [row_columns(rows, rental.currency), offer_columns(offers, rental.currency)]
    if not wide:
        columns = [in_one_line(narrow(each)) for each in columns]
    few = f" ({more})" if (more := hardly_cheaper(rental)) else ""
    title = (
        "Every offer and number of nodes:" if wide else f"Nothing is both faster and cheaper than these{few}:"
    )
    sheets = [
        Sheet(title, columns[0], [row in named for row in rows]),
        Sheet(
            "Each offer's cheapest and fastest number of nodes:",
            columns[1],
            [any(row in named for row in each.best) for each in offers],
        ),
    ]
    show(
        [*verdicts(rental), *left_out(rental), *cautions(rental)],
        assumptions=f"{'; '.join(assumptions(rental))}. {not_included(rental)}.",
        sheets=sheets,
        remarks=[] if wide else [MORE],
        following=_following(context, rental),
    )


def _following(context: typer.Context, rental: Rental) -> str:
    """The command to go on with: the page, then other numbers of nodes of the answer."""
    names = [str(name) for name in context.params["sources"]]
    if context.params["plot"] is None:
        like = (
            *("offers", "examples", "epochs", "dataset_size", "steps", "deadline", "budget", "global_batch"),
            *("accumulate", "batch_size", "precision", "channels_last", "compile"),
        )
        return command_line(context, "hocket", "rent", *names, like=like, plot="rent.html")
    return ""
