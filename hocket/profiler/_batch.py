"""Batches as PyTorch code has them, and the loss of a step that has them.

A mapping is the model's keyword arguments. Of a tuple or list the last is the targets and the rest the
model's arguments, and without a loss function all of it is the model's. A tensor is the model's argument.
Anything else that can be iterated over, such as a DataLoader, gives its first batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeGuard

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, IterableDataset

from hocket.errors import HocketError, reason
from hocket.signals import Stop

BATCHES = (
    "a tensor, a dict, a pair (inputs, targets), a longer tuple whose last is the targets, or a DataLoader"
)


class Arguments(NamedTuple):
    """The model's arguments, and what the loss function gets beside its outputs."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    targets: Any


def first_batch(batch: Any) -> Any:
    """``batch``, or the first one of what gives batches.

    Raises
    ------
    HocketError
        For what is neither, gives none, or raises.
    """
    if isinstance(batch, Mapping):
        return dict(batch)  # tokenizers give mappings of their own, which nothing else looks into
    if isinstance(batch, Tensor | tuple | list):
        return batch
    if isinstance(batch, str | bytes) or not isinstance(batch, Iterable):
        raise HocketError(f"batch is a {type(batch).__name__}; give {BATCHES}")
    kind = type(batch).__name__
    try:
        for first in [_first_samples(batch)] if _draws_in_vain(batch) else batch:
            return first_batch(first)
    except (HocketError, Stop):
        raise
    except Exception as error:
        line = reason(error)
        raise HocketError(f"the first batch of the {kind} raised {type(error).__name__}: {line}") from error
    raise HocketError(f"the {kind} gives no batch; give it data, and drop_last=False where they are few")


def _draws_in_vain(loader: Any) -> TypeGuard[DataLoader[Any]]:
    """True if a loader would draw a seed, which has no value under fake tensors."""
    return (
        isinstance(loader, DataLoader)
        and loader.batch_size is not None
        and not isinstance(loader.dataset, IterableDataset)
        and any(isinstance(mode, FakeTensorMode) for mode in _get_current_dispatch_mode_stack())
    )


def _first_samples(loader: DataLoader[Any]) -> Any:
    dataset: Any = loader.dataset
    assert loader.batch_size is not None
    return loader.collate_fn([dataset[i] for i in range(min(loader.batch_size, len(dataset)))])


def arguments(batch: Any, *, with_targets: bool) -> Arguments:
    """Arguments by which ``batch``, no loader, goes to a model.

    ``with_targets``: the last of several is not the model's.
    """
    if isinstance(batch, Mapping):
        return Arguments((), dict(batch), batch)
    parts = list(batch) if isinstance(batch, tuple | list) else [batch]
    if not with_targets or len(parts) < 2:
        return Arguments(tuple(parts), {}, None)
    *inputs, targets = parts
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        return Arguments((), dict(inputs[0]), targets)
    if len(inputs) == 1 and isinstance(inputs[0], list | tuple):
        inputs = list(inputs[0])
    return Arguments(tuple(inputs), {}, targets)


def check_targets(batch: Any) -> None:
    """Refuse a batch that leaves nothing for a loss function to compare outputs with."""
    if isinstance(batch, Mapping) or (isinstance(batch, tuple | list) and len(batch) > 1):
        return
    kind = f"{type(batch).__name__}{f' of {len(batch)}' if isinstance(batch, tuple | list) else ''}"
    raise HocketError(
        f"batch is a {kind}, without targets for the loss; give (inputs, targets), or loss None where the"
        " model returns its loss"
    )


def returned_loss(outputs: Any) -> Tensor:
    """The loss in what a model returned: it, its ``loss``, or the first trained scalar of a tuple.

    Raises
    ------
    HocketError
        Where there is none.
    """
    found: Any = outputs
    if isinstance(outputs, Mapping):
        found = outputs.get("loss")
    elif isinstance(outputs, tuple | list) and not hasattr(outputs, "loss"):
        found = next((each for each in outputs if _is_trained_scalar(each)), None)
    elif not isinstance(outputs, Tensor):
        found = getattr(outputs, "loss", None)
    if isinstance(found, Tensor) and found.numel() == 1:
        return found
    raise HocketError(
        f"the model returned {_described(outputs)}, and no loss was given; let it return its loss (a scalar,"
        " or one named 'loss', or one in a tuple), or give a loss function"
    )


def _is_trained_scalar(value: Any) -> bool:
    return isinstance(value, Tensor) and value.numel() == 1 and value.requires_grad


def _described(outputs: Any) -> str:
    if isinstance(outputs, Tensor):
        return f"a tensor of shape {list(outputs.shape)}"
    if isinstance(outputs, Mapping):
        return f"a {type(outputs).__name__} of {', '.join(map(str, outputs)) or 'nothing'}"
    return f"a {type(outputs).__name__}"


def first_extent(inputs: Any) -> int | None:
    """The first extent of the first tensor in ``inputs``; None where no tensor has any."""
    leaves = tree_leaves(inputs)
    return next((len(leaf) for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim), None)
