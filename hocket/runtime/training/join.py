"""Ranks with fewer batches than others: ``with model.join():``, as with DistributedDataParallel.

A rank that leaves the block takes part in the steps of those that have not, with zeros for gradients, until
all have left; then every rank gets the model of the one that was last. torch's own ``Join`` leads through it;
at the begin of each step all ranks say whether they still train.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from hocket.runtime.lazy.neutral_mode import outside_torch_modes
from hocket.runtime.training.culprit import naming_culprit
from hocket.runtime.training.ddp_attributes import holder_of
from hocket.runtime.training.ignored_parameters import kept_alike
from hocket.runtime.transfers.gloo_group import GlooGroup, broadcast_tensors

if TYPE_CHECKING:
    from hocket.runtime.training.allreduce_training import AllReduceTraining


class UnevenInputs(Joinable):
    """Ranks of ``control`` that still train, and those that have left; ``process_group`` is the script's.

    ``num_training``: how many do.
    """

    def __init__(
        self, training: AllReduceTraining, control: GlooGroup, process_group: Any, sends_buffers: bool
    ) -> None:
        super().__init__()
        self._training, self._control, self._process_group = training, control, process_group
        self._sends_buffers = sends_buffers
        self._divides_by_all = True
        self._step_announced = False
        self.num_training = control.size

    # Requests of torch's Join.

    @property
    def join_device(self) -> torch.device:
        """The device on which what ranks say of themselves travels."""
        return torch.device("cpu")

    @property
    def join_process_group(self) -> Any:
        """On which group they say it."""
        return self._process_group

    def join_hook(self, **kwargs: Any) -> JoinHook:
        """The part that a rank plays that has left."""
        self._divides_by_all = bool(kwargs.get("divide_by_initial_world_size", True))
        self._step_announced = False
        return _ShadowHook(self)

    # Requests of a script.

    def join(
        self, divide_by_initial_world_size: bool, enable: bool, throw_on_early_termination: bool
    ) -> Join:
        """The block of :meth:`hocket.runtime.training.allreduce_handle.AllReduceHandle.join`."""
        given = {"divide_by_initial_world_size": divide_by_initial_world_size}
        return _JoinBlock(self, enable, throw_on_early_termination, **given)

    # Requests of the training.

    @property
    def enabled(self) -> bool:
        """Tell whether this rank is in such a block, or has been, and in none since that does nothing."""
        enabled: bool = self._joinable._join_config.enable
        return enabled

    def step_begins(self) -> None:
        """A forward pass begins: once a step others hear that this rank trains, and buffers become equal."""
        if not self.enabled or self._step_announced:
            return
        with naming_culprit(self._training.watch), outside_torch_modes():
            self._training.watch.stepping = True
            Join.notify_join_context(self._joinable)
            self._say(trains=True)
        self._step_announced = True

    def step_ended(self) -> None:
        """The gradients of a step travel."""
        self._step_announced = False

    # Requests of hooks and blocks.

    def leave(self) -> None:
        """This rank leaves a block: others are not to wait for a step that has had no backward pass."""
        if self._step_announced:
            self._training.step_of_zeros()

    def shadow(self) -> None:
        """Others have begun a step: take part in it."""
        training = self._training
        with naming_culprit(training.watch), outside_torch_modes():
            training.watch.stepping = True
            self._say(trains=False)
        training.step_of_zeros()

    @torch.no_grad()
    def everybody_left(self, is_last: bool) -> None:
        """Have the model of the last one that left, the highest of them, everywhere."""
        self._training.finish_transfers()
        flags = [bool(flag) for flag in self._control.gather(torch.tensor([int(is_last)]))]
        last = max(rank for rank, flag in enumerate(flags) if flag)
        parameters, buffers = kept_alike(self._training.model)
        also = [buffer for buffer in buffers.values() if buffer.numel()] if self._sends_buffers else []
        broadcast_tensors([*parameters.values(), *also], self._control, last)
        self.end()

    def end(self) -> None:
        """All have left. As with DistributedDataParallel ranks go on saying that they train."""
        self.num_training = self._control.size
        self._step_announced = False

    def _say(self, *, trains: bool) -> None:
        """Tell all ranks whether this one trains, hear it of them, and follow the highest that does."""
        flags = [bool(flag) for flag in self._control.gather(torch.tensor([int(trains)]))]
        self.num_training, last = sum(flags), max(rank for rank, flag in enumerate(flags) if flag)
        self._training.rounds.filling.divide_by(len(flags) if self._divides_by_all else self.num_training)
        if self._training.buffers is not None:
            self._training.buffers.follow(last)

    @property
    def _joinable(self) -> Any:
        """This, or the model, if the script has given that to Join."""
        model: Any = holder_of(self._training.model)
        return model if getattr(vars(model).get("_join_config"), "enable", False) else self


class _JoinBlock(Join):
    """A block that first ends the step which this rank is in."""

    def __init__(self, inputs: UnevenInputs, enable: bool, throw: bool, **given: Any) -> None:
        super().__init__([inputs], enable, throw, **given)
        self._inputs = inputs

    def __exit__(self, kind: Any, value: Any, trace: Any) -> None:
        try:
            if self._enable and kind is None:
                self._inputs.leave()
            super().__exit__(kind, value, trace)
        finally:
            self._inputs.end()


class _ShadowHook(JoinHook):
    """The work that torch's Join has a rank do that has left."""

    def __init__(self, inputs: UnevenInputs) -> None:
        self._inputs = inputs

    def main_hook(self) -> None:
        """Others have begun a step."""
        self._inputs.shadow()

    def post_hook(self, is_last_joiner: bool) -> None:
        """All ranks have left."""
        self._inputs.everybody_left(is_last_joiner)
