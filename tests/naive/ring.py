"""A ring all-reduce over links of two kinds, chunk by chunk, and trees over nodes, edge by edge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Link(NamedTuple):
    """A link: seconds until a byte that was sent is there, and seconds that each byte occupies it."""

    startup_s: float
    s_per_byte: float


def ring_s(nodes: Sequence[int], size_bytes: float, inside: Link, between: Link) -> float:
    """Seconds of an all-reduce in a ring over ``nodes`` of so many workers each.

    In step t worker r sends on what came in step t - 1, once it has sent what it sent then.
    """
    node_of = [k for k, workers in enumerate(nodes) for _ in range(workers)]
    n = len(node_of)
    links = [inside if node_of[r] == node_of[(r + 1) % n] else between for r in range(n)]
    there_s, free_s = [0.0] * n, [0.0] * n
    for _ in range(2 * (n - 1)):
        sent_s = [max(there_s[r], free_s[r]) + size_bytes / n * links[r].s_per_byte for r in range(n)]
        there_s = [sent_s[r - 1] + links[r - 1].startup_s for r in range(n)]
        free_s = sent_s
    return max(there_s)


def halves_sent(num_nodes: int) -> list[float]:
    """Times a batch that each of the nodes sends when it is summed up and handed out in two binary trees.

    Each tree has half of the batch. In the first a node's parent is the one without its lowest bit, or with
    the next one where that is there; the second is the first from the other end.
    """
    parents = [_parent(node, num_nodes) for node in range(num_nodes)]
    sent = [0.0] * num_nodes
    in_second = [
        num_nodes - 1 - node if num_nodes % 2 == 0 else (node + 1) % num_nodes for node in range(num_nodes)
    ]
    for node, parent in enumerate(parents):
        if parent is not None:
            for child, above in ((node, parent), (in_second[node], in_second[parent])):
                sent[child] += 0.5  # up
                sent[above] += 0.5  # down
    return sent


def _parent(node: int, num_nodes: int) -> int | None:
    if node == 0:
        return None
    bit = node & -node
    raised = (node ^ bit) | (bit << 1)
    return raised if raised < num_nodes else node ^ bit
