"""Naive twin of ``hocket.rent``: every offer and number of nodes one by one, then looking at all of them."""

from __future__ import annotations

import math

from hocket.graph import StepGraph
from hocket.network import Network, Nodes
from hocket.offers import Offer, TrainingJob
from hocket.predictor import predict


def rented(graph: StepGraph, offers: list[Offer], job: TrainingJob) -> list[tuple[str, int, float, float]]:
    """(offer, nodes, hours, cost) of each offer and number of nodes, with the step's batch on each card."""
    found = []
    for offer in offers:
        nodes = Nodes(gpus=offer.gpus, intra_bps=offer.intra_bps, nics=offer.nics, intra_startup_s=1e-6)
        network = Network(
            bandwidth_bps=offer.bandwidth_bps or 1e9, startup_s=offer.latency_s or 0, nodes=nodes
        )
        for count in range(1, offer.most_nodes + 1):
            cards = count * offer.gpus
            (row,) = predict(graph, network, workers=cards, architecture="allreduce", steps=10, skip=5)
            hours = math.ceil(job.examples / (cards * graph.batch_size)) * row.step_s / 3600
            found.append((offer.name, count, hours, hours * count * offer.price_per_hour))
    return found


def front(points: list[tuple[float, float]]) -> set[tuple[float, float]]:
    """The points that no other one beats in one number without losing in the other."""
    return {(x, y) for x, y in points if not any((a <= x and b < y) or (a < x and b <= y) for a, b in points)}
