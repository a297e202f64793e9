"""The optimizer's state on a worker, which is the servers': fetched when it is looked at.

Code that reads or replaces it has it as of the first look since the last step. Servers do not know of
changes made here, so the next step, or the next look, refuses them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import torch

from hocket.errors import HocketError
from hocket.runtime.ps.worker.fingerprint import Fingerprint
from hocket.runtime.ps.worker.served_training import ServedTraining

SeenEntries = dict[str, tuple[Any, Fingerprint | None]]
"""An entry's value, and what it was like, by its key."""


class FetchedState:
    """That of ``optimizer`` in ``training``; ``parameters``: the trained ones by name."""

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        training: ServedTraining,
        parameters: Mapping[str, torch.nn.Parameter],
    ) -> None:
        self._optimizer, self._training = optimizer, training
        self._parameters = dict(parameters)
        self._fetched_at = -1
        self._fetched = self._seen_entries()

    def look(self) -> None:
        """Have the servers' state here, unless it has come since the last step."""
        if self._fetched_at != self._training.steps:
            self.fetch()

    def fetch(self) -> None:
        """Have the servers' state here as it is now."""
        self.refuse_changes()
        entries: dict[str, dict[str, Any]] = defaultdict(dict)
        for key, value in self._training.client.optimizer_state().items():
            name, _, what = key.rpartition("/")
            entries[name][what] = value
        held = self._present_state
        for name, p in self._parameters.items():
            held.pop(p, None)
            if name in entries:
                held[p] = entries[name]
        self._fetched_at = self._training.steps
        self._fetched = self._seen_entries()

    def refuse_changes(self) -> None:
        """Refuse what was changed here since it was fetched."""
        held = self._present_state
        if not held and not self._fetched:
            return
        for name, p in self._parameters.items():
            entries, left = held.get(p) or {}, self._fetched.get(name, {})
            if entries.keys() != left.keys() or not all(_same(entries[k], *left[k]) for k in left):
                raise HocketError(
                    f"the optimizer's state of '{name}' was changed between steps, but the servers hold it,"
                    " and the change would be lost; leave it out, or train without --architecture ps"
                )

    @property
    def _present_state(self) -> dict[Any, dict[str, Any]]:
        """The state that is here, without a look."""
        held: dict[Any, dict[str, Any]] = vars(self._optimizer)["state"]
        return held

    def _seen_entries(self) -> dict[str, SeenEntries]:
        turn = self._training.steps
        return {
            name: {
                key: (value, Fingerprint(value, turn) if isinstance(value, torch.Tensor) else None)
                for key, value in entries.items()
            }
            for name, p in self._parameters.items()
            if (entries := self._present_state.get(p))
        }


def _same(value: Any, fetched: Any, fingerprint: Fingerprint | None) -> bool:
    if fingerprint is None:
        return bool(value is fetched or value == fetched)
    return value is fetched and fingerprint.matches(value)
