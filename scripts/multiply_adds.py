"""Counts timm models' multiply-adds of a forward pass beside published ones.

    python -m scripts.multiply_adds PUBLISHED.csv MODELS.csv    # timm has to be there

PUBLISHED.csv is one of timm's own results (``results/benchmark-infer-*.csv``) with columns model,
infer_img_size and infer_gmacs; of several rows of a model the last counts, the one of the largest images.
Models are those of MODELS.csv, in a column of that name. Those with less than 0.5 billion are left out, as
published figures have two decimals. Prints a row of CSV a model, then how many are within 2% and 5%.
"""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path

import torch

from hocket.profiler import fake, make_step
from hocket.profiler.device import record_works

_LEAST = 0.5


def counted(name: str, size: int) -> float:
    """Billions of multiply-adds of matrix products and convolutions for one image of ``size``."""
    import timm  # type: ignore[import-not-found]

    with fake():
        try:
            model = timm.create_model(name, img_size=size).eval()
        except TypeError:  # takes images of any size
            model = timm.create_model(name).eval()
        batch = (torch.randn(1, 3, size, size), torch.zeros(1))
        step = make_step(model, batch, None, None, inference=True)
    _, works = record_works(step)
    return sum(work.flops for work in works if work.kind != "elementwise") / 2e9


def _rows(path: str) -> dict[str, dict[str, str]]:
    """The rows of a table, by the name of the model without its weights' tag."""
    with Path(path).open() as file:
        return {row["model"].split(".")[0]: row for row in csv.DictReader(file)}


def main() -> None:
    """Print the table."""
    os.environ["TIMM_FUSED_ATTN"] = "0"  # attention as products, which are counted
    published, models = (_rows(path) for path in sys.argv[1:3])
    ratios = []
    print("model,size,counted_gmacs,published_gmacs,ratio")
    for name in models:
        if name not in published or (gmacs := float(published[name]["infer_gmacs"])) < _LEAST:
            continue
        size = int(published[name]["infer_img_size"])
        ours = counted(name, size)
        ratios.append(ours / gmacs)
        print(f"{name},{size},{ours:.3f},{gmacs},{ratios[-1]:.3f}", flush=True)
    within = [sum(abs(ratio - 1) <= limit for ratio in ratios) for limit in (0.02, 0.05)]
    print(f"{len(ratios)} models: {within[0]} within 2%, {within[1]} within 5%")


if __name__ == "__main__":
    main()
