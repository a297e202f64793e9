"""Nodes of several GPUs beside published figures: bus bandwidths, and what 2, 4 and 8 GPUs of a node reach.

    python -m scripts.published_scaling DATA

DATA holds published_training_throughput.csv. A step is the zoo's, as derived for the card with a spread of
5%, and stretched until one GPU alone has the published throughput: what is compared is scaling alone. GPT-2
small, whose parameters have 1.14 times the bytes, stands for BERT base.

The program that BERT's figures are from (NVIDIA's run_squad.py) counts as many steps as it was told, 100,
also where two epochs of its 88,641 features end sooner: figures are taken for the steps that were run.
"""

from __future__ import annotations

import csv
import dataclasses
import math
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import hocket
from hocket import models
from hocket.datasheets import Precision
from hocket.network import reduction_s
from hocket.profiler import Target, derive, fake, make_step

GIGABYTES = 8e9
JITTER, SAMPLES, STEPS = 0.05, 20, 400


class Card(NamedTuple):
    """A published machine's card: its name in the file, its datasheet's, and GB/s inside of a node."""

    published: str
    name: str
    inside: float


CARDS = (
    Card("V100 16GB", "v100", 150),
    Card("RTX 3090", "rtx3090", 32),
    Card("A100 80GB SXM4", "a100-80gb", 300),
    Card("H100 80GB SXM5", "h100", 450),
)
FEATURES, EPOCHS, COUNTED = 88_641, 2, 100
MODELS = {"resnet50": ("resnet50_v1", 64), "bert_base_squad": ("gpt2_small", 2)}


class BusBandwidth(NamedTuple):
    """A published bus bandwidth of nccl-tests' all-reduce, in GB/s, and where it is from."""

    machines: str
    gpus: int
    nodes: hocket.Nodes
    nic_bps: float
    size_bytes: float
    published: float
    source: str

    def predicted(self) -> float:
        """GB/s that the model has."""
        network = hocket.Network(num_workers=self.gpus, bandwidth_bps=self.nic_bps, nodes=self.nodes)
        seconds = reduction_s(network, self.size_bytes)
        return 2 * (self.gpus - 1) / self.gpus * self.size_bytes / seconds / 1e9


def nodes(inside: float, nics: int = 1, *, in_switch: bool = False) -> hocket.Nodes:
    """Nodes of eight GPUs with that many GB/s inside."""
    return hocket.Nodes(gpus=8, intra_bps=inside * GIGABYTES, nics=nics, in_switch=in_switch)


BUS_BANDWIDTHS = (
    BusBandwidth("8 H100, ring", 8, nodes(450), 1e9, 8e9, 370, "nccl-tests 212"),
    BusBandwidth("8 H100, NVLink SHARP", 8, nodes(450, in_switch=True), 1e9, 8e9, 480, "nccl-tests 212"),
    BusBandwidth("8 H200, NVLink SHARP", 8, nodes(450, in_switch=True), 1e9, 4.29e9, 475, "nccl-tests 272"),
    BusBandwidth("8 A100 on NVSwitch", 8, nodes(300), 1e9, 4.29e9, 232.5, "nccl-tests 175"),
    BusBandwidth("24 A100, 4 NICs of 200 Gbit/s", 24, nodes(300, 4), 200e9, 1.34e8, 96, "nccl-tests 119"),
    BusBandwidth("32 V100, 4 NICs of 100 Gbit/s", 32, nodes(150, 4), 100e9, 5.4e8, 48, "nccl-tests 29"),
    BusBandwidth("1984 H200, 8 NICs of 400 Gbit/s", 1984, nodes(450, 8), 400e9, 5.4e8, 350, "nccl-tests 283"),
)


class Scaling(NamedTuple):
    """The part of as many times one GPU's throughput that GPUs of a node reach."""

    machine: str
    card: str
    precision: str
    model: str
    gpus: int
    published: float
    predicted: float


def scalings(data: Path, only: Iterable[str] = MODELS) -> Iterator[Scaling]:
    """Every published row of several GPUs with ``only`` these models, with what is predicted for it."""
    with (data / "published_training_throughput.csv").open() as file:
        rows = list(csv.DictReader(file))
    for card in CARDS:
        mine = [row for row in rows if row["device"].endswith(card.published)]
        for alone in [row for row in mine if row["gpus"] == "1" and row["model"] in only]:
            kind = alone["precision"], alone["model"]
            same = [row for row in mine if (row["precision"], row["model"]) == kind and row is not alone]
            one, counts = float(alone["examples_per_s"]), sorted({int(row["gpus"]) for row in same})
            found = _predicted(card, alone, one, counts)
            for row in same:
                gpus = int(row["gpus"])
                published = float(row["examples_per_s"]) * _counted_share(row) / gpus / one
                yield Scaling(row["device"], card.name, *kind, gpus, published, found[gpus])


def _counted_share(row: dict[str, str]) -> float:
    """The part of the steps that a figure counts which were run."""
    if row["model"] != "bert_base_squad":
        return 1.0
    gpus = int(row["gpus"])
    an_epoch = math.ceil(math.ceil(FEATURES / gpus) / (int(row["batch_total"]) // gpus))
    return min(1.0, EPOCHS * an_epoch / COUNTED)


def _predicted(card: Card, alone: dict[str, str], one: float, counts: list[int]) -> dict[int, float]:
    """The part of ``one`` GPU's throughput that each of so many reaches."""
    model, batch = MODELS[alone["model"]]
    precision: Precision = "amp" if alone["precision"] == "amp_fp16" else "fp32"
    graph = _derived(model, batch, card.name, precision)
    size = int(alone["batch_total"])
    stretch = size / one / float(graph.durations_s.sum(axis=0).mean())
    graph = dataclasses.replace(graph, batch_size=size, durations_s=graph.durations_s * stretch)
    network = hocket.Network(
        nodes=hocket.Nodes(gpus=max(2, *counts), intra_bps=card.inside * GIGABYTES, nics=1)
    )
    found = hocket.predict(graph, network, workers=counts, steps=STEPS, skip=10)
    return {row.workers: row.throughput / row.workers / one for row in found}


@lru_cache
def _derived(model: str, batch: int, device: str, precision: Precision) -> hocket.StepGraph:
    """A step of the zoo's, for one card."""
    with fake():
        step = make_step(*models.make(model, batch))
        target = Target(device, precision)
        return derive(step, device=target, name=model, samples=SAMPLES, jitter=JITTER)


def main() -> None:
    """Print both tables in Markdown."""
    print("| machines | published GB/s | predicted | over published | from |")
    print("| --- | ---: | ---: | ---: | --- |")
    for bus in BUS_BANDWIDTHS:
        found = bus.predicted()
        shown = f"{bus.published:g} | {found:.0f} | {found / bus.published:.2f}"
        print(f"| {bus.machines} | {shown} | {bus.source} |")
    print("\n| machine | precision | model | GPUs | published | predicted | over published |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: |")
    for row in scalings(Path(sys.argv[1])):
        shown = f"{row.published:.3f} | {row.predicted:.3f} | {row.predicted / row.published:.2f}"
        print(f"| {row.machine} | {row.precision} | {row.model} | {row.gpus} | {shown} |")


if __name__ == "__main__":
    main()
