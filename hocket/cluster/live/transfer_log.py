"""A log of the network's holders, and of when they had it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from hocket.cluster.live.manager_messages import TransferSpan

_MOST_SPANS = 5000


class TransferLog:
    """The last transfers of a cluster, those under way among them."""

    def __init__(self) -> None:
        self._spans: deque[list[object]] = deque(maxlen=_MOST_SPANS)
        self._open: dict[str, tuple[int, list[object]]] = {}

    def take(self, since: Mapping[str, int], servers: Mapping[str, list[int]], now_s: float) -> None:
        """Write down whose transfers have begun since the last call, and whose are over.

        since: of each job that transfers, what tells this transfer from its others; servers: where it is.
        """
        for name, (begun, span) in list(self._open.items()):
            if since.get(name) != begun:
                span[3] = now_s
                del self._open[name]
        for name, begun in since.items():
            if name not in self._open:
                span = [name, servers[name], now_s, None]
                self._open[name] = begun, span
                self._spans.append(span)

    def spans(self) -> tuple[TransferSpan, ...]:
        """All that are remembered."""
        return tuple(TransferSpan(*span) for span in self._spans)  # type: ignore[arg-type]
