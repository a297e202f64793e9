"""Steps that are derived from a model, for each card and batch that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hocket.datasheets import DEVICES, Precision
from hocket.errors import HocketError
from hocket.graph import StepGraph

if TYPE_CHECKING:
    from hocket.profiler.derived_target import LoadedTarget


@dataclass(frozen=True, kw_only=True)
class DerivedSteps:
    """Steps of a model, each derived when it is first asked for; as :class:`StepsByCard` has them.

    ``target``: a name of the zoo or ``FILE.py:FACTORY``; ``batch_size``: the largest batch of a card, None
    for the usual one or what the function makes; ``telling``: called with what is being derived, and with ""
    when it is there.
    """

    target: str
    batch_size: int | None = None
    precision: Precision | None = None
    channels_last: bool = False
    compile: bool = False
    telling: Callable[[str], object] = lambda _: None
    _loaded: dict[int | None, LoadedTarget] = field(default_factory=dict)
    _kept: dict[tuple[str, int | None], StepGraph] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The model, as it was named."""
        return self.target.rpartition(":")[2]

    @property
    def own_cards(self) -> Sequence[str]:
        """None: a step is derived from a datasheet."""
        return ()

    def missing(self, card: str) -> str:
        """A clause on why no step is derived for the card; "" where one is."""
        if self.precision is not None:
            try:
                DEVICES[card].check(self.precision)
            except HocketError as error:
                return str(error)
        return ""

    def largest_batch(self, card: str) -> int:
        """The batch that was asked for, or what the function makes."""
        return self._step(card, None).batch_size if self.batch_size is None else self.batch_size

    def batches(self, card: str) -> Sequence[int]:
        """None: any batch can be derived."""
        return ()

    def has(self, card: str, batch_size: int) -> bool:
        """True, as any batch can be derived."""
        return True

    def step(self, card: str, batch_size: int) -> StepGraph:
        """The step of that batch on the card."""
        own = self._kept.get((card, None))
        return own if own is not None and own.batch_size == batch_size else self._step(card, batch_size)

    def _step(self, card: str, batch_size: int | None) -> StepGraph:
        from hocket.profiler import Target, derive
        from hocket.profiler.derived_target import load_target

        def told(remark: str) -> None:
            if batch_size != self.batch_size:
                raise HocketError(f"{remark}: no other batch of it is derived; let it take batch_size")

        if (card, batch_size) not in self._kept:
            self.telling(f"{self.model} on {card}")
            way = Target(
                DEVICES[card], self.precision, channels_last=self.channels_last, compile=self.compile
            )
            if batch_size not in self._loaded:
                self._loaded[batch_size] = load_target(self.target, batch_size, told=told)
            loaded = self._loaded[batch_size]
            self._kept[card, batch_size] = derive(
                loaded.step, device=way, name=loaded.name, batch_size=loaded.batch_size
            )
            self.telling("")
        return self._kept[card, batch_size]
