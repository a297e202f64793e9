"""Any ``torch.optim`` optimizer, applied bucket by bucket when gradients arrive.

The user's instance stays in use, with its state. Its ``step`` writes down every group's settings and
returns; when a bucket has arrived they are put in place with the bucket's parameters only, and the class's
own ``step`` runs, once for all buckets that have arrived by then. A scheduler that changes a group meanwhile
changes the next step, not this one.
"""

from __future__ import annotations

import dataclasses
import inspect
import itertools
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch.optim import optimizer as torch_optimizer

from hocket.runtime.lazy.optimizer_state import in_its_class, watch_state
from hocket.runtime.observe.recorder import Moment, SpanRecorder
from hocket.runtime.transfers.buckets import Bucket

Group = dict[str, Any]

# On steps of ours; and, on those that were detached, what the instance had before.
_OURS, _BEFORE = "_hocket", "_hocket_before"

# They update a parameter from that parameter, its gradient, its state and its group's settings alone.
PARAMETER_WISE = frozenset(
    getattr(torch.optim, name)
    for name in (
        "ASGD", "Adadelta", "Adafactor", "Adagrad", "Adam", "AdamW", "Adamax", "Muon", "NAdam", "RAdam",
        "RMSprop", "Rprop", "SGD", "SparseAdam",
    )
    if hasattr(torch.optim, name)
)  # fmt: skip


_calls = itertools.count(1)


@dataclass(eq=False)
class PartialStep:
    """A step of an optimizer for some of its parameters; ``groups``: settings with these, by their numbers.

    ``call``: the number of the call of ``step`` that it is a part of, which later calls' are above.
    """

    optimizer: torch.optim.Optimizer
    groups: Mapping[int, Group]
    call: int = 0
    _autocast: torch.autocast = field(init=False)

    def __post_init__(self) -> None:
        kind = next(p.device.type for group in self.groups.values() for p in group["params"])
        self._autocast = torch.autocast(kind, enabled=torch.is_autocast_enabled(kind))

    def run(self) -> None:
        """Apply it to the gradients that the parameters have now."""
        optimizer = self.optimizer
        whole, optimizer.param_groups = optimizer.param_groups, list(self.groups.values())
        try:
            # As where it was asked for, whatever the reader is in the middle of.
            with (
                in_its_class(optimizer),
                torch.inference_mode(False),
                torch.enable_grad(),
                self._autocast,
                torch._C.DisableTorchFunction(),
            ):
                type(optimizer).step(optimizer)
        finally:
            optimizer.param_groups = whole


def run_together(steps: Iterable[PartialStep]) -> None:
    """Run ``steps``, call after call of ``step``: all parts of one at once, which cost as one does."""
    calls: dict[int, list[PartialStep]] = {}
    for step in steps:
        calls.setdefault(step.call, []).append(step)
    for _, (first, *others) in sorted(calls.items()):
        groups = dict(first.groups)
        for number, group in (item for other in others for item in other.groups.items()):
            own = groups.get(number, {"params": []})["params"]
            groups[number] = {**group, "params": [*own, *group["params"]]}
        (dataclasses.replace(first, groups=groups) if others else first).run()


class SteppedTraining(Protocol):
    """The interface of a training that a wrapped optimizer needs."""

    recorder: SpanRecorder

    def accept(self, optimizer: torch.optim.Optimizer) -> None:
        """``optimizer`` is going to step."""

    def stepping(self, optimizer: torch.optim.Optimizer, barrier: str) -> Sequence[Bucket]:
        """A step begins: buckets of its parameters that may still travel; none after a ``barrier``."""

    def defer(self, bucket: Bucket, step: PartialStep) -> None:
        """``step`` is to run when ``bucket`` has arrived."""

    def record_update(self, parameters: Iterable[torch.nn.Parameter], start: Moment) -> None:
        """A step of these parameters ran from ``start`` until now."""

    def update_parameters(self) -> None:
        """Run every step that is pending."""

    def finish_transfers(self) -> None:
        """Wait for all transfers and run what waits for them."""


def attach(optimizer: torch.optim.Optimizer, training: SteppedTraining) -> Callable[[], None]:
    """Let ``optimizer.step`` leave to ``training`` what has not arrived; returns what undoes it.

    Step hooks, optimizers that mix parameters (LBFGS) or that we do not know, and fused gradient scaling need
    all gradients at once: those steps wait for every transfer. A closure is called first, as such classes do.
    """
    training.accept(optimizer)
    if _wraps(optimizer):
        return _attach_wrapper(optimizer, training)
    before = vars(optimizer).get("step")
    whole_step = optimizer.step
    always = _barrier_of(optimizer, before)

    def step(self: torch.optim.Optimizer, closure: Callable[[], Any] | None = None) -> Any:
        if hasattr(step, _BEFORE):  # a wrapper of this one, made since, calls it still
            return whole_step() if closure is None else whole_step(closure)
        self._opt_called = True  # type: ignore[attr-defined]  # schedulers made before us look for it
        barrier = always or _barrier_now(self)
        loss = None
        if closure is not None and not barrier:
            with torch.enable_grad():
                loss, closure = closure(), None
        travelling = training.stepping(self, barrier)
        started = training.recorder.now()
        if not travelling:
            with in_its_class(self):
                result = whole_step() if closure is None else whole_step(closure)
            training.record_update([p for group in self.param_groups for p in group["params"]], started)
            return result if loss is None else loss
        away = {p for bucket in travelling for p in bucket.parameters}
        here = [p for group in self.param_groups for p in group["params"] if p not in away]
        *parts, rest = _parts(self, [*(bucket.parameters for bucket in travelling), here])
        call = next(_calls)
        for bucket, part in zip(travelling, parts, strict=True):
            training.defer(bucket, PartialStep(self, part, call))
        if here:
            PartialStep(self, rest).run()
            training.record_update(here, started)
        return loss

    take_off = _put_over(optimizer, step)
    state_of = type(optimizer).__getstate__

    def get_state(self: torch.optim.Optimizer) -> Any:
        training.finish_transfers()
        return state_of(self)

    vars(optimizer)["__getstate__"] = types.MethodType(get_state, optimizer)
    handles = [
        optimizer.register_state_dict_pre_hook(lambda _: training.finish_transfers()),
        optimizer.register_load_state_dict_pre_hook(lambda _, __: training.finish_transfers()),
    ]

    forget_state = watch_state(optimizer, training.update_parameters) if not always else lambda: None

    def detach() -> None:
        forget_state()
        for handle in handles:
            handle.remove()
        vars(optimizer).pop("__getstate__", None)
        take_off()

    return detach


def _wraps(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether it was never made as torch makes optimizers: its state and its steps are another's."""
    return not hasattr(optimizer, "_optimizer_state_dict_pre_hooks")


def _attach_wrapper(optimizer: torch.optim.Optimizer, training: SteppedTraining) -> Callable[[], None]:
    """Let ``optimizer.step`` wait for every transfer, and pass on whatever it is given."""
    whole_step = optimizer.step

    def step(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        if hasattr(step, _BEFORE):
            return whole_step(*args, **kwargs)
        training.stepping(self, f"{type(self).__name__} steps as a whole, by an optimizer within it")
        started = training.recorder.now()
        result = whole_step(*args, **kwargs)
        training.record_update([p for group in self.param_groups for p in group["params"]], started)
        return result

    return _put_over(optimizer, step)


def _put_over(optimizer: torch.optim.Optimizer, step: Any) -> Callable[[], None]:
    """Put ``step`` in the place of the instance's; returns what takes it off again."""
    before = vars(optimizer).get("step")
    if hasattr(optimizer.step, "_wrapped_by_lr_sched"):
        step._wrapped_by_lr_sched = True
    vars(step)[_OURS] = True
    optimizer.step = types.MethodType(step, optimizer)  # type: ignore[method-assign]

    def take_off() -> None:
        vars(step)[_BEFORE] = before
        # Wrappers of others stay, with ours below until they are gone: another model's, a scheduler's.
        while hasattr(last := vars(optimizer).get("step"), _BEFORE):
            del optimizer.step
            if (below := getattr(last, _BEFORE)) is not None:
                optimizer.step = below  # type: ignore[method-assign]

    return take_off


def _barrier_of(optimizer: torch.optim.Optimizer, step: Any) -> str:
    """The reason that no step of this optimizer can be taken apart; empty: it can."""
    around = inspect.unwrap(getattr(step, "__func__", step))
    if hasattr(around, _OURS) and not hasattr(around, _BEFORE):
        return f"another model that trains is updated by the same {type(optimizer).__name__}"
    if step is not None and not hasattr(step, "_wrapped_by_lr_sched"):
        return f"{type(optimizer).__name__}.step was replaced on the instance"
    # Classes wrap their step when they first make an instance; what is inside says whose it is.
    method = inspect.unwrap(type(optimizer).step)
    if not any(method is inspect.unwrap(known.step) for known in PARAMETER_WISE):
        return f"{type(optimizer).__name__} may need all gradients at once"
    return ""


def _barrier_now(optimizer: torch.optim.Optimizer) -> str:
    hooks = (
        optimizer._optimizer_step_pre_hooks,
        optimizer._optimizer_step_post_hooks,
        torch_optimizer._global_optimizer_pre_hooks,
        torch_optimizer._global_optimizer_post_hooks,
    )
    if any(hooks):
        return "optimizer step hooks see whole steps"
    if (
        getattr(optimizer, "grad_scale", None) is not None
        or getattr(optimizer, "found_inf", None) is not None
    ):
        return "the optimizer unscales gradients itself (fused GradScaler)"
    return ""


def _parts(
    optimizer: torch.optim.Optimizer, shares: Sequence[Iterable[torch.nn.Parameter]]
) -> list[dict[int, Group]]:
    """For each of ``shares``, which are disjoint, the groups that have some of it, by their numbers.

    With those parameters, in their order, and the group's settings as they are now.
    """
    share_of = {p: k for k, share in enumerate(shares) for p in share}
    parts: list[dict[int, Group]] = [{} for _ in shares]
    for number, group in enumerate(optimizer.param_groups):
        members: dict[int, list[torch.nn.Parameter]] = {}
        for p in group["params"]:
            if (k := share_of.get(p)) is not None:
                members.setdefault(k, []).append(p)
        # Schedulers change tensors in place.
        settings = {
            key: value.clone() if isinstance(value, torch.Tensor) else value
            for key, value in group.items()
            if key != "params"
        }
        for k, own in members.items():
            parts[k][number] = {**settings, "params": own}
    return parts
