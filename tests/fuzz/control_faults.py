"""Faults of what is tried: anything but a refusal in a line, and what takes too long."""

from __future__ import annotations

import random
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from hocket.errors import HocketError
from hocket.launch.control import TransportError
from tests.fuzz.mutations import damaged

LONGEST_S = 2.0

Refusal = (TransportError, HocketError)


def tried(work: Callable[[], Any], found: Counter[str]) -> Any:
    """What ``work`` returns; None where it refuses, or has a fault."""
    began_s = time.process_time()
    try:
        return work()
    except Refusal as error:
        if "\n" in str(error):
            found[f"a refusal of several lines: {str(error)[:80]!r}"] += 1
    except Exception as error:
        found[shown(error)] += 1
    finally:
        if time.process_time() - began_s > LONGEST_S:
            found["it takes too long"] += 1
    return None


def shown(error: BaseException | None) -> str:
    if error is None:
        return "a thread ended"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "hocket/" in f.filename]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
    return f"{type(error).__name__} at {where}: {str(error)[:100]!r}"


def damaged_message(message: Any, draw: random.Random) -> bytes:
    return damaged(msgspec.json.encode(message), draw)
