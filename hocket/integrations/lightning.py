"""Strategies that put :func:`hocket.distribute` in the place of DistributedDataParallel in Lightning.

``Trainer(strategy=HocketStrategy())`` and ``Fabric(strategy=HocketFabricStrategy())``; both take what
:func:`hocket.distribute` takes but a process group. Checkpoints have the keys of the module itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

from hocket.errors import HocketError

try:
    import lightning as _lightning  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "lightning":
        raise
    raise HocketError("Lightning is not installed; pip install '.[lightning]' in a clone of Hocket") from None

import torch
from lightning.fabric.strategies.ddp import DDPStrategy as FabricDDPStrategy
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.trainer.states import TrainerFn

import hocket
from hocket.graph import Plan
from hocket.network import Network
from hocket.runtime.training.allreduce_handle import AllReduceHandle


class Distributed(torch.nn.Module):
    """The module that Lightning calls in place of a distributed ``module``, which stays as it is.

    Lightning sends its own methods' calls (``training_step``) through a wrapper's ``forward``, and so through
    the hooks of the module within.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        return self.module(*args, **kwargs)

    @property
    def handle(self) -> AllReduceHandle:
        """The module's training."""
        handle: AllReduceHandle = vars(self.module)["hocket"]
        return handle


class HocketStrategy(DDPStrategy):
    """For ``lightning.pytorch.Trainer``; ``hocket`` is the handle of the last model that was fitted.

    The model is attached when a fit begins and left as it was when that ends; plans are found anew in each.

    Parameters
    ----------
    plan, network, compile, gradient_dtype, init_sync, broadcast_buffers, timeout_s, ddp_keywords
        As of :func:`hocket.distribute`; there is no ``process_group``, all ranks train together.
        ``timeout_s`` is the process group's, too.

    Raises
    ------
    HocketError
        When a fit begins, for manual optimization and for what :func:`hocket.distribute` refuses.

    Examples
    --------
    >>> from lightning.pytorch import Trainer
    >>> from hocket.integrations.lightning import HocketStrategy
    >>> trainer = Trainer(
    ...     accelerator="cpu", devices=1, logger=False, strategy=HocketStrategy(plan="ddp")
    ... )
    >>> trainer.strategy.hocket is None
    True
    """

    def __init__(
        self,
        *,
        plan: str | Plan | None = None,
        network: Network | None = None,
        compile: bool = False,  # noqa: A002
        gradient_dtype: torch.dtype | None = None,
        init_sync: bool = True,
        broadcast_buffers: bool | None = None,
        timeout_s: float = 1800.0,
        **ddp_keywords: Any,
    ) -> None:
        super().__init__(timeout=timedelta(seconds=timeout_s))
        self._options: dict[str, Any] = {
            "plan": plan,
            "network": network,
            "compile": compile,
            "gradient_dtype": gradient_dtype,
            "init_sync": init_sync,
            "broadcast_buffers": broadcast_buffers,
            "timeout_s": timeout_s,
            **ddp_keywords,
        }
        self._failed = False
        self.hocket: AllReduceHandle | None = None

    def setup(self, trainer: Trainer) -> None:
        """Attach the training where the trainer is about to fit.

        Raises
        ------
        HocketError
            For manual optimization, and for what :func:`hocket.distribute` refuses.
        """
        module = self.lightning_module
        assert module is not None
        fitting = trainer.state.fn == TrainerFn.FITTING
        if fitting and not module.automatic_optimization:
            raise HocketError(
                f"{type(module).__name__} calls backward itself (automatic_optimization = False), and passes"
                " within a training_step are not told apart; write that loop with Fabric"
            )
        super().setup(trainer)
        if fitting:
            hocket.distribute(module, self.optimizers, **self._options)
            self.hocket = vars(module)["hocket"]

    def _setup_model(self, model: torch.nn.Module) -> Distributed:  # type: ignore[override]
        return Distributed(model)

    @contextlib.contextmanager
    def block_backward_sync(self) -> Iterator[None]:
        """Within, gradients accumulate on this rank."""
        assert isinstance(self.model, Distributed)
        with self.model.handle.no_sync():
            yield

    def on_exception(self, exception: BaseException) -> None:
        """Other ranks may have gone on: nothing is waited for any more."""
        self._failed = True
        super().on_exception(exception)

    def teardown(self) -> None:
        """Bring the module up to date and leave it as it was given to us."""
        if isinstance(self.model, Distributed):
            if not self._failed:
                self.model.handle.detach()
            self.model = self.lightning_module
        super().teardown()


class HocketFabricStrategy(FabricDDPStrategy):
    """For ``lightning.fabric.Fabric``: ``model, optimizer = fabric.setup(model, optimizer)``.

    ``model.hocket`` is the handle.

    Parameters
    ----------
    plan, network, compile, gradient_dtype, init_sync, broadcast_buffers, timeout_s, ddp_keywords
        As of :func:`hocket.distribute`; there is no ``process_group``, all ranks train together.
        ``timeout_s`` is the process group's, too.

    Raises
    ------
    HocketError
        From ``fabric.setup``, for what :func:`hocket.distribute` refuses and a model without its optimizer.

    Examples
    --------
    >>> from lightning.fabric import Fabric
    >>> from hocket.integrations.lightning import HocketFabricStrategy
    >>> fabric = Fabric(accelerator="cpu", devices=1, strategy=HocketFabricStrategy(plan="ddp"))
    """

    def __init__(
        self,
        *,
        plan: str | Plan | None = None,
        network: Network | None = None,
        compile: bool = False,  # noqa: A002
        gradient_dtype: torch.dtype | None = None,
        init_sync: bool = True,
        broadcast_buffers: bool | None = None,
        timeout_s: float = 1800.0,
        **ddp_keywords: Any,
    ) -> None:
        super().__init__(timeout=timedelta(seconds=timeout_s))
        self._backward_sync_control = _BackwardSync()  # type: ignore[assignment]
        self._options: dict[str, Any] = {
            "plan": plan,
            "network": network,
            "compile": compile,
            "gradient_dtype": gradient_dtype,
            "init_sync": init_sync,
            "broadcast_buffers": broadcast_buffers,
            "timeout_s": timeout_s,
            **ddp_keywords,
        }

    def setup_module_and_optimizers(
        self, module: torch.nn.Module, optimizers: Sequence[torch.optim.Optimizer], *scheduler: Any
    ) -> tuple[Any, ...]:
        """Attach the training of ``module``; ``scheduler``, where there is one, comes back as it is."""
        hocket.distribute(module, list(optimizers), **self._options)
        return Distributed(module), optimizers, *scheduler

    def setup_module(self, module: torch.nn.Module) -> torch.nn.Module:  # type: ignore[override]
        """A module that nobody trains, as it is.

        Raises
        ------
        HocketError
            When it has parameters to train: what updates them has to be known.
        """
        if any(p.requires_grad for p in module.parameters()):
            raise HocketError(
                f"{type(module).__name__} has parameters to train and no optimizer; set both up together:"
                " fabric.setup(model, optimizer)"
            )
        return module

    def get_module_state_dict(self, module: torch.nn.Module) -> dict[str, Any]:
        """The state of the module within."""
        return super().get_module_state_dict(_within(module))

    def load_module_state_dict(
        self, module: torch.nn.Module, state_dict: Mapping[str, Any], strict: bool = True
    ) -> None:
        """Load the state of the module within."""
        super().load_module_state_dict(_within(module), dict(state_dict), strict)


class _BackwardSync:
    """The interface behind ``Fabric.no_backward_sync``."""

    def no_backward_sync(self, module: torch.nn.Module, enabled: bool) -> AbstractContextManager[None]:
        if not enabled or not isinstance(module, Distributed):
            return contextlib.nullcontext()
        return module.handle.no_sync()


def _within(module: torch.nn.Module) -> torch.nn.Module:
    return module.module if isinstance(module, Distributed) else module
