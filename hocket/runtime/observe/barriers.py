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

    ``steps``: how many steps were trained, kept up to date by the training; ``report``: called with one line
    the first time that a reason is met.
    """

    def __init__(self, report: Callable[[str], None] = lambda line: None) -> None:
        self.steps = 0
        self.report = report
        # Of each reason, in which steps and for which parameters.
        self._steps_of_reason: dict[str, dict[int, dict[str, None]]] = {}
        self._places: dict[str, str] = {}
        self._standing: dict[str, dict[str, None]] = {}

    def meet(self, why: str, names: Iterable[str] = ()) -> None:
        """Note that this step waits because of ``why`` for parameters of these ``names``; none: for all."""
        first = why not in self._steps_of_reason
        steps = self._steps_of_reason.setdefault(why, {})
        if not any(step > self.steps - WINDOW for step in steps):
            # Looked for once, not in every step: one of a plan that is settled pays nothing for it.
            self._places[why] = place_in_script()
        if self.steps not in steps:
            for old in [step for step in steps if step <= self.steps - WINDOW]:
                del steps[old]
            steps[self.steps] = {}
        steps[self.steps].update(dict.fromkeys(names))
        if first:
            names_text = _names_text(steps[self.steps])
            self.report(f"barrier: {self._reason_text(why)}: in step {self.steps}, for {names_text}")

    def stand(self, why: str, names: Iterable[str]) -> None:
        """Note that every step waits because of ``why``, which is so from now on."""
        self._standing[why] = dict.fromkeys(names)
        self.report(f"barrier: {why}: in every step, for {_names_text(self._standing[why])}")

    def each_step_held(self, names: Collection[str]) -> bool:
        """True if each of the last steps met barriers for all parameters of these ``names``."""
        window = range(max(1, self.steps - WINDOW + 1), self.steps + 1)
        return len(window) > 0 and all(self._step_met_all(step, names) for step in window)

    def _step_met_all(self, step: int, names: Collection[str]) -> bool:
        met = [steps[step] for steps in self._steps_of_reason.values() if step in steps]
        return any(not held for held in met) or set(names) <= {name for held in met for name in held}

    def usual(self) -> str:
        """The reason that most of the last steps met, with its line of the script; "" where half met none."""
        window = min(WINDOW, self.steps)
        often = {
            self._reason_text(why): sum(step > self.steps - WINDOW for step in steps)
            for why, steps in self._steps_of_reason.items()
        } | dict.fromkeys(self._standing, window)
        why = max(often, key=lambda each: often[each], default="")
        return why if why and 2 * often[why] > window else ""

    def lines(self) -> list[str]:
        """A line for each reason met in the last steps: how often, when last, and for which parameters."""
        found = [
            f"{why}: in every step, for {_names_text(dict.fromkeys(names))}"
            for why, names in self._standing.items()
        ]
        window = min(WINDOW, self.steps)
        for why, steps in self._steps_of_reason.items():
            recent = {step: names for step, names in steps.items() if step > self.steps - WINDOW}
            if not recent:
                continue
            names = dict.fromkeys(name for step in recent.values() for name in step)
            often = f"{len(recent)} of the last {counted(window, 'step')}"
            found.append(
                f"{self._reason_text(why)}: in {often}, last in step {max(recent)}, for {_names_text(names)}"
            )
        return found

    def _reason_text(self, why: str) -> str:
        place = self._places[why]
        return f"{why}, first at {place}" if place else why


def _names_text(names: dict[str, None]) -> str:
    if not names:
        return "every parameter"
    shown, more = list(names)[:_NAMED], len(names) - _NAMED
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")
