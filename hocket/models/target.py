"""Names of what is profiled: a model of the zoo, or a function in a file; importing this takes no torch."""

from __future__ import annotations

from hocket.errors import HocketError, UnknownNameError
from hocket.models.zoo import OTHERS, names


def check_target(target: str) -> None:
    """Refuse ``target`` where it is neither a model of the zoo nor written ``FILE.py:FACTORY``.

    The file is not looked at.

    Raises
    ------
    HocketError
        Naming the nearest model, or the form with a function.
    """
    path, colon, _ = target.rpartition(":")
    if colon and path.endswith(".py"):
        return
    if target.endswith(".py"):
        raise HocketError(f"'{target}' names no function; write {target}:FACTORY")
    if target not in names():
        raise UnknownNameError("model", target, (*names(), "FILE.py:FACTORY"), OTHERS)
