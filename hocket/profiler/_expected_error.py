"""Errors of predictions for GPUs that were found in cross-validation, for answers to carry.

From ``python -m scripts.fit_devices fit``. A family's are the larger of two: those of the stored constants,
and those of fits that the model's whole line was left out of. A card's are those of fits without it.
"""

from __future__ import annotations

from typing import NamedTuple

from hocket.datasheets import DEVICES


class FamilyError(NamedTuple):
    """Errors of the models of a family, as shares of the published rate."""

    models: int
    median: float
    nine_of_ten: float


class CardFigure(NamedTuple):
    """A published throughput of a card, and the predicted one over it: fitted, and with the card left out."""

    device: str
    precision: str
    model: str
    batch_size: int
    published_per_s: float
    ratio: float
    ratio_left_out: float


# A step belongs to the first family whose kinds of kernels take this share of it.
_FAMILIES = (
    ("depthwise convolutions", "depthwise", 0.1),
    ("grouped convolutions", "grouped", 0.1),
    ("convolutions", "convolutions", 0.2),
)
FAMILY_ERRORS = {
    "convolutions": FamilyError(160, 0.037, 0.091),
    "depthwise convolutions": FamilyError(132, 0.061, 0.279),
    "grouped convolutions": FamilyError(95, 0.110, 0.305),
    "transformers": FamilyError(168, 0.052, 0.094),
}
CARD_FIGURES = (
    CardFigure("v100", "amp", "ResNet-50 v1.5", 256, 833.0, 1.06, 1.07),
    CardFigure("v100", "fp16", "BERT base", 48, 189.0, 1.05, 1.07),
    CardFigure("v100", "fp32", "ResNet-50 v1.5", 128, 369.0, 1.00, 0.95),
    CardFigure("v100", "fp32", "BERT base", 24, 42.0, 1.00, 0.94),
    CardFigure("rtx3090", "amp", "ResNet-50 v1.5", 448, 905.0, 0.93, 0.82),
    CardFigure("rtx3090", "fp16", "BERT base", 96, 172.0, 1.05, 0.91),
    CardFigure("rtx3090", "tf32", "ResNet-50 v1.5", 224, 513.0, 0.82, 0.71),
    CardFigure("rtx3090", "tf32", "BERT base", 48, 85.0, 1.05, 0.91),
    CardFigure("a100-80gb", "amp", "ResNet-50 v1.5", 1280, 1582.0, 1.20, 1.23),
    CardFigure("a100-80gb", "fp16", "BERT base", 320, 443.0, 1.06, 1.10),
    CardFigure("a100-80gb", "tf32", "ResNet-50 v1.5", 640, 1066.0, 0.96, 0.95),
    CardFigure("a100-80gb", "tf32", "BERT base", 172, 239.0, 1.01, 1.02),
    CardFigure("h100", "amp", "ResNet-50 v1.5", 1280, 2616.0, 0.98, 0.81),
    CardFigure("h100", "fp16", "BERT base", 320, 812.0, 0.89, 0.77),
    CardFigure("h100", "tf32", "ResNet-50 v1.5", 640, 1753.0, 0.96, 0.94),
    CardFigure("h100", "tf32", "BERT base", 172, 408.0, 0.99, 0.97),
)


def family_of(shares: dict[str, float]) -> str:
    """The family of models that a step belongs to, by the shares of kinds of kernels in its time.

    On a quick card convolutions may be less of it than their least, and still more than products.
    """
    sums = {
        word: sum(share for kind, share in shares.items() if kind.startswith(word))
        for word in ("depthwise", "grouped")
    }
    sums["convolutions"] = sum(shares[kind] for kind in ("forward", "input_gradient", "weight_gradient"))
    products = sum(share for kind, share in shares.items() if kind == "product" or "attention" in kind)
    rest = "convolutions" if sums["convolutions"] > products else "transformers"
    return next((name for name, word, least in _FAMILIES if sums[word] >= least), rest)


def expected_share(device: str, precision: str, shares: dict[str, float]) -> float:
    """The share that a prediction may be off by: the larger of its family's error and its card's.

    0 for cards of a maker of whom none is fitted: it is not known.
    """
    if _is_of_amd(device):
        return 0.0
    return round(max(FAMILY_ERRORS[family_of(shares)].nine_of_ten, _off_of_card(device, precision)), 3)


def expectation(device: str, precision: str, shares: dict[str, float], *, compiled: bool) -> str:
    """The error that a prediction may have, in a few words."""
    family = family_of(shares)
    error = FAMILY_ERRORS[family]
    said = (
        f"the step is derived: nine of ten models of this family ({family}) are within"
        f" {error.nine_of_ten:.0%} in cross-validation on an RTX 3090 in mixed precision"
    )
    return "".join([said, _of_card(device, precision), _untried(shares, compiled=compiled)])


_HALF = ("amp", "fp16")
"""Precisions with the same products: of ResNet-50 figures are in autocast, of BERT of a model in float16."""


def _figures_of(device: str, precision: str) -> list[CardFigure]:
    alike = _HALF if precision in _HALF else (precision,)
    return [figure for figure in CARD_FIGURES if figure.device == device and figure.precision in alike]


def _off_of_card(device: str, precision: str) -> float:
    """The largest error of the card's figures in that precision; without any, of all cards' figures."""
    held = _figures_of(device, precision) or CARD_FIGURES
    return max(abs(figure.ratio_left_out - 1) for figure in held)


def _is_of_amd(device: str) -> bool:
    return device in DEVICES and DEVICES[device].title.startswith("Instinct")


def _of_card(device: str, precision: str) -> str:
    fitted = {figure.device for figure in CARD_FIGURES}
    off = _off_of_card(device, precision)
    models = ", which are of torchvision's ResNet-50 and BERT base"
    if _is_of_amd(device):
        return f"; no card of AMD's is among those fitted, so that how far a {device} is off is not known"
    if device not in fitted:
        return (
            f"; {device} is not among the cards fitted: of those, fits without a card were up to {off:.0%}"
            f" off its published figures{models}"
        )
    if not _figures_of(device, precision):
        return (
            f"; no figure is of {device} in {precision}: of other precisions and cards, fits without a card"
            f" were up to {off:.0%} off its published figures{models}"
        )
    within = max(0.01, *(abs(figure.ratio - 1) for figure in _figures_of(device, precision)))
    of = "torchvision's ResNet-50"
    of += " in amp, BERT base in fp16" if precision in _HALF else f" and BERT base in {precision}"
    return (
        f"; fitted to {device}'s published figures ({of}), derived speeds are within {within:.0%} of them,"
        f" and up to {off:.0%} off where, as a test, those were left out"
    )


def _untried(shares: dict[str, float], *, compiled: bool) -> str:
    """A remark on what no figure stands behind; "" for none."""
    fused = sum(share for kind, share in shares.items() if "attention" in kind) > 0.01
    recurrent = shares["recurrent"] > 0.01
    untried = [
        *(["torch.compile"] if compiled else []),
        *(["fused attention"] if fused else []),
        *(["recurrent layers"] if recurrent else []),
    ]
    return f"; nothing that was compared had {' or '.join(untried)}, as this step has" if untried else ""
