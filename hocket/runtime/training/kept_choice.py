"""A choice of a plan as it is kept, ``hocket.choice/1``: for one model, number of ranks and network."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
import torch

import hocket
from hocket.document import convert_document
from hocket.errors import FormatError, HocketError
from hocket.graph import Plan, StepGraph, check_plan
from hocket.network import Network
from hocket.network.file import MeasuredPoint
from hocket.runtime.training.plan_trials import Choice
from hocket.runtime.training.step_inputs import StepInputs, differing_inputs
from hocket.runtime.training.step_settings import StepSettings
from hocket.runtime.transfers.gloo_group import GlooGroup, gather_values

CHOICE_FORMAT = "hocket.choice/1"

_Seconds = Annotated[float, msgspec.Meta(gt=0)]


class KeptChoice(msgspec.Struct, frozen=True, kw_only=True):
    """A choice that was made, and by which times.

    ``key``: of all that it holds for; ``gradients``: in which order the plan completes gradients, where it
    has an order of operations; ``network`` and ``point``: as it was measured, and a size of which the time
    tells whether it still is that network, None where it was given; ``step_s``: the fastest turn of each plan
    that was tried, the baseline's among them; ``inputs``: of the step that was profiled, on each rank, none
    where they are not known; ``chosen``: the day.
    """

    format: Literal["hocket.choice/1"] = "hocket.choice/1"
    key: str
    model: str
    ranks: int
    torch: str
    hocket: str
    chosen: str
    plan: Plan
    gradients: tuple[str, ...] | None = None
    network: Network | None = None
    point: MeasuredPoint | None = None
    inputs: tuple[StepInputs, ...] = ()
    step_s: dict[str, _Seconds]


def key_of_training(
    model: str,
    parameters: Mapping[str, torch.nn.Parameter],
    choice: Choice,
    control: GlooGroup,
    settings: StepSettings,
    clips: bool,
) -> str:
    """The key of choices for this model on these ranks, all of which ask for it; rank 0's counts.

    ``clips``: of steps that wait for norms of gradients.

    Of hosts it has which ranks share one, and of each rank the interface that was named for gloo: hosts may
    be others in each run. A network that was given counts with all that it says.
    """
    here = [socket.gethostname(), os.environ.get("GLOO_SOCKET_IFNAME", "")]
    places = gather_values(here, control, list[str])
    hosts = list(dict.fromkeys(host for host, _ in places))
    first = next(iter(parameters.values()))
    facts = [
        model,
        [(name, tuple(p.shape), str(p.dtype)) for name, p in parameters.items()],
        [(hosts.index(host), interface) for host, interface in places],
        [str(torch.__version__), hocket.__version__, *map(str, settings), clips],
        torch.cuda.get_device_name(first.device) if first.is_cuda else first.device.type,
        dataclasses.asdict(choice.network) if choice.network_given and choice.network else "measured",
    ]
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:32]


def keep(choice: Choice, key: str) -> KeptChoice:
    """The settled ``choice`` as it is kept."""
    return KeptChoice(
        key=key,
        model=choice.plan.model,
        ranks=choice.ranks,
        torch=str(torch.__version__),
        hocket=hocket.__version__,
        chosen=time.strftime("%Y-%m-%d"),
        plan=choice.plan,
        gradients=None if choice.gradients is None else tuple(choice.gradients),
        network=None if choice.network_given else choice.network,
        point=choice.point,
        inputs=tuple(choice.inputs),
        step_s={name: min(seconds) for name, seconds in {**choice.profiled_s, **choice.trials}.items()},
    )


def kept_of_document(
    document: Any, key: str, inputs: Sequence[StepInputs], outline: StepGraph, source: str
) -> KeptChoice:
    """The choice that ``document`` holds, for the training of this ``key``, with these ``inputs``.

    Raises
    ------
    HocketError
        In one line, where it is none, or one for something else.
    """
    try:
        kept = convert_document(document, KeptChoice, source, CHOICE_FORMAT)
        check_plan(msgspec.structs.replace(kept.plan, compute_order=None), outline)
    except FormatError as error:
        raise HocketError(str(error) if str(error).startswith(source) else f"{source}: {error}") from None
    except HocketError as error:  # a network's own
        raise HocketError(f"{source}: {error}") from None
    if kept.key != key:
        raise HocketError(
            f"{source}: was chosen for another model, number of ranks, network, or version of torch or hocket"
        )
    if difference := differing_inputs(kept.inputs, inputs):
        raise HocketError(f"{source}: {difference}")
    return kept
