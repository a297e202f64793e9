"""Frames: what is put in on one side comes out on the other, whatever types and slices are in them."""

from __future__ import annotations

import pytest
import torch

from hocket.graph import Plan, Pull, Push
from hocket.runtime.ps.wire.layout import Frame, check_layout, frame_layouts, frames_of, homes_of
from hocket.runtime.ps.wire.model_spec import Spec, TensorSpec
from hocket.runtime.ps.wire.packing import pack, unpack
from hocket.runtime.ps.wire.training_messages import FrameLayout, Piece
from hocket.runtime.ps.wire.transport import FIRST_FRAME, Header, Kind, TransportError, header_of

TENSORS = (
    TensorSpec("a", (3, 5), "float32"),
    TensorSpec("b", (7,), "bfloat16"),
    TensorSpec("c", (), "float64"),
    TensorSpec("d", (2, 2), "float32"),
)
SPEC = Spec(parameters=TENSORS, groups=(0,) * 4, optimizer="SGD", settings=[{"lr": 0.1}])


def plan(pulls: list[tuple[str, ...]], chunks: int = 1) -> Plan:
    return Plan(
        policy="test",
        model="test",
        architecture="ps",
        pulls=tuple(Pull(parameters=batch, priority=k, chunks=chunks) for k, batch in enumerate(pulls)),
        pushes=tuple(Push(parameters=batch, chunks=chunks) for batch in reversed(pulls)),
        compute_order=None,
    )


def test_parameters_go_to_the_server_with_the_fewest_bytes() -> None:
    homes = homes_of(SPEC, 2)  # 60, 14, 8 and 16 bytes
    assert homes.server == (0, 1, 1, 1)
    assert homes.of == ((0,), (1, 2, 3))
    assert homes.place == (0, 0, 1, 2)


def test_a_batch_is_cut_by_servers_and_ranks_are_dense() -> None:
    layouts = frame_layouts(
        plan([("d",), ("b", "a"), ("c",)]), list("abcd"), homes_of(SPEC, 2), drawn_anew=False, first_tag=0
    )
    assert layouts[0].pulls == [[Piece(0)]]
    assert layouts[1].pulls == [[Piece(2)], [Piece(0)], [Piece(1)]]
    assert layouts[1].pushes == [[Piece(1)], [Piece(0)], [Piece(2)]]
    assert layouts[0].first_tag == FIRST_FRAME


def test_frames_carry_values_bit_by_bit() -> None:
    generator = torch.Generator().manual_seed(0)
    values = [torch.randn(t.shape, generator=generator).to(t.torch_dtype) for t in TENSORS]
    (layout,) = frame_layouts(
        plan([("a", "b", "c"), ("d",)]), list("abcd"), homes_of(SPEC, 1), drawn_anew=False, first_tag=5
    )
    sent, _ = frames_of(layout, TENSORS)
    received, _ = frames_of(layout, TENSORS)
    assert [frame.tag for frame in sent] == [5, 6]
    for frame, other in zip(sent, received, strict=True):
        for k, piece in enumerate(frame.pieces):
            frame.fill(k, None if piece.parameter == 1 else values[piece.parameter])
        other.buffer.copy_(frame.buffer)
    first = received[0]
    assert torch.equal(first.views[0].view(3, 5), values[0])
    assert torch.equal(first.views[2], values[2].view(1))
    assert first.used_flags.tolist() == [1, 0, 1]


def test_transposed_tensors_travel_in_logical_order_and_slices_add_up() -> None:
    tensor = torch.arange(15.0).view(5, 3).t()  # 3 x 5, strided
    (layout,) = frame_layouts(
        plan([("a",)], chunks=4), ["a"], homes_of(SPEC, 1), drawn_anew=False, first_tag=3
    )
    frames, _ = frames_of(layout, TENSORS)
    for frame in frames:
        frame.fill(0, tensor)
    assert torch.equal(torch.cat([frame.views[0] for frame in frames]), tensor.reshape(-1))


@pytest.mark.parametrize(
    "pulls",
    [[[Piece(0)]], [[Piece(0), Piece(1), Piece(1)]], [[Piece(0)], [Piece(7)]], [[Piece(0), Piece(1, 1, 1)]]],
)
def test_a_layout_that_does_not_cover_everything_once_is_refused(pulls: list[list[Piece]]) -> None:
    whole = [[Piece(0), Piece(1)]]
    check_layout(FrameLayout(whole, whole, strict=False, drawn_anew=False, first_tag=3), 2)
    with pytest.raises(TransportError, match="a plan"):
        check_layout(FrameLayout(pulls, whole, strict=False, drawn_anew=False, first_tag=3), 2)


def test_packed_tensors_come_back_and_cut_ones_are_refused() -> None:
    tensors = {t.name: torch.ones(t.shape, dtype=t.torch_dtype) * 3 for t in TENSORS}
    data = pack(tensors, {"a/step": 4, "b/none": None})
    back, others = unpack(data)
    assert list(back) == list(tensors)
    assert all(torch.equal(back[k], tensors[k]) and back[k].dtype == tensors[k].dtype for k in tensors)
    assert others == {"a/step": 4, "b/none": None}
    for length in (3, 20, len(data) - 1, len(data) - 30):
        with pytest.raises(TransportError):
            unpack(data[:length])
    with pytest.raises(TransportError, match="too many"):
        unpack(torch.cat([data, torch.zeros(16, dtype=torch.uint8)]))


def test_headers_come_back_and_others_are_refused() -> None:
    header = Header(kind=Kind.PUSH, tag=70_000, rank=3, label=1 << 40, length=1 << 35)
    assert header_of(header.to_bytes()) == header
    for data in (b"", b"HKT1", b"XXXX" + header.to_bytes()[4:], b"HKT1\x63" + header.to_bytes()[5:]):
        with pytest.raises(TransportError):
            header_of(data)


def test_frames_are_aligned_whatever_is_in_them() -> None:
    frame = Frame([Piece(1), Piece(2), Piece(0)], TENSORS, FIRST_FRAME)
    assert all(view.data_ptr() % view.element_size() == 0 for view in frame.views)
