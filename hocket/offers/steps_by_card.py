"""Steps by the card that they are for: a step holds for its own card alone, and for its own batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from hocket.datasheets import DEVICES, device_name
from hocket.errors import HocketError, UnknownNameError
from hocket.graph import StepGraph
from hocket.offers.offer import Offer
from hocket.text import listed


class StepsByCard(Protocol):
    """Steps of one model, by the card and the batch that each is for."""

    @property
    def model(self) -> str:
        """The model's name."""
        ...

    @property
    def own_cards(self) -> Sequence[str]:
        """Cards that steps know of themselves, beside those of datasheets."""
        ...

    def missing(self, card: str) -> str:
        """A clause on why a card has no step; "" where it has one, as the other methods take for granted."""
        ...

    def largest_batch(self, card: str) -> int:
        """The largest batch that there is a step of."""
        ...

    def batches(self, card: str) -> Sequence[int]:
        """All batches that there is a step of; empty where any is derived."""
        ...

    def has(self, card: str, batch_size: int) -> bool:
        """True if there is a step of that batch."""
        ...

    def step(self, card: str, batch_size: int) -> StepGraph:
        """The step of that batch, where :meth:`has` says that there is one."""
        ...


def check_known(steps: StepsByCard, offers: Iterable[Offer]) -> None:
    """Refuse an offer of a card that is neither a step's nor a datasheet's, as a slip of the pen is.

    Raises
    ------
    UnknownNameError
        Naming the offer, and the nearest card.
    """
    known = list(dict.fromkeys((*steps.own_cards, *DEVICES)))
    for offer in offers:
        if offer.card not in known:
            raise UnknownNameError(f"offer '{offer.name}': device", offer.card, known)


class GivenSteps:
    """Steps as they were given: each for one card and one batch.

    ``fixed_batch``: true if each card is to have one batch, as it is asked for with a fixed batch a card.

    Raises
    ------
    HocketError
        When two steps are for one card and one batch, or of two models; when a card has two batches and one
        is to be fixed.
    """

    def __init__(self, graphs: Iterable[StepGraph], *, fixed_batch: bool = True) -> None:
        self._steps: dict[str, dict[int, StepGraph]] = {}
        models: dict[str, None] = {}
        for graph in graphs:
            models[graph.model] = None
            of_card = self._steps.setdefault(device_name(graph.device), {})
            if graph.batch_size in of_card:
                raise HocketError(
                    f"two steps are for {graph.device} with batches of {graph.batch_size}; give one of them"
                )
            of_card[graph.batch_size] = graph
        if not models:
            raise HocketError("no step to predict from; give at least one")
        if len(models) > 1:
            raise HocketError(
                f"steps are of {listed(list(models))}; give steps of one model, each for a card"
            )
        self._model = next(iter(models))
        for card, of_card in self._steps.items():
            if fixed_batch and len(of_card) > 1:
                sizes = listed([str(size) for size in sorted(of_card)])
                raise HocketError(
                    f"steps for {card} have batches of {sizes}: a fixed batch a card is one of them; give"
                    " that one, or a global batch"
                )

    @property
    def model(self) -> str:
        """The model's name."""
        return self._model

    @property
    def own_cards(self) -> Sequence[str]:
        """Those of the steps."""
        return tuple(self._steps)

    def missing(self, card: str) -> str:
        """As :class:`StepsByCard` says."""
        there = listed(sorted(self._steps))
        return "" if card in self._steps else f"no step is for such a card, steps are for {there} alone"

    def largest_batch(self, card: str) -> int:
        """As :class:`StepsByCard` says."""
        return max(self._steps[card])

    def batches(self, card: str) -> Sequence[int]:
        """As :class:`StepsByCard` says."""
        return sorted(self._steps[card])

    def has(self, card: str, batch_size: int) -> bool:
        """As :class:`StepsByCard` says."""
        return batch_size in self._steps[card]

    def step(self, card: str, batch_size: int) -> StepGraph:
        """As :class:`StepsByCard` says."""
        return self._steps[card][batch_size]
