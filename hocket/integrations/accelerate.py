""":func:`use_hocket` puts :func:`hocket.distribute` in the place of DistributedDataParallel in Accelerate.

It takes an ``accelerate.Accelerator``, that of a ``transformers.Trainer`` included:
``use_hocket(trainer.accelerator)``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from hocket.errors import HocketError

try:
    import accelerate as _accelerate  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "accelerate":
        raise
    raise HocketError(
        "Accelerate is not installed; pip install '.[accelerate]' in a clone of Hocket"
    ) from None

import torch
from accelerate import Accelerator, DistributedType
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.utils import DDPCommunicationHookType

import hocket
from hocket.graph import Plan
from hocket.network import Network

_SHORT = {DDPCommunicationHookType.BF16: torch.bfloat16, DDPCommunicationHookType.FP16: torch.float16}
_PLACES = (DistributedType.MULTI_CPU, DistributedType.NO)


def use_hocket(
    accelerator: Accelerator,
    *,
    plan: str | Plan | None = None,
    network: Network | None = None,
    compile: bool = False,  # noqa: A002
    init_sync: bool = True,
    broadcast_buffers: bool | None = None,
    timeout_s: float | None = None,
) -> Accelerator:
    """Have ``accelerator.prepare`` distribute models with :func:`hocket.distribute`.

    A prepared model is the module itself, ``model.hocket`` its handle. Of a single process Accelerate wraps
    no model, and nor do we.

    Parameters
    ----------
    accelerator
        An ``accelerate.Accelerator`` on the CPU, or the ``accelerator`` of a ``transformers.Trainer``.
    plan, network, compile, init_sync, broadcast_buffers, timeout_s
        As of :func:`hocket.distribute`, which also gets what ``DistributedDataParallelKwargs`` say, with
        ``comm_hook`` BF16 or FP16 for its ``gradient_dtype``; there is no ``process_group``, all ranks train
        together.

    Returns
    -------
    The same accelerator.

    Raises
    ------
    HocketError
        Where Accelerate is not set up for DistributedDataParallel on the CPU, or with another of its
        communication hooks; later, from ``prepare``, for a model without its optimizer and for what
        :func:`hocket.distribute` refuses.

    Examples
    --------
    >>> import torch
    >>> from accelerate import Accelerator
    >>> from hocket.integrations.accelerate import use_hocket
    >>> accelerator = use_hocket(Accelerator(cpu=True), plan="ddp")
    >>> model = torch.nn.Linear(4, 2)
    >>> model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    """
    if accelerator.distributed_type not in _PLACES:
        raise HocketError(
            f"Accelerate is set up for {accelerator.distributed_type.value}; hocket stands in for"
            " DistributedDataParallel on the CPU: Accelerator(cpu=True) under torchrun"
        )
    _keywords_of(accelerator)
    if accelerator.distributed_type is DistributedType.NO:
        return accelerator
    options = {
        "plan": plan,
        "network": network,
        "compile": compile,
        "init_sync": init_sync,
        "broadcast_buffers": broadcast_buffers,
        "timeout_s": timeout_s,
    }
    prepare, prepare_model, no_sync = accelerator.prepare, accelerator.prepare_model, accelerator.no_sync
    preparing = False

    def model_prepared(
        model: torch.nn.Module, device_placement: bool | None = None, evaluation_mode: bool = False
    ) -> torch.nn.Module:
        if not evaluation_mode and not preparing and _trainable(model):
            raise _without_optimizer(model)
        # Everything but DistributedDataParallel.
        ready: torch.nn.Module = prepare_model(model, device_placement, evaluation_mode=True)
        return ready

    def prepared(*args: Any, device_placement: Sequence[bool] | None = None) -> Any:
        nonlocal preparing
        preparing = True
        try:
            result = prepare(*args, device_placement=device_placement)
        finally:
            preparing = False
        # The Trainer of transformers sets its own when it wraps the model.
        told = {name: value for name, value in options.items() if value is not None}
        _distribute(result if isinstance(result, tuple) else (result,), _keywords_of(accelerator) | told)
        return result

    @contextlib.contextmanager
    def accumulating(model: torch.nn.Module) -> Iterator[None]:
        handle = vars(model).get("hocket")
        with no_sync(model) if handle is None else handle.no_sync():
            yield

    accelerator.prepare = prepared
    accelerator.prepare_model = model_prepared
    accelerator.no_sync = accumulating
    return accelerator


def _keywords_of(accelerator: Accelerator) -> dict[str, Any]:
    """Keywords that ``accelerator`` would give DistributedDataParallel besides the model."""
    handler = accelerator.ddp_handler
    if handler is None:
        return {}
    for hook, known in ((handler.comm_hook, _SHORT), (handler.comm_wrapper, ())):
        if hook != DDPCommunicationHookType.NO and hook not in known:
            raise HocketError(
                f"the communication hook '{hook.value}' changes gradients on DDP's way; leave it out, or use"
                " comm_hook BF16 or FP16 alone"
            )
    changed: dict[str, Any] = handler.to_kwargs()
    dtype = _SHORT.get(handler.comm_hook)
    return changed if dtype is None else {**changed, "gradient_dtype": dtype}


def _distribute(prepared: Sequence[Any], options: dict[str, Any]) -> None:
    """Attach each model's training to it and to its optimizers."""
    optimizers = [each.optimizer for each in prepared if isinstance(each, AcceleratedOptimizer)]
    taken: set[torch.optim.Optimizer] = set()
    for model in prepared:
        if not isinstance(model, torch.nn.Module) or not _trainable(model) or "hocket" in vars(model):
            continue
        mine = set(model.parameters())
        updating = [
            each
            for each in optimizers
            if any(p in mine for group in each.param_groups for p in group["params"])
        ]
        if not updating:
            raise _without_optimizer(model)
        if not taken.isdisjoint(updating):
            raise HocketError("an optimizer updates two models; give each model an optimizer of its own")
        taken.update(updating)
        hocket.distribute(model, updating, **options)
        # Accelerate may unwrap a model by that for as long as it has one.
        if vars(model).get("module") is model:
            del vars(model)["module"]


def _trainable(model: torch.nn.Module) -> bool:
    return any(p.requires_grad for p in model.parameters())


def _without_optimizer(model: torch.nn.Module) -> HocketError:
    return HocketError(
        f"{type(model).__name__} has parameters to train and no optimizer; prepare both together:"
        " accelerator.prepare(model, optimizer)"
    )
