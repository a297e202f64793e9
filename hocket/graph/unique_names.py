"""Names that occur once, as operations and parameters of a step have to."""

from __future__ import annotations

from collections import Counter


class UniqueNames:
    """Names as asked for; the second of a kind gets ``.2``, the third ``.3``."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()

    def take(self, name: str) -> str:
        """Return ``name`` or the first free numbering of it."""
        candidate = name
        while candidate in self._counts:
            self._counts[name] += 1
            candidate = f"{name}.{self._counts[name]}"
        self._counts[candidate] += 1
        return candidate
