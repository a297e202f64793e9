"""Damage to valid inputs that knows their structure: values of documents, cells of tables, bytes."""

from __future__ import annotations

import gzip
import json
import random
from typing import Any

import zstandard

_NUMBERS = [0, -1, 1, 2, 0.5, 1e-320, -1e-9, 1e30, 1e300, 2**31, 2**53, 2**63 - 1, 2**63, 2**64, 10**40]
_STRANGE = [float("inf"), float("-inf"), float("nan"), -0.0]
_TEXTS = [
    *("", " ", "a\nb", "\x00", "\x1b[31m", "</script>", "é" * 30, "\ud800", "\ufeff", "x" * 5000, "0" * 3000),
    *(
        "1e999",
        "NaN",
        "-1",
        "1.5",
        "backward",
        "forward",
        "hocket.step/1",
        "__proto__",
        "../../etc",
        "\u202e",
    ),
    *(
        "nccl:all_reduce",
        "ProfilerStep#3",
        "2020-02-30 25:61:00",
        "9999999999999999999999",
        "float32",
        "9" * 25,
    ),
]
MOST_DEPTH = 20_000


def damaged(data: bytes, draw: random.Random) -> bytes:
    """``data`` with some of its structure or some of its bytes changed, compressed as it was."""
    if data[:2] == b"\x1f\x8b" and draw.random() < 0.9:
        return gzip.compress(damaged(gzip.decompress(data), draw), 1, mtime=0)
    if data[:4] == b"\x28\xb5\x2f\xfd" and draw.random() < 0.9:
        return zstandard.compress(damaged(zstandard.decompress(data), draw), 1)
    kind = data.lstrip()[:1]
    if kind in (b"{", b"[") and draw.random() < 0.85:
        data = _of_document(data, draw)
    elif b"," in data[:200] or b"\t" in data[:200]:
        data = _of_table(data, draw) if draw.random() < 0.8 else data
    return _of_bytes(data, draw) if draw.random() < 0.3 else data


def _value(draw: random.Random) -> Any:
    kind = draw.randrange(9)
    if kind == 0:
        return draw.choice(_NUMBERS)
    if kind == 1:
        return draw.choice(_STRANGE)
    if kind == 2:
        return draw.choice(_TEXTS)
    if kind == 3:
        return draw.choice([None, True, False, [], {}, [[]], [None], {"name": None}])
    if kind == 4:
        return [draw.choice(_NUMBERS) for _ in range(draw.randrange(5))]
    if kind == 5:
        return {draw.choice(_TEXTS): draw.choice(_NUMBERS)}
    if kind == 6:
        return draw.uniform(-1e6, 1e6)
    if kind == 7:
        return [draw.choice(_TEXTS) for _ in range(draw.randrange(4))]
    return draw.randrange(-5, 2**40)


def _of_document(data: bytes, draw: random.Random) -> bytes:
    """Some values replaced, removed, doubled, swapped or renamed."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return data
    for _ in range(draw.choice([1, 1, 1, 2, 3, 8])):
        holder, key = _place(document, draw)
        if holder is None:
            break
        change = draw.randrange(7)
        if change <= 2:
            holder[key] = _value(draw)
        elif change == 3:
            del holder[key]
        elif change == 4 and isinstance(holder, list):
            holder.insert(draw.randrange(len(holder) + 1), holder[key])
        elif change == 5 and isinstance(holder, dict):
            holder[draw.choice([*_TEXTS, *holder])] = holder.pop(key)
        else:
            other, place = _place(document, draw)
            if not (other is None or _within(other, holder[key]) or _within(holder, other[place])):
                holder[key], other[place] = other[place], holder[key]
    text = json.dumps(document, ensure_ascii=draw.random() < 0.8)
    if draw.random() < 0.01:
        depth = draw.choice([200, MOST_DEPTH])
        text = text.replace(": ", ": " + "[" * depth + "]" * depth + ', "deep": ', 1)
    return text.encode("utf-8", "surrogatepass")


def _place(document: Any, draw: random.Random) -> tuple[Any, Any]:
    """A holder of the document and a key of it, any depth being as likely; (None, None) for none."""
    holder, key, node = None, None, document
    depth = draw.randrange(1, 8)
    for _ in range(depth):
        if isinstance(node, dict) and node:
            holder, key = node, draw.choice(list(node))
        elif isinstance(node, list) and node:
            holder, key = node, draw.randrange(len(node))
        else:
            break
        node = holder[key]
    return holder, key


def _within(inner: Any, outer: Any) -> bool:
    if inner is outer:
        return True
    parts = outer.values() if isinstance(outer, dict) else outer if isinstance(outer, list) else ()
    return any(_within(inner, part) for part in parts)


def _of_table(data: bytes, draw: random.Random) -> bytes:
    """Some cells replaced, some lines doubled, dropped or out of order."""
    separator = "\t" if b"\t" in data[:200] else ","
    lines = data.decode(errors="surrogateescape").split("\n")
    for _ in range(draw.choice([1, 1, 2, 5])):
        row = draw.randrange(len(lines))
        change = draw.randrange(5)
        if change <= 2:
            cells = lines[row].split(separator)
            value = _value(draw)
            cells[draw.randrange(len(cells))] = value if isinstance(value, str) else json.dumps(value)
            lines[row] = separator.join(cells)
        elif change == 3:
            lines.insert(draw.randrange(len(lines) + 1), lines[row])
        elif len(lines) > 1:
            del lines[row]
    return "\n".join(lines).encode("utf-8", "surrogateescape" if _escaped(lines) else "surrogatepass")


def _escaped(lines: list[str]) -> bool:
    return all(not 0xD800 <= ord(each) < 0xDC80 for line in lines for each in line)


def _of_bytes(data: bytes, draw: random.Random) -> bytes:
    """Some bytes changed, put in or cut off."""
    changed = bytearray(data)
    for _ in range(draw.choice([1, 1, 2, 10])):
        if not changed:
            break
        place = draw.randrange(len(changed))
        match draw.randrange(4):
            case 0:
                changed[place] = draw.randrange(256)
            case 1:
                changed[place:place] = draw.randbytes(draw.randrange(1, 9))
            case 2:
                del changed[place : place + draw.randrange(1, 30)]
            case _:
                del changed[place:]
    return bytes(changed)
