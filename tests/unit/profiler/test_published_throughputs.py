"""Predictions of the stored constants beside published throughputs, where those are at hand."""

import csv
import math
from pathlib import Path

import pytest

from hocket import models
from hocket.datasheets import DEVICES
from hocket.profiler import Target, derive, fake, make_step
from hocket.profiler._expected_error import CARD_FIGURES, FAMILY_ERRORS, family_of
from hocket.profiler._work import KINDS
from hocket.profiler.gpu_model import FITTED

DATA = Path(__file__).parents[4] / "shared" / "data"


def rows(name):
    if not (DATA / name).exists():
        pytest.skip(f"{name} is not here")
    with (DATA / name).open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(
    ("model", "theirs"),
    [
        ("vgg16", "vgg16"),
        ("vgg11", "vgg11"),
        ("inception_v3", "adv_inception_v3"),
        ("resnet50_v2", "resnetv2_50"),
    ],
)
def test_convolutional_networks_on_an_rtx3090_in_mixed_precision(model, theirs):
    found = [row for row in rows("timm_train_amp_nhwc_rtx3090.csv") if row["model"] == theirs]
    if not found:
        pytest.skip(f"{theirs} is not in the figures that are here")
    batch_size = int(found[0]["train_batch_size"])
    with fake():
        setup = models.make(model, batch_size)
    graph = derive(make_step(*setup), device=Target("rtx3090", precision="amp", channels_last=True))
    rate = batch_size / graph.durations_s.sum()
    assert rate / float(found[0]["train_samples_per_sec"]) == pytest.approx(1, abs=0.2)


def bert(batch_size):
    transformers = pytest.importorskip("transformers")
    import torch

    config = transformers.BertConfig(attn_implementation="eager")
    tokens = torch.randint(1000, (batch_size, 384))
    inputs = {"input_ids": tokens, "attention_mask": torch.ones_like(tokens)}
    places = {f"{end}_positions": torch.randint(384, (batch_size,)) for end in ("start", "end")}
    return transformers.BertForQuestionAnswering(config), inputs | places, None, None


def update_s(graph, device):
    """Seconds of the update that the fit adds: SGD with momentum, a parameter after another."""
    moved = 7 * 4 * sum(math.prod(shape) for shape in graph.parameter_shapes)
    launched = 4 * graph.num_parameters * FITTED.kernel_s
    return moved / (DEVICES[device].bandwidth_bps * FITTED.update) + launched


@pytest.mark.parametrize("figure", [each for each in CARD_FIGURES if each.model == "BERT base"], ids=str)
def test_stored_errors_of_bert_are_those_of_the_stored_constants(figure):
    published = {float(row["examples_per_s"]) for row in rows("published_training_throughput.csv")}
    assert figure.published_per_s in published
    with fake():
        setup = bert(figure.batch_size)
    graph = derive(make_step(*setup), device=Target(figure.device, precision=figure.precision))
    seconds = graph.durations_s.sum() + update_s(graph, figure.device)
    ratio = figure.batch_size / seconds / figure.published_per_s
    assert ratio == pytest.approx(figure.ratio, rel=0.05)


def test_stored_errors_are_what_documents_say():
    results = (Path(__file__).parents[3] / "docs" / "results.md").read_text()
    for family, error in FAMILY_ERRORS.items():
        assert f"| {family} | {error.models} | {error.median:.1%} | {error.nine_of_ten:.1%} |" in results
    for figure in CARD_FIGURES:
        row = f"| {figure.device} | {figure.precision} | {figure.model} ({figure.batch_size})"
        assert (
            f"{row} | {figure.published_per_s:g} | {figure.ratio:.2f} | {figure.ratio_left_out:.2f} |"
            in results
        )


def test_a_quick_card_makes_no_transformer_of_a_step_of_convolutions() -> None:
    shares = dict.fromkeys(KINDS, 0.0) | {"forward": 0.06, "weight_gradient": 0.1, "stream": 0.8}
    assert family_of(shares | {"product": 0.04}) == "convolutions"
    assert family_of(shares | {"product": 0.1, "attention": 0.1}) == "transformers"
