"""Profiling a real training step: what ran, what depends on what, and how long each operation takes.

A ``TorchDispatchMode`` lies around the unmodified eager step. One step gives the structure, others the
durations; a plain step runs before or after each timed one.

An operation's own time is that of its dispatch: on the CPU from just before to just after the call of the
kernel, on CUDA between two events. Between operations the step makes views, walks autograd's graph, frees
memory and runs the script, which keeps the processor from its next operation; the timer lengthens that time.
So a duration is the own time plus a share of the time since the operation before (the last one also has the
time after it). The share, between 0 and 1 and the same for all, makes the sums equal the plain steps.
``Profile.own_sum_s`` says how much was measured without that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import numpy as np
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.optim import Optimizer

from hocket.errors import HocketError
from hocket.graph import StepGraph
from hocket.graph.step import MEASURE_AGAIN, Seconds
from hocket.profiler._build import build_graph, record
from hocket.profiler._step import ProfiledStep, make_step, unchanged
from hocket.profiler._timer import Timer, make_timer, now_s
from hocket.profiler.machine_use import MachineUse, UseMeter
from hocket.text import duration_text

Loss = Callable[[Any, Any], Tensor]
Progress = Callable[[int, int], None]
"""Called with (steps done, steps in all)."""


_AGAIN = "measure again while nothing else runs"
_APART = 0.15
"""The share by which sum and plain step may differ; alone on a machine, those of six models were nearer."""
_MEAN_APART = 0.01
"""The distance of the mean step from the median one that is not told."""
_UNEVEN = 0.5
"""The share of the shortest step by which the longest one may be longer untold."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A measured step beside the same step without a profiler; arrays have one entry a sampled step."""

    graph: StepGraph
    plain_step_s: Seconds
    """Plain steps, each run right before or after the sampled step of its index."""
    own_sum_s: Seconds
    """The sum of the operations' own times, without what lies between them."""
    use: MachineUse | None = None
    """The processors that this program and others used meanwhile, where the kernel counts them."""

    @property
    def operations_sum_s(self) -> Seconds:
        """The sum of the operations' durations."""
        sums: Seconds = self.graph.durations_s.sum(axis=0)
        return sums

    @property
    def sum_to_plain(self) -> float:
        """Median sum over median plain step."""
        return float(np.median(self.operations_sum_s) / np.median(self.plain_step_s))

    @property
    def own_to_plain(self) -> float:
        """Median sum of own times over median plain step: measured without the plain steps."""
        return float(np.median(self.own_sum_s) / np.median(self.plain_step_s))

    @property
    def _is_uneven(self) -> bool:
        """True if the sampled steps differ by more than steps of one model do on a quiet machine."""
        return float(self.operations_sum_s.max()) > (1 + _UNEVEN) * float(self.operations_sum_s.min())

    @property
    def doubt(self) -> str:
        """Clauses about a mean that is not the median, and steps that differ.

        The median is what the plain step is compared with; what training takes follows from the mean.
        """
        said, sums_s = "", self.operations_sum_s
        if abs(float(sums_s.mean() / np.median(sums_s)) - 1) > _MEAN_APART:
            mean = duration_text(float(sums_s.mean()))
            said += f"; these are medians, and predictions go by the mean sum, {mean}"
        if self._is_uneven:
            least, most = (duration_text(float(seconds)) for seconds in (sums_s.min(), sums_s.max()))
            said += (
                f"; steps took from {least} to {most}: if not by their nature,"
                f" {_AGAIN}, as workers are predicted to wait for each other's slow ones"
            )
        return said

    @property
    def caveat(self) -> str:
        """The reasons to measure again, for the step file and all answers from it; empty: none."""
        reasons, errs = [], "times, and answers from them, may be far off"
        if self.use is not None and self.use.crowded:
            others, processors = self.use.others, self.use.processors
            reasons.append(f"while other programs used {others:.1f} of {processors} processors")
            errs = "computing looks too slow, rho too small and, below rho 1, a plan's gain too small"
        if abs(self.sum_to_plain - 1) > _APART:
            reasons.append(f"with operations that sum to {self.sum_to_plain:.0%} of a step without profiler")
            errs = "times, and answers from them, may be far off"
        if not reasons:
            return ""
        return f"the step was measured {' and '.join(reasons)}: {errs}, so {MEASURE_AGAIN}"

    def with_caveats(self, *others: str) -> Profile:
        """This profile, whose graph has ``others`` and its own caveat as its caveat."""
        said = "; ".join(filter(None, [*others, self.caveat]))
        return replace(self, graph=replace(self.graph, caveat=said))


def profile(
    model: nn.Module,
    batch: Any,
    loss: Loss | None,
    optimizer: Optimizer | None,
    *,
    steps: int = 20,
    warmup: int = 3,
    inference: bool = False,
    name: str | None = None,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> StepGraph:
    """Measure one worker's training step on the device that the model is on; durations are in seconds.

    Runs ``warmup + 1 + 2 * steps`` steps and puts everything back afterwards: parameters, their gradients,
    buffers, training flags, the optimizer and the random number generators, bit for bit.

    Parameters
    ----------
    model
        A model.
    batch
        (inputs, targets); a tuple or list of inputs is passed as positional, a mapping as keyword arguments.
        Of a longer tuple the last is the targets and the rest the model's arguments. A mapping is the model's
        keyword arguments, and the loss gets it as targets. A tensor is the model's only argument. Of a
        DataLoader, or what else can be iterated over, the first batch is taken.
    loss
        The step is ``loss(model(inputs), targets).backward()``, ``optimizer.step()``, gradients set to None.
        None: the model gets all of the batch and returns its loss: a scalar tensor, an object or mapping with
        one named ``loss``, or a tuple whose first scalar with a gradient it is; a LightningModule's is that
        of its ``training_step``.
    optimizer
        The model's optimizer; None: no update operations.
    steps
        Sampled steps, at least 1: one duration of each operation from each.
    warmup
        Steps before, at least 1: optimizers create their state in the first.
    inference
        Only the forward pass, in evaluation mode and without gradients; loss, optimizer and the last of
        several parts of the batch, its targets, are not used.
    name
        The name of the network in the graph; None: the model's class.
    batch_size
        Examples a step; None: the first extent of the batch's first tensor.
    progress
        Called with steps done and steps in all.

    Returns
    -------
    The step; :func:`hocket.save_step` writes it.

    Raises
    ------
    HocketError
        For ``steps`` or ``warmup`` below 1, other arguments that make no step, a step that raises, and steps
        whose operations differ.

    Examples
    --------
    >>> import hocket, torch
    >>> model = torch.nn.Linear(8, 2)
    >>> batch = torch.randn(4, 8), torch.randint(2, (4,))
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> graph = hocket.profile(model, batch, torch.nn.functional.cross_entropy, optimizer, steps=2)
    >>> graph.num_parameters
    2
    """
    step = make_step(model, batch, loss, optimizer, inference)
    return profile_step(
        step, steps=steps, warmup=warmup, name=name, batch_size=batch_size, progress=progress
    ).graph


def profile_step(
    step: ProfiledStep,
    *,
    steps: int = 20,
    warmup: int = 3,
    name: str | None = None,
    batch_size: int | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Measure ``step`` on the device that its model is on, and the plain step beside it.

    The options are those of :func:`profile`. Operations are named ``phase/module path/operator``, those of
    the loss ``forward/loss/...``, updates of one parameter ``update/parameter/operator``, with ``.2``,
    ``.3``, ... where a name comes again.

    Raises
    ------
    HocketError
        For a step that raises, and for one whose operations differ from time to time.
    """
    if steps < 1 or warmup < 1:
        raise HocketError(f"steps={steps} and warmup={warmup} must each be at least 1")
    batch_size = step.batch_size() if batch_size is None else batch_size
    device = device_type(step.parameters().values())
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if progress is not None:
            progress(done, warmup + 1 + 2 * steps)

    def run_plain() -> float:
        begin_s = now_s(device)
        step.run()
        plain_s = now_s(device) - begin_s
        count()
        return plain_s

    def run_timed() -> Timer:
        timer = make_timer(device)
        with timer:
            step.run()
        count()
        return timer

    samples = Samples()
    with unchanged(step):
        for _ in range(warmup):
            run_plain()
        recorder = record(step)
        count()
        for k in range(steps):
            # Alternate which goes first, so that a drift of the machine's speed cancels.
            if k % 2 == 0:
                samples.plain_s.append(run_plain())
            timer = run_timed()
            if k % 2 == 1:
                samples.plain_s.append(run_plain())
            if differs := difference(recorder.calls, timer.calls):
                raise HocketError(f"sampled step {k} {differs}")
            samples.add(timer.times().of(recorder.call_of_operation))
    graph = build_graph(
        step.parameters(),
        recorder.operations,
        samples.durations_s(),
        name=name or type(step.model).__name__,
        batch_size=batch_size,
        device=device,
    )
    return samples.profile(graph)


@dataclass
class Samples:
    """Plain steps, and of sampled ones each operation's own time and the time before it, in seconds.

    ``meter``: the machine's use since this object was made.
    """

    plain_s: list[float] = field(default_factory=list)
    own_s: list[Seconds] = field(default_factory=list)
    between_s: list[Seconds] = field(default_factory=list)
    meter: UseMeter = field(default_factory=UseMeter)

    def add(self, times: tuple[Seconds, Seconds]) -> None:
        """Add a sampled step: its operations' own times and those before them."""
        self.own_s.append(times[0])
        self.between_s.append(times[1])

    def durations_s(self) -> list[list[float]]:
        """For each operation its duration in each sampled step."""
        own, between = np.stack(self.own_s, axis=1), np.stack(self.between_s, axis=1)
        durations: list[list[float]] = (own + _share(np.array(self.plain_s), own, between) * between).tolist()
        return durations

    def profile(self, graph: StepGraph) -> Profile:
        """``graph``, whose durations are these, beside the plain steps."""
        own_sum_s = np.stack(self.own_s, axis=1).sum(axis=0)
        plain_step_s, use = np.array(self.plain_s), self.meter.use()
        return Profile(graph=graph, plain_step_s=plain_step_s, own_sum_s=own_sum_s, use=use).with_caveats()


def _share(plain_s: Seconds, own_s: Seconds, between_s: Seconds) -> float:
    """The share of the time between operations that a plain step has too."""
    missing_s = np.median(plain_s) - np.median(own_s.sum(axis=0))
    return float(np.clip(missing_s / max(np.median(between_s.sum(axis=0)), 1e-12), 0.0, 1.0))


def device_type(parameters: Iterable[Tensor]) -> str:
    """The kind of device that a step of these runs on."""
    devices = {parameter.device.type for parameter in parameters}
    return "cuda" if "cuda" in devices else min(devices, default="cpu")


def difference(recorded: Sequence[OpOverload], timed: Sequence[OpOverload]) -> str:
    """A line on the first call that differs from the recorded step's, and the fix; "" where none does."""
    if recorded == timed:
        return ""
    pairs = enumerate(zip_longest(recorded, timed, fillvalue="nothing"))
    position, (expected, found) = next((i, pair) for i, pair in pairs if pair[0] is not pair[1])
    return (
        f"ran {found} as call {position} where the recorded step ran {expected}; "
        "every step must run the same operations: raise warmup if it settles, "
        "or switch off what is drawn at random or depends on the data"
    )
