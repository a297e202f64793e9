"""Barriers: reasons for which steps waited for transfers that might have gone on, and how often."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from hocket.runtime.observe.callers import place_in_script
from hocket.text import counted

WINDOW = 50
"""Of how many of the last steps barriers are told."""
_NAMED = 3


class Barriers:
    """The barriers of one model's training on this rank.

    ``steps``: how many steps were trained, kept up to date by the training; ``told``: called with one line
    the first time that a reason is met.
    """

    def __init__(self, told: Callable[[str], None] = lambda line: None) -> None:
        self.steps = 0
        self.told = told
        # Of each reason, in which steps and for which parameters.
        self._met: dict[str, dict[int, dict[str, None]]] = {}
        self._places: dict[str, str] = {}
        self._standing: dict[str, dict[str, None]] = {}

    def meet(self, why: str, names: Iterable[str] = ()) -> None:
        """Note that this step waits because of ``why`` for parameters of these ``names``; none: for all."""
        first = why not in self._met
        steps = self._met.setdefault(why, {})
        if not any(step > self.steps - WINDOW for step in steps):
            # Looked for once, not in every step: a step that is settled pays nothing for it.
            self._places[why] = place_in_script()
        if self.steps not in steps:
            for old in [step for step in steps if step <= self.steps - WINDOW]:
                del steps[old]
            steps[self.steps] = {}
        steps[self.steps].update(dict.fromkeys(names))
        if first:
            self.told(f"barrier: {self._placed(why)}: in step {self.steps}, for {_listed(steps[self.steps])}")

    def stand(self, why: str, names: Iterable[str]) -> None:
        """Note that every step waits because of ``why``, which is so from now on."""
        self._standing[why] = dict.fromkeys(names)
        self.told(f"barrier: {why}: in every step, for {_listed(self._standing[why])}")

    def each_step_held(self, names: Collection[str]) -> bool:
        """True if each of the last steps met barriers for all parameters of these ``names``."""
        window = range(max(1, self.steps - WINDOW + 1), self.steps + 1)
        return len(window) > 0 and all(self._held(step, names) for step in window)

    def _held(self, step: int, names: Collection[str]) -> bool:
        met = [steps[step] for steps in self._met.values() if step in steps]
        return any(not held for held in met) or set(names) <= {name for held in met for name in held}

    def lines(self) -> list[str]:
        """A line for each reason met in the last steps: how often, when last, and for which parameters."""
        found = [
            f"{why}: in every step, for {_listed(dict.fromkeys(names))}"
            for why, names in self._standing.items()
        ]
        window = min(WINDOW, self.steps)
        for why, steps in self._met.items():
            recent = {step: names for step, names in steps.items() if step > self.steps - WINDOW}
            if not recent:
                continue
            names = dict.fromkeys(name for step in recent.values() for name in step)
            often = f"{len(recent)} of the last {counted(window, 'step')}"
            found.append(f"{self._placed(why)}: in {often}, last in step {max(recent)}, for {_listed(names)}")
        return found

    def _placed(self, why: str) -> str:
        place = self._places[why]
        return f"{why}, first at {place}" if place else why


def _listed(names: dict[str, None]) -> str:
    if not names:
        return "every parameter"
    shown, more = list(names)[:_NAMED], len(names) - _NAMED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
