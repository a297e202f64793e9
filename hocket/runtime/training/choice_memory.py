"""The memory of a training's choices: a folder, and what a checkpoint of the script's brings back.

Rank 0 reads and writes; the others hear of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from hocket.errors import HocketError
from hocket.graph import StepGraph
from hocket.runtime.training.choice_folder import ChoiceFolder
from hocket.runtime.training.kept_choice import CHOICE_FORMAT, KeptChoice, keep, kept_of_document
from hocket.runtime.training.plan_trials import Choice
from hocket.runtime.transfers.gloo_group import GlooGroup, broadcast_value

_OF_CHECKPOINT = "the checkpoint's choice"


class ChoiceMemory:
    """The memory of choices of one training.

    ``folder``: None where nothing is kept; ``outline``: the parameters that a plan has to fit; ``key``: asks
    all ranks for the key of choices for this training, as one that clips or not.
    """

    def __init__(
        self,
        choice: Choice,
        outline: StepGraph,
        folder: ChoiceFolder | None,
        control: GlooGroup,
        key: Callable[[bool], str],
    ) -> None:
        self._choice, self._outline, self._folder, self._control = choice, outline, folder, control
        self._ask_key = key
        self._key = ""
        self._loaded: Mapping[str, Any] | None = None
        self._closed = False

    def expects(self) -> bool:
        """Tell whether one is kept in the folder, before it is known whether steps clip; all ranks ask."""
        keys = [self._ask_key(clips) for clips in (False, True)]
        return self._folder is not None and any(map(self._folder.has, keys))

    def recall(self) -> KeptChoice | None:
        """The choice that was kept for this training, a checkpoint's before the folder's, if there is one."""
        self._closed, self._key = True, self._ask_key(self._choice.clips)
        found = self._found() if self._control.rank == 0 else None
        told = broadcast_value([] if found is None else [found], self._control, list[KeptChoice])
        return told[0] if told else None

    def keep(self) -> None:
        """Keep the choice that has been made."""
        if self._folder is None or self._control.rank != 0:
            return
        try:
            self._folder.save(self._key, msgspec.to_builtins(keep(self._choice, self._key)))
        except HocketError as error:
            self._choice.report(f"the choice is not kept: {error}")

    def state(self) -> dict[str, Any]:
        """The state that a checkpoint is to keep: the choice, where one was made, as plain data."""
        if not (self._key and self._choice.settled):
            return {"format": CHOICE_FORMAT}
        state: dict[str, Any] = msgspec.to_builtins(keep(self._choice, self._key))
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over the choice of a checkpoint.

        Raises
        ------
        HocketError
            Where it is no state of a choice, or comes when the plan is being chosen already.
        """
        if not isinstance(state, Mapping) or state.get("format") != CHOICE_FORMAT:
            raise HocketError(
                f"the state is no {CHOICE_FORMAT}; give what model.hocket.state_dict() returned"
            )
        if self._closed:
            raise HocketError(
                "the plan is being chosen already; call model.hocket.load_state_dict() before the third step"
            )
        self._loaded = state if "plan" in state else None

    def _found(self) -> KeptChoice | None:
        """The choice that is kept; one that is none, or for something else, is said to be so and left out."""
        if self._loaded is not None and (kept := self._read(lambda: self._loaded, _OF_CHECKPOINT)):
            return kept
        folder = self._folder
        if folder is None:
            return None
        return self._read(lambda: folder.load(self._key), str(folder.file(self._key)))

    def _read(self, document: Callable[[], Any], source: str) -> KeptChoice | None:
        try:
            found = document()
            if found is None:
                return None
            return kept_of_document(found, self._key, self._choice.inputs, self._outline, source)
        except HocketError as error:
            self._choice.report(f"what was kept is not taken: {error}")
            return None
