"""Messages between workers and servers beside the tensors; JSON, one document a message."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from hocket.graph import Plan
from hocket.runtime.ps.wire.model_spec import Spec

Settings = list[dict[str, Any]]
"""Of each of the optimizer's groups, what it holds beside its parameters."""

Real = str
"""A number as :func:`repr` writes it: JSON has no infinity and no nan, gradients have."""

Index = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Slice ``part`` of ``parts`` equal ones of a parameter, which is counted on its server."""

    parameter: Index
    part: Index = 0
    parts: Annotated[int, msgspec.Meta(ge=1, le=2**53)] = 1


Frames = list[list[Piece]]


class RendezvousEntry(msgspec.Struct, frozen=True, tag="Meet"):
    """The address of this side of the pair, as gloo has it."""

    key: str
    value: bytes


class JoinRequest(msgspec.Struct, frozen=True, tag="Begin"):
    """A worker's first message: the model and the optimizer as it has them."""

    spec: Spec


class JoinAnswer(msgspec.Struct, frozen=True, tag="Started"):
    """The server's answer: where all servers are, whether the worker is to send initial values, and how many
    of its steps count here already.
    """

    servers: list[str]
    wants_values: bool
    steps: Index = 0


class ResumeAfter(msgspec.Struct, frozen=True, tag="GoOn"):
    """So many of the worker's steps count on every server; the next one is the first that it brings."""

    steps: Index


class FrameLayout(msgspec.Struct, frozen=True, tag="Lay"):
    """The frames that travel between this pair from the next step on, in order.

    ``strict``: pushes keep their order; ``drawn_anew``: pulls go in an order that is drawn anew for each
    step. ``first_tag``: frames have tags from this one on, pulls before pushes.
    """

    pulls: Frames
    pushes: Frames
    strict: bool
    drawn_anew: bool = msgspec.field(name="drawn")
    first_tag: Index


class PullRequest(msgspec.Struct, frozen=True, tag="Want"):
    """The worker is ready for the pulls of its next step."""


class Commit(msgspec.Struct, frozen=True, tag=True):
    """The worker's optimizer has stepped: with these settings, its gradients times ``scale``."""

    settings: Settings
    scale: Real


class NormsRequest(msgspec.Struct, frozen=True, tag="AskNorms"):
    """Of the reduced gradients of the step under way, to clip by."""

    norm_type: Real


class Norms(msgspec.Struct, frozen=True, tag=True):
    """The norm of each of the server's gradients."""

    norms: list[Real]


class OptimizerStateRequest(msgspec.Struct, frozen=True, tag="AskState"):
    """The optimizer's state as it is, once the worker's own pushes are in it."""


class PlanMessage(msgspec.Struct, frozen=True, tag="Planned"):
    """Worker 0's plan, for everybody from their next step on."""

    plan: Plan


class Farewell(msgspec.Struct, frozen=True, tag="Bye"):
    """The worker has finished its training."""


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The server ends the training, and why."""

    why: str


FromWorker = (
    RendezvousEntry
    | JoinRequest
    | ResumeAfter
    | FrameLayout
    | PullRequest
    | Commit
    | NormsRequest
    | OptimizerStateRequest
    | PlanMessage
    | Farewell
)
FromServer = RendezvousEntry | JoinAnswer | Norms | PlanMessage | Failed
