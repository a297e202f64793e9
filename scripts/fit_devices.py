"""Fits the constants of hocket.profiler.gpu_model to published throughputs, and cross-validates them.

    python -m scripts.fit_devices record DATA CACHE    # timm, torchvision and transformers have to be there
    python -m scripts.fit_devices fit DATA CACHE

DATA holds timm_train_amp_nhwc_rtx3090.csv and published_training_throughput.csv. The first records each
model's step on fake tensors into CACHE, seconds a model; the second prints the constants for ``FITTED`` and
the errors for ``hocket.profiler._expected_error``.
"""

from __future__ import annotations

import csv
import os
import pickle
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from hocket.datasheets import DEVICES, Precision
from hocket.profiler._call import call_of
from hocket.profiler._expected_error import family_of
from hocket.profiler._work import KINDS, Work, works_of_call
from hocket.profiler.gpu_model import FITTED, Constants, Kernels, kernel_seconds

_Vector = npt.NDArray[np.float64]

# Kernels of SGD with momentum for a parameter, one after another as in torch 1.12, and their passes.
_UPDATE_KERNELS, _UPDATE_PASSES = 4, 7
_START = {
    "stream": 0.8,
    "strided": 0.6,
    "norm": 0.8,
    "rows": 0.8,
    "reduction": 0.6,
    "layout": 0.8,
    "matrix_memory": 0.8,
    "depthwise_memory": 0.4,
    "product": 0.9,
    "convolution": 0.9,
    "grouped": 0.15,
    "group_width": 0.2,
    "unpacked": 0.036,
    "narrow": 0.2,
    "depthwise": 0.2,
    "large_window": 0.013,
    "unaligned": 0.55,
    "vector": 0.65,
    "winograd": 1.8,
    "depth_overhead": 64,
    "cache": 3.0,
    "numbers_per_s": 7e9,
    "kernel_s": 3e-6,
    "host_s": 8e-6,
}
_NAMES = tuple(_START)
_MOST = dict.fromkeys(("stream", "strided", "norm", "rows", "reduction", "layout", "matrix_memory"), 1.0)
_MOST |= {"product": 1.2, "convolution": 1.2}  # cards of the 3090's kind run above their boost clock
_SPREAD = 0.35  # what is taken for known of the constants before: a factor of about 1.4
# Their figures are of in-place normalization, for which timm builds batch normalization now: 32 images/s of
# densenet264d_iabn beside 231 of densenet264.
_OTHERWISE_BUILT = ("tresnet", "densenet264d_iabn")
_CARDS = {"V100 16GB": "v100", "RTX 3090": "rtx3090", "A100 80GB": "a100-80gb", "H100 80GB": "h100"}


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A published throughput, and the works of its step, each with its number."""

    model: str
    device: str
    precision: Precision
    seconds: float
    works: Counter[Work]
    calls: int
    parameters: int
    parameter_bytes: float


def _timm_rows(data: Path) -> list[dict[str, str]]:
    with (data / "timm_train_amp_nhwc_rtx3090.csv").open() as file:
        return list(csv.DictReader(file))


def _published_rows(data: Path) -> Iterator[tuple[dict[str, str], str, Precision]]:
    """Rows of one card, with its name here and the precision.

    BERT in mixed precision was a model in float16 with float32 masters: the publisher's logs have apex's O2.
    """
    with (data / "published_training_throughput.csv").open() as file:
        for row in csv.DictReader(file):
            if row["gpus"] == "1":
                device = next(name for words, name in _CARDS.items() if words in row["device"])
                mixed: Precision = "amp" if row["model"] == "resnet50" else "fp16"
                is_mixed = row["precision"] == "amp_fp16"
                yield row, device, mixed if is_mixed else DEVICES[device].default_precision


def _record(setup: tuple[Any, ...], precision: Precision, *, channels_last: bool) -> dict[str, Any]:
    from hocket.profiler import make_step
    from hocket.profiler._fake_step import record_fake

    table: dict[Any, int] = {}
    sequence: list[tuple[int, int]] = []

    def seen(*call: Any) -> None:
        sequence.append((0, table.setdefault(call_of(*call), len(table))))

    record = record_fake(
        make_step(*setup), seen, precision=precision, channels_last=channels_last, warm=False
    )
    shapes = [(name, tuple(each.shape)) for name, each in record.step.parameters().items()]
    return {
        "table": list(table),
        "seq": sequence,
        "params": shapes,
        "np": sum(np.prod(s) for _, s in shapes) / 1e6,
    }


def _timm_step(name: str, batch: int, size: int) -> tuple[Any, ...]:
    import timm  # type: ignore[import-not-found]
    import torch

    try:
        model = timm.create_model(name, img_size=size)
    except TypeError:  # convolutional networks take any size
        model = timm.create_model(name)
    images = torch.randn(batch, 3, size, size), torch.randint(1000, (batch,))
    return model, images, torch.nn.CrossEntropyLoss(), None


def _published_step(model: str, batch: int) -> tuple[Any, ...]:
    import torch

    if model == "resnet50":
        import torchvision  # type: ignore[import-not-found]

        images = torch.randn(batch, 3, 224, 224), torch.randint(1000, (batch,))
        return torchvision.models.resnet50(), images, torch.nn.CrossEntropyLoss(), None
    from transformers import BertConfig, BertForQuestionAnswering

    config: Any = BertConfig
    bert: Any = BertForQuestionAnswering
    model_of_steps = bert._from_config(config(attn_implementation="eager"))
    tokens = torch.randint(1000, (batch, 384))
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    places = {f"{end}_positions": torch.randint(384, (batch,)) for end in ("start", "end")}
    return model_of_steps, inputs | places, None, None


def record_all(data: Path, cache: Path) -> None:
    """Record what is not in ``cache`` yet; a model that timm has no more is left out, and said."""
    from hocket.profiler import fake

    os.environ["TIMM_FUSED_ATTN"] = "0"  # as it was when the figures were taken
    warnings.simplefilter("ignore")
    jobs: list[tuple[Path, Any, dict[str, str], Precision]] = []
    for row in _timm_rows(data):
        given = row["model"], int(row["train_batch_size"]), int(row["train_img_size"])
        jobs.append((cache / f"timm.{row['model']}.pkl", lambda given=given: _timm_step(*given), row, "amp"))
    for row, device, precision in _published_rows(data):
        asked = row["model"], int(row["batch_total"])
        path = cache / f"published.{device}.{precision}.{row['model']}.pkl"
        jobs.append((path, lambda asked=asked: _published_step(*asked), row, precision))
    for path, make, row, precision in jobs:
        if path.exists():
            continue
        try:
            with fake():
                setup = make()
            recorded = _record(setup, precision, channels_last=path.name.startswith("timm"))
        except Exception as error:
            print(f"{path.stem}: left out, {type(error).__name__}: {error}", flush=True)
            continue
        path.write_bytes(pickle.dumps(recorded | {"row": row}))


def _figure(path: Path, device: str, precision: Precision, batch: str, rate: str) -> Figure:
    recorded = pickle.loads(path.read_bytes())
    works: Counter[Work] = Counter()
    for index, times in Counter(index for _, index in recorded["seq"]).items():
        for work in works_of_call(recorded["table"][index]):
            works[work] += times
    return Figure(
        model=recorded["row"]["model"],
        device=device,
        precision=precision,
        seconds=float(recorded["row"][batch]) / float(recorded["row"][rate]),
        works=works,
        calls=len(recorded["seq"]),
        parameters=len(recorded["params"]),
        parameter_bytes=recorded["np"] * 4e6,
    )


def figures(data: Path, cache: Path) -> tuple[list[Figure], list[Figure]]:
    """Those of timm, of models that are built now as they were, and those of several cards."""
    timm, published = [], []
    for row in _timm_rows(data):
        path = cache / f"timm.{row['model']}.pkl"
        if path.exists() and not row["model"].startswith(_OTHERWISE_BUILT):
            figure = _figure(path, "rtx3090", "amp", "train_batch_size", "train_samples_per_sec")
            count = float(row["param_count"])
            if abs(figure.parameter_bytes / 4e6 - count) < 0.03 * count + 0.02:
                timm.append(figure)
    for row, device, precision in _published_rows(data):
        path = cache / f"published.{device}.{precision}.{row['model']}.pkl"
        published.append(_figure(path, device, precision, "batch_total", "examples_per_s"))
    return timm, published


class Group:
    """Figures of one card in one precision, timed together."""

    def __init__(self, held: Sequence[Figure]) -> None:
        self.device, self.precision = DEVICES[held[0].device], held[0].precision
        self.kernels = Kernels([work for figure in held for work in figure.works])
        self.times = np.array([n for figure in held for n in figure.works.values()], dtype=float)
        self.begins = np.cumsum([0, *(len(figure.works) for figure in held)])[:-1]
        self.calls = np.array([figure.calls for figure in held])
        self.parameters = np.array([figure.parameters for figure in held])
        self.parameter_bytes = np.array([figure.parameter_bytes for figure in held])
        self.published_s = np.array([figure.seconds for figure in held])

    def errors(self, constants: Constants) -> _Vector:
        """The logarithms of predicted over published seconds."""
        each = kernel_seconds(self.kernels, self.device, self.precision, constants) * self.times
        launches = self.parameters * _UPDATE_KERNELS
        moved = self.parameter_bytes * _UPDATE_PASSES / (self.device.bandwidth_bps * constants.update)
        gpu = np.add.reduceat(each, self.begins) + moved + launches * constants.kernel_s
        seconds = np.maximum(gpu, (self.calls + launches) * constants.host_s)
        return np.asarray(np.log(seconds / self.published_s))


def groups(held: Sequence[Figure]) -> list[Group]:
    """``held`` by card and precision."""
    keys = dict.fromkeys((figure.device, figure.precision) for figure in held)
    return [Group([f for f in held if (f.device, f.precision) == key]) for key in keys]


def fit(timm: Sequence[Figure], published: Sequence[Figure]) -> Constants:
    """Least squares of logarithms, large ones counted less; the few figures of several cards count more."""
    parts = [(part, 1.0) for part in groups(timm)] + [(part, 4.0) for part in groups(published)]
    start = np.log([_START[name] for name in _NAMES])
    most = np.log([_MOST.get(name, np.inf) for name in _NAMES])

    def errors(point: _Vector) -> _Vector:
        constants = _constants(point)
        return np.concatenate(
            [*(weight * part.errors(constants) for part, weight in parts), 0.1 * (point - start) / _SPREAD]
        )

    found = least_squares(
        errors, start, bounds=(-np.inf, most + 1e-9), loss="soft_l1", f_scale=0.1, max_nfev=15
    )
    return _constants(found.x)


def _constants(point: _Vector) -> Constants:
    return replace(FITTED, **dict(zip(_NAMES, np.exp(point).tolist(), strict=True)))


def _line(name: str) -> str:
    """The line of models that ``name`` belongs to: its first word, its publisher left out."""
    bare = re.sub(r"^(tf|gluon|tv|jx|ssl|swsl|legacy|ig|adv|ens|dm)_", "", name)
    return re.match(r"[a-z]+", bare).group()  # type: ignore[union-attr]


def cross_validate(
    timm: list[Figure], published: list[Figure], folds: int = 5
) -> tuple[_Vector, list[tuple[Figure, float]]]:
    """Errors of models whose line was left out, and of figures whose card was left out."""
    lines = sorted({_line(figure.model) for figure in timm})
    errors = np.zeros(len(timm))
    for fold in range(folds):
        out = [_line(figure.model) in lines[fold::folds] for figure in timm]
        constants = fit([f for f, is_out in zip(timm, out, strict=True) if not is_out], published)
        errors[out] = Group([f for f, is_out in zip(timm, out, strict=True) if is_out]).errors(constants)
    of_cards = []
    for card in dict.fromkeys(figure.device for figure in published):
        kept = [figure for figure in published if figure.device != card]
        constants = fit([] if card == "rtx3090" else timm, kept)
        of_cards += [(f, float(Group([f]).errors(constants)[0])) for f in published if f.device == card]
    return errors, of_cards


def shares(figure: Figure) -> dict[str, float]:
    """The share of each kind of kernel in a step."""
    kernels = Kernels(list(figure.works))
    seconds = kernel_seconds(kernels, DEVICES[figure.device], figure.precision, FITTED)
    seconds *= np.array(list(figure.works.values()))
    return dict(
        zip(KINDS, np.bincount(kernels.kind, seconds, minlength=len(KINDS)) / seconds.sum(), strict=True)
    )


def summary(errors: _Vector) -> str:
    """The median of errors and that of nine of ten, in percent of the published rate."""
    off = np.abs(np.exp(-np.asarray(errors)) - 1)
    return f"{len(off)} figures: median {np.median(off):.1%}, nine of ten within {np.quantile(off, 0.9):.1%}"


def main() -> None:
    """Record, or fit and cross-validate."""
    what, data, cache = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    if what == "record":
        record_all(data, cache)
        return
    timm, published = figures(data, cache)
    constants = fit(timm, published)
    print("\n".join(f"    {name}={getattr(constants, name):.4g}," for name in _NAMES))
    fitted = Group(timm).errors(constants)
    print("fitted", summary(fitted), flush=True)
    errors, of_cards = cross_validate(timm, published)
    print("lines of models left out", summary(errors))
    families = [family_of(shares(figure)) for figure in timm]
    for family in sorted(set(families)):
        held = [k for k, each in enumerate(families) if each == family]
        print(f"  {family}:", summary(errors[held]))
    order = np.argsort(-np.abs(errors))[:25]
    print("  worst:", ", ".join(f"{timm[k].model} {np.exp(-errors[k]):.2f} ({families[k]})" for k in order))
    print("cards left out (predicted over published rate; fitted with them):")
    for figure, error in of_cards:
        own = float(Group([figure]).errors(constants)[0])
        print(f"  {figure.device} {figure.precision} {figure.model}: {np.exp(-error):.2f} {np.exp(-own):.2f}")


if __name__ == "__main__":
    main()
