"""The zoo: what each model is, and how to build it ready for a training step.

The table is static text: torch and the model's file are imported when a model is built, not before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from hocket.errors import HocketError, UnknownNameError

if TYPE_CHECKING:
    import torch
    from torch import nn

OTHERS = (
    "models of torchvision, timm and transformers come by FILE.py:FACTORY, torchvision's resnet50 too:"
    " resnet50_v1 and resnet50_v2 are others"
)
"""A clause on models that the zoo lacks."""


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """One model of the zoo, as plain data."""

    name: str
    """The name that `build` and `make` take."""
    description: str
    """The paper or definition that it follows."""
    factory: str
    """`module:function` that builds it, inside `hocket.models`."""
    num_operations: int
    """Operations of an eager training step on a CPU with SGD, counted by `hocket.profiler.derive` under
    torch 2.13; a test counts them again."""
    default_batch_size: int = 32
    """TicTac's Table 1 where that lists the model, otherwise its paper's or a common choice."""
    input_kind: Literal["image", "tokens"] = "image"
    """`image`: float32 (N, 3, height, width), a class each. `tokens`: int64 (N, T), a class per token."""
    input_shape: tuple[int, ...] = (3, 224, 224)
    """One sample's shape, without the batch dimension; for tokens (T,), the sequence length of `make`."""
    num_classes: int = 1000
    """Classes of the output layer; for tokens the vocabulary, of inputs and outputs alike."""
    loss: str = "layers:cross_entropy"
    """`module:function` of (outputs, targets) to a scalar, inside `hocket.models`."""


class TrainableTensor(NamedTuple):
    """One trainable tensor."""

    name: str
    shape: tuple[int, ...]
    numel: int
    num_bytes: int


class TrainingSetup(NamedTuple):
    """All that one step needs: `loss(model(batch[0]), batch[1]).backward(); optimizer.step()`."""

    model: nn.Module
    batch: tuple[torch.Tensor, torch.Tensor]
    """(inputs, targets), synthetic."""
    loss: Callable[[Any, torch.Tensor], torch.Tensor]
    """(outputs, targets) to a scalar; outputs are whatever the model gives, in training mode or not."""
    optimizer: torch.optim.Optimizer


_SPECS = (
    ModelSpec(
        name="alexnet_v2",
        description="AlexNet v2 (Krizhevsky, 2014), TF-Slim alexnet_v2",
        factory="alexnet:alexnet_v2",
        num_operations=71,
        default_batch_size=512,
    ),
    ModelSpec(
        name="inception_v1",
        description="Inception v1 with batch norm (Szegedy et al., 2014), TF-Slim inception_v1",
        factory="inception_v1:inception_v1",
        num_operations=535,
        default_batch_size=128,
    ),
    ModelSpec(
        name="inception_v2",
        description="Inception v2 (Ioffe & Szegedy, 2015), TF-Slim inception_v2",
        factory="inception_v2:inception_v2",
        num_operations=634,
        default_batch_size=128,
    ),
    ModelSpec(
        name="inception_v3",
        description="Inception v3 with its auxiliary head (Szegedy et al., 2015), TF-Slim inception_v3",
        factory="inception_v3:InceptionV3",
        num_operations=877,
        input_shape=(3, 299, 299),
        loss="inception_v3:loss",
    ),
    ModelSpec(
        name="resnet50_v1",
        description="ResNet-50 v1 (He et al., 2015), TF-Slim resnet_v1_50",
        factory="resnet:resnet50_v1",
        num_operations=469,
    ),
    ModelSpec(
        name="resnet101_v1",
        description="ResNet-101 v1 (He et al., 2015), TF-Slim resnet_v1_101",
        factory="resnet:resnet101_v1",
        num_operations=911,
        default_batch_size=64,
    ),
    ModelSpec(
        name="resnet50_v2",
        description="ResNet-50 v2 (He et al., 2016), TF-Slim resnet_v2_50",
        factory="resnet:resnet50_v2",
        num_operations=478,
        default_batch_size=64,
    ),
    ModelSpec(
        name="resnet101_v2",
        description="ResNet-101 v2 (He et al., 2016), TF-Slim resnet_v2_101",
        factory="resnet:resnet101_v2",
        num_operations=937,
    ),
    ModelSpec(
        name="resnet152_v2",
        description="ResNet-152 v2 (He et al., 2016), TF-Slim resnet_v2_152",
        factory="resnet:resnet152_v2",
        num_operations=1396,
    ),
    ModelSpec(
        name="resnet18",
        description="ResNet-18 (He et al., 2015), torchvision's resnet18",
        factory="resnet18:resnet18",
        num_operations=225,
    ),
    ModelSpec(
        name="vgg11",
        description="VGG-11, configuration A (Simonyan & Zisserman, 2014), TF-Slim vgg_a",
        factory="vgg:vgg11",
        num_operations=93,
    ),
    ModelSpec(
        name="vgg16",
        description="VGG-16, configuration D (Simonyan & Zisserman, 2014), TF-Slim vgg_16",
        factory="vgg:vgg16",
        num_operations=123,
    ),
    ModelSpec(
        name="vgg19",
        description="VGG-19, configuration E (Simonyan & Zisserman, 2014), TF-Slim vgg_19",
        factory="vgg:vgg19",
        num_operations=141,
    ),
    ModelSpec(
        name="vgg19_22k",
        description="VGG-19 over ImageNet-22K's 21841 classes (iBatch's VGG19-22K)",
        factory="vgg:vgg19_22k",
        num_operations=141,
        num_classes=21841,
    ),
    ModelSpec(
        name="googlenet",
        description="GoogLeNet without batch norm or auxiliary heads (Szegedy et al., 2014)",
        factory="inception_v1:googlenet",
        num_operations=465,
    ),
    ModelSpec(
        name="vit_b_16",
        description="ViT-B/16 at 224 x 224 (Dosovitskiy et al., 2020), torchvision's vit_b_16",
        factory="vit:vit_b_16",
        num_operations=530,
        default_batch_size=64,
    ),
    ModelSpec(
        name="lstm_ptb",
        description="Large word-level Penn Treebank LSTM (Zaremba et al., 2014)",
        factory="lstm:lstm_ptb",
        num_operations=45,
        default_batch_size=20,
        input_kind="tokens",
        input_shape=(35,),
        num_classes=10_000,
    ),
    ModelSpec(
        name="gpt2_small",
        description="GPT-2 small, tied output layer (Radford et al., 2019); 128 of its 1024 positions",
        factory="gpt:gpt2_small",
        num_operations=526,
        default_batch_size=8,
        input_kind="tokens",
        input_shape=(128,),
        num_classes=50_257,
    ),
)
_ZOO = {model_spec.name: model_spec for model_spec in _SPECS}


def _require_torch() -> None:
    if find_spec("torch") is None:
        raise HocketError("torch is not installed; pip install '.[torch]' in a clone of Hocket")


def names() -> tuple[str, ...]:
    """The zoo's model names, Table 1's first."""
    return tuple(_ZOO)


def spec(name: str) -> ModelSpec:
    """The named model's description; raises `UnknownNameError`."""
    try:
        return _ZOO[name]
    except KeyError:
        raise UnknownNameError("model", name, names()) from None


def build(name: str) -> nn.Module:
    """The named model with fresh weights, in training mode, on torch's default device.

    Works under `torch.device("meta")` and `FakeTensorMode`, where it allocates nothing. Raises
    `UnknownNameError`.
    """
    return cast("nn.Module", _load(spec(name).factory)())


def make(name: str, batch_size: int | None = None, *, training: bool = True, seed: int = 0) -> TrainingSetup:
    """The named model with a synthetic batch, its loss and plain SGD: all that one training step needs.

    Everything lies on torch's default device. `batch_size=None` takes the model's default; `inception_v3`
    needs at least 2 to train. `training=False` puts the model in evaluation mode. `seed` goes to torch's
    global generator, as a script's `manual_seed` would, so that weights, batch and later dropout masks
    repeat; weights do not depend on `batch_size`. Raises `UnknownNameError`, and `HocketError` for a batch
    size below 1.
    """
    _require_torch()
    import torch

    model_spec = spec(name)
    if batch_size is None:
        batch_size = model_spec.default_batch_size
    if batch_size < 1:
        raise HocketError(
            f"batch_size {batch_size} is too small; a batch has at least 1 sample: "
            f"pass 1 or more, or nothing for {name}'s default of {model_spec.default_batch_size}"
        )
    torch.manual_seed(seed)
    model = build(name).train(training)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return TrainingSetup(model, _synthetic_batch(model_spec, batch_size), _load(model_spec.loss), optimizer)


def parameter_table(name: str) -> list[TrainableTensor]:
    """The named model's trainable tensors in the model's own order, without allocating them.

    Raises `UnknownNameError`.
    """
    _require_torch()
    import torch

    with torch.device("meta"):
        model = build(name)
    return [
        TrainableTensor(
            parameter_name,
            tuple(parameter.shape),
            parameter.numel(),
            parameter.numel() * parameter.element_size(),
        )
        for parameter_name, parameter in model.named_parameters()
    ]


def _load(path: str) -> Callable[..., Any]:
    module, _, function = path.partition(":")
    return cast("Callable[..., Any]", getattr(import_module(f"hocket.models.{module}"), function))


def _synthetic_batch(model_spec: ModelSpec, batch_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    _require_torch()
    import torch

    shape = (batch_size, *model_spec.input_shape)
    if model_spec.input_kind == "image":
        return torch.randn(shape), torch.randint(model_spec.num_classes, (batch_size,))
    return torch.randint(model_spec.num_classes, shape), torch.randint(model_spec.num_classes, shape)
