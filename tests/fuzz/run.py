"""Feed damaged inputs to every reader: ``python -m tests.fuzz --inputs 1000000 --seed 0 --processes 2``.

An input is served or refused by a HocketError; anything else, and whatever takes longer than two seconds of
processor time, is kept in ``--keep`` and makes the status 1. An input is the same each time, by its number.
"""

from __future__ import annotations

import argparse
import faulthandler
import multiprocessing
import random
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from hocket.errors import HocketError
from tests.fuzz.mutations import damaged
from tests.fuzz.readers import Reader, readers

LONGEST_S = 2.0
_HANGS_S = 60.0


def tried(reader: Reader, data: bytes, folder: Path) -> str:
    """The fault of a reader with an input; "" for none, whether it is served or refused."""
    path = folder / reader.file
    path.write_bytes(data)
    began_s = time.process_time()
    try:
        reader.read(path)
    except HocketError as error:
        if "\n" in str(error):
            return f"{reader.name}: a refusal of several lines: {str(error)[:100]!r}"
    except Exception as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if "hocket/" in f.filename]
        where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "?"
        return f"{reader.name}: {type(error).__name__} at {where}: {str(error)[:100]!r}"
    spent_s = time.process_time() - began_s
    return f"{reader.name}: {spent_s:.1f} s" if spent_s > LONGEST_S else ""


def input_of(reader: Reader, seed: int, number: int) -> bytes:
    """An input of a reader, the same each time."""
    draw = random.Random(f"{seed}/{reader.name}/{number}")
    return damaged(draw.choice(reader.seeds), draw)


def fuzz(first: int, inputs: int, stride: int, seed: int, keep: Path | None) -> Counter[str]:
    """Try every ``stride``-th input from ``first`` on; the faults, by what they are, and how many of each."""
    faults: Counter[str] = Counter()
    known = readers()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        for number in range(first, inputs, stride):
            reader = known[number % len(known)]
            data = input_of(reader, seed, number)
            faulthandler.dump_traceback_later(_HANGS_S, exit=True)
            fault = tried(reader, data, Path(name))
            if fault:
                if not faults[fault] and keep is not None:
                    kept = keep / reader.name
                    kept.mkdir(parents=True, exist_ok=True)
                    (kept / f"{seed}-{number}").write_bytes(data)
                    print(f"input {number} of seed {seed}: {fault}", flush=True)
                faults[fault] += 1
    faulthandler.cancel_dump_traceback_later()
    return faults


def main() -> int:
    """Try as many inputs as are asked for; 1 where there was a fault."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir(), "hocket-fuzz"))
    asked = parser.parse_args()
    began_s = time.monotonic()
    work = [(k, asked.inputs, asked.processes, asked.seed, asked.keep) for k in range(asked.processes)]
    with multiprocessing.get_context("spawn").Pool(asked.processes) as pool:
        faults = sum(pool.starmap(fuzz, work), Counter())
    for fault, count in faults.most_common():
        print(f"{count} x {fault}")
    print(f"{asked.inputs} inputs, {sum(faults.values())} faults, {time.monotonic() - began_s:.0f} s")
    return 1 if faults else 0
