"""The rows of a prediction in one object: a list that notebooks show, pandas takes and a page draws."""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from hocket.document import write_whole
from hocket.graph import StepGraph
from hocket.graph.plan import ARCHITECTURE_NAMES
from hocket.network import Network
from hocket.notebook import ObjectSummary, Summarized, data_frame
from hocket.predictor.answer import answers
from hocket.predictor.prediction import Prediction
from hocket.text import counted, duration_text, rate_text, scaled_text


@dataclass(frozen=True, repr=False)
class Page:
    """One self-contained HTML page; a notebook shows it in a frame.

    Attributes
    ----------
    html
        The page's text.

    Examples
    --------
    >>> import hocket
    >>> graph = hocket.load_step("step.json")
    >>> page = hocket.predict(graph, hocket.Network(), workers=[1, 2], steps=20, skip=5).plot()
    >>> page.save("prediction.html")
    """

    html: str

    def save(self, path: str | Path) -> None:
        """Write the page to ``path``, whole or not at all.

        Raises
        ------
        HocketError
            When the file cannot be written.
        """
        write_whole(self.html.encode(), Path(path))

    def __repr__(self) -> str:
        return f"Page of {scaled_text(len(self.html), 'B')}; save(path) writes it"

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width:100%;height:40em;border:0"></iframe>'


class Predictions(Summarized, list[Prediction]):
    """A list of :class:`hocket.Prediction`, a row a configuration, in the order in which they were asked for.

    Attributes
    ----------
    title
        The page's title, with the model's name.
    setup
        The configurations in one line: mode, architecture, policy, batch size, network.
    caveat
        The step's caveat: how far its durations may be off; "" for none.

    Examples
    --------
    >>> import tempfile
    >>> import hocket
    >>> graph = hocket.load_step("step.json")
    >>> rows = hocket.predict(graph, hocket.Network(bandwidth_bps=1e9), workers=[1, 2], steps=20, skip=5)
    >>> [row.workers for row in rows]
    [1, 2]
    >>> "</html>" in rows.plot().html
    True
    """

    def __init__(
        self, rows: Iterable[Prediction], *, title: str = "", setup: str = "", caveat: str = ""
    ) -> None:
        super().__init__(rows)
        self.title = title
        self.setup = setup
        self.caveat = caveat

    @property
    def rows(self) -> list[Prediction]:
        """The rows as a plain list."""
        return list(self)

    def to_dataframe(self) -> Any:
        """A pandas DataFrame with a row a configuration; its columns are the fields of a Prediction.

        Raises
        ------
        HocketError
            When pandas is not installed.
        """
        return data_frame(map(msgspec.structs.asdict, self))

    def plot(self, path: str | Path | None = None) -> Page:
        """The page that ``hocket predict --plot`` writes: throughput over workers, and what limits it.

        Parameters
        ----------
        path
            A file to write the page to, whole or not at all; None: none.

        Returns
        -------
        The page, a :class:`hocket.predictor.predictions.Page`, which a notebook shows.

        Raises
        ------
        HocketError
            When there is no row, or the file cannot be written.
        """
        from hocket.report.prediction_page import render_prediction

        page = Page(render_prediction(self, title=self.title, setup=self.setup, caveat=self.caveat))
        if path is not None:
            page.save(path)
        return page

    def _summary(self) -> ObjectSummary:
        best = max(self, key=lambda row: row.throughput)
        shown = [row for k, row in enumerate(self) if k in (0, len(self) - 1) or row is best]
        lines = [(row.machines, f"{rate_text(row.throughput)}; busiest: {row.bottleneck}") for row in shown]
        headline = f"{counted(len(self), 'prediction')}: {self.title}"
        of = f"{self.setup} · {self.caveat}" if self.caveat else self.setup
        return ObjectSummary(headline, [("of", of), *lines, ("answer", answers(self)[0])])


def setup_line(graph: StepGraph, network: Network, row: Prediction) -> str:
    """The configurations that rows are predicted for, in one line."""
    mode = {"async": "asynchronous", "sync": "synchronous"}[row.mode]
    exchange = ARCHITECTURE_NAMES[row.architecture]
    bandwidth = f"{scaled_text(network.bandwidth_bps, 'bit/s')}, startup {duration_text(network.startup_s)}"
    said = [f"{mode}, {exchange}", row.policy, f"batches of {graph.batch_size}", f"interfaces of {bandwidth}"]
    said += [] if network.nodes is None else [network.nodes.text]
    return " · ".join(said)
