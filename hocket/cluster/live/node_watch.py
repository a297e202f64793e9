"""A node, asked again and again what became of its ranks: what it said last, and since when it is silent."""

from __future__ import annotations

import asyncio

from hocket.cluster.live.nodes import Node, NodeError

Conditions = dict[str, int | None]

_LATE_S = 5.0
_MOST_ROUND_S = 1.0


class NodeWatch:
    """The latest news of a node's ranks.

    ``quiet_s``: for how long it has owed us an answer, 0 while it gives them. Only time in which we ran
    counts, not time in which we were stopped or suspended with the machine. ``why``: it does not answer.
    ``strays``: whether it has ranks that are to end. ``late``, set by :meth:`has_turned`: no job is to be
    placed there, as it does not answer, or has only just come back with strays.
    """

    def __init__(self, node: Node, most_late_s: float) -> None:
        self.node = node
        self.quiet_s = 0.0
        self.why = ""
        self.late = self.strays = False
        self._late_s = min(_LATE_S, most_late_s)
        self._question: asyncio.Task[Conditions] | None = None
        self._asked_s = self._answer_asked_s = 0.0
        self._answer: Conditions | None = None

    def ask(self) -> asyncio.Task[Conditions]:
        """Ask, unless the last question is open."""
        if self._question is None:
            self._asked_s = asyncio.get_running_loop().time()
            self._question = asyncio.create_task(self.node.conditions())
        return self._question

    def take(self, round_s: float) -> bool:
        """Take in the answer if there is one; ``round_s``: since the last call. True if there was one."""
        question = self._question
        if question is not None and question.done():
            self._question = None
            try:
                self._answer, self._answer_asked_s = question.result(), self._asked_s
            except NodeError as error:
                self.why = str(error)
            else:
                self.quiet_s, self.why = 0.0, ""
                return True
        self.quiet_s += min(round_s, _MOST_ROUND_S)
        return False

    def has_turned(self) -> bool:
        """True if it has become late, or answers again, since the last call."""
        was = self.late
        self.late = self.quiet_s >= self._late_s or (was and self.strays)
        return was != self.late

    def answer(self, since_s: float = 0.0) -> Conditions | None:
        """The node's last answer; None if it was not asked after ``since_s``, in the loop's time."""
        return self._answer if self._answer_asked_s > since_s else None

    @property
    def is_clear(self) -> bool:
        """True if it answers, and has no ranks but those of attempts that are under way."""
        return self._answer is not None and not self.late and not self.strays

    def end(self) -> None:
        """Ask no more."""
        if self._question is not None:
            self._question.cancel()
