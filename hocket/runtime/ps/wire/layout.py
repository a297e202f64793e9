"""The layout of parameters over servers, and of a plan in frames that travel together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from hocket.graph import Plan
from hocket.graph.plan import batch_name
from hocket.network import assign_servers
from hocket.runtime.ps.wire.model_spec import Spec, TensorSpec
from hocket.runtime.ps.wire.training_messages import FrameLayout, Frames, Piece
from hocket.runtime.ps.wire.transport import FIRST_FRAME, LAST_FRAME, TransportError

_ALIGNED_BYTES = 16


@dataclass(frozen=True, eq=False)
class Homes:
    """``server`` (p,): where each parameter lives, as number ``place`` (p,); ``of``: each server's."""

    server: tuple[int, ...]
    place: tuple[int, ...]
    of: tuple[tuple[int, ...], ...]


def homes_of(spec: Spec, num_servers: int) -> Homes:
    """Each parameter, in order, on the server with the fewest bytes so far."""
    server = assign_servers([t.size_bytes for t in spec.parameters], num_servers).tolist()
    of = tuple(tuple(i for i, s in enumerate(server) if s == k) for k in range(num_servers))
    place = [0] * len(server)
    for members in of:
        for number, i in enumerate(members):
            place[i] = number
    return Homes(tuple(server), tuple(place), of)


class Frame:
    """Pieces of tensors one behind the other in a flat buffer, and at its end a byte for each: 1, it is used.

    ``views``: each piece's elements, flat, in ``buffer`` (uint8); ``bounds``: which elements of its tensor.
    """

    def __init__(
        self, pieces: Sequence[Piece], tensors: Sequence[TensorSpec], tag: int, name: str = ""
    ) -> None:
        self.pieces = tuple(pieces)
        self.tag = tag
        self.name = name
        self.bounds = [
            (n * piece.part // piece.parts, n * (piece.part + 1) // piece.parts)
            for piece in pieces
            for n in (tensors[piece.parameter].num_elements,)
        ]
        offset, places = 0, []
        for piece, (first, end) in zip(pieces, self.bounds, strict=True):
            offset = -(-offset // _ALIGNED_BYTES) * _ALIGNED_BYTES
            size = (end - first) * tensors[piece.parameter].torch_dtype.itemsize
            places.append((offset, size))
            offset += size
        self.buffer = torch.zeros(offset + len(pieces), dtype=torch.uint8)
        self.views = [
            self.buffer[start : start + size].view(tensors[piece.parameter].torch_dtype)
            for piece, (start, size) in zip(pieces, places, strict=True)
        ]
        self.used_flags = self.buffer[offset:]

    @property
    def parameters(self) -> tuple[int, ...]:
        """The parameters, on this server, of which there is something in here."""
        return tuple(piece.parameter for piece in self.pieces)

    def fill(self, index: int, tensor: torch.Tensor | None) -> None:
        """Put piece ``index`` of a whole tensor in its place; None: it is not used."""
        self.used_flags[index] = tensor is not None
        if tensor is None:
            self.views[index].zero_()
            return
        first, end = self.bounds[index]
        flat = tensor.detach().reshape(-1)  # in logical order, whatever its strides
        self.views[index].copy_(flat[first:end])


def frame_layouts(
    plan: Plan, names: Sequence[str], homes: Homes, *, drawn_anew: bool, first_tag: int
) -> list[FrameLayout]:
    """Each server's part of ``plan``: of a batch, what lives there; ranks become dense."""
    index = {name: i for i, name in enumerate(names)}
    layouts = []
    for server in range(len(homes.of)):
        pulls, pushes = (
            _server_frames([(it.parameters, it.chunks) for it in batches], index, homes, server)
            for batches in (plan.pulls, plan.pushes)
        )
        layouts.append(
            FrameLayout(
                pulls,
                pushes,
                strict=plan.issue == "listed",
                drawn_anew=drawn_anew,
                first_tag=max(first_tag, FIRST_FRAME),
            )
        )
    return layouts


def _server_frames(
    batches: Sequence[tuple[Sequence[str], int]], index: Mapping[str, int], homes: Homes, server: int
) -> Frames:
    frames: Frames = []
    for names, chunks in batches:
        here = [homes.place[index[name]] for name in names if homes.server[index[name]] == server]
        if chunks > 1 and here:
            frames += [[Piece(here[0], part, chunks)] for part in range(chunks)]
        elif here:
            frames.append([Piece(place) for place in here])
    return frames


def check_layout(layout: FrameLayout, num_parameters: int) -> None:
    """Refuse what does not pull and push every parameter once, slice by slice.

    Raises
    ------
    TransportError
        When it comes from elsewhere than :func:`frame_layouts`.
    """
    end = layout.first_tag + len(layout.pulls) + len(layout.pushes)
    if not FIRST_FRAME <= layout.first_tag <= end <= LAST_FRAME:
        raise TransportError(f"a plan whose frames have the tags {layout.first_tag} to {end}")
    for frames in (layout.pulls, layout.pushes):
        covered = np.zeros(num_parameters)
        for piece in (piece for frame in frames for piece in frame):
            if piece.parameter >= num_parameters or piece.part >= piece.parts:
                raise TransportError(f"a plan with slice {piece.part} of {piece.parts} of {piece.parameter}")
            covered[piece.parameter] += 1 / piece.parts
        if not np.allclose(covered, 1.0):
            raise TransportError("a plan that does not cover every parameter once")


def frames_of(layout: FrameLayout, tensors: Sequence[TensorSpec]) -> tuple[list[Frame], list[Frame]]:
    """The frames of pulls and of pushes, with buffers of their own; ``tensors``: those of the server."""
    made: list[list[Frame]] = []
    tag = layout.first_tag
    for frames in (layout.pulls, layout.pushes):
        made.append([])
        for pieces in frames:
            shown = batch_name(tuple(_piece_name(piece, tensors) for piece in pieces))
            made[-1].append(Frame(pieces, tensors, tag, shown))
            tag += 1
    return made[0], made[1]


def _piece_name(piece: Piece, tensors: Sequence[TensorSpec]) -> str:
    name = tensors[piece.parameter].name
    return name if piece.parts == 1 else f"{name}[{piece.part}]"
