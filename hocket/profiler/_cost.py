"""The cost of a call: floating point operations and bytes, from shapes alone."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Literal, NamedTuple

from torch._ops import OpOverload
from torch.utils.flop_counter import flop_registry, sdpa_backward_flop_count, sdpa_flop_count

from hocket.profiler._operators import accesses, base_name, extents, tensors

Kind = Literal["winograd", "matrix", "elementwise"]

# Take rows of their first tensor and leave the rest unread.
_GATHERS = ("embedding", "index", "index_select", "gather")


class CallWork(NamedTuple):
    """The work of a call on any device."""

    kind: Kind
    """``winograd``: convolutions that libraries compute with fewer multiplications than counted; ``matrix``:
    other convolutions, matrix products, attention, recurrent layers; ``elementwise``: the rest."""
    flops: float
    """Multiplications and additions, counted apart; for ``elementwise`` one for each result."""
    num_bytes: float
    """Read and written, each argument and result once."""


def work_of(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> CallWork:
    """Count one call; arguments and result may be fake tensors."""
    name = base_name(func)
    num_bytes = _bytes_moved(func, args, kwargs, result)
    packet = func.overloadpacket
    if name in _RECURRENT:
        flops, more_bytes = _recurrent_work(args, _RECURRENT[name])
        return CallWork("matrix", flops, num_bytes + more_bytes)
    if name in _ATTENTION:
        return CallWork("matrix", _ATTENTION[name](args), num_bytes)
    if name in _CONVOLUTIONS:
        kind: Kind = "winograd" if _is_winograd(name, args) else "matrix"
        return CallWork(kind, _CONVOLUTIONS[name](args, result), num_bytes)
    if packet in flop_registry:
        flops = float(flop_registry[packet](*args, **kwargs, out_val=result))
        return CallWork("matrix", flops, num_bytes)
    return CallWork("elementwise", float(sum(tensor.numel() for tensor in tensors(result))), num_bytes)


def _bytes_moved(func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> float:
    read, written = accesses(func, args, kwargs)
    known = {extent.key for extent in (*read, *written)}
    fresh = [e for tensor in tensors(result) for e in extents(tensor) if e.key not in known]
    num_written = sum(extent.end - extent.begin for extent in {*written, *fresh})
    num_read = [extent.end - extent.begin for extent in dict.fromkeys((*read, *written))]
    if base_name(func) in _GATHERS:
        num_read[0] = min(num_read[0], num_written)
    return float(num_written + sum(num_read))


def _is_winograd(name: str, args: tuple[Any, ...]) -> bool:
    """True if it is a 3x3 convolution of stride 1 and dilation 1, forward or backward, in one group."""
    if name == "convolution":
        weight, (stride, _, dilation, *_, groups) = args[1], args[3:9]
    elif name == "convolution_backward":
        weight, (stride, _, dilation, *_, groups, _) = args[2], args[4:11]
    else:
        return False
    return (
        weight.ndim == 4
        and min(weight.shape[2:]) >= 3
        and set(stride) == set(dilation) == {1}
        and groups == 1
    )


def _recurrent_work(args: tuple[Any, ...], num_products: int) -> tuple[float, float]:
    """Products with both weights at every time step; the recurrent weight is read anew in each."""
    inputs, input_weight, recurrent_weight = args[:3]
    num_steps, batch_size = inputs.shape[:2]
    flops = 2.0 * num_products * num_steps * batch_size * (input_weight.numel() + recurrent_weight.numel())
    weight_bytes = recurrent_weight.numel() * recurrent_weight.element_size()
    return flops, float(num_products * (num_steps - 1) * weight_bytes)


def _convolution_flops(args: tuple[Any, ...], result: Any) -> float:
    """Each weight meets each place of the output, or, transposed, of the input; padding counts as well."""
    inputs, weight, transposed = args[0], args[1], args[6]
    return _weighted(weight, inputs if transposed else result)


def _convolution_backward_flops(args: tuple[Any, ...], _: Any) -> float:
    """The forward pass's pairs of numbers anew for each gradient that is wanted, whatever the groups.

    Torch's own counter leaves groups out of the weight's.
    """
    outputs, inputs, weight, transposed, wanted = args[0], args[1], args[2], args[7], args[10]
    return int(sum(wanted[:2])) * _weighted(weight, inputs if transposed else outputs)


def _weighted(weight: Any, places: Any) -> float:
    """A product and a sum for each weight, at each place of ``places`` (n, channels, ...)."""
    return float(2 * weight.numel() * places.shape[0] * prod(places.shape[2:]))


def _attention_flops(args: tuple[Any, ...]) -> float:
    return float(sdpa_flop_count(*(tensor.shape for tensor in args[:3])))  # type: ignore[no-untyped-call]


def _attention_backward_flops(args: tuple[Any, ...]) -> float:
    shapes = (tensor.shape for tensor in args[:4])
    return float(sdpa_backward_flop_count(*shapes))  # type: ignore[no-untyped-call]


_CONVOLUTIONS: dict[str, Callable[[tuple[Any, ...], Any], float]] = {
    "convolution": _convolution_flops,
    "convolution_backward": _convolution_backward_flops,
}
# The CPU's own operators for what flop_registry knows under the names of CUDA's.
_RECURRENT = {"mkldnn_rnn_layer": 1, "mkldnn_rnn_layer_backward": 2}
_ATTENTION: dict[str, Callable[[tuple[Any, ...]], float]] = {
    "_scaled_dot_product_flash_attention_for_cpu": _attention_flops,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward_flops,
}
