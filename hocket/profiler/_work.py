"""Work that a call asks of a GPU: products of matrices, and bytes that kernels pass over, by shapes."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, prod
from typing import NamedTuple

from hocket.datasheets import Number
from hocket.profiler._call import Call, SeenTensor

KINDS = (
    *("stream", "strided", "norm", "rows", "reduction", "gather", "update"),
    *("product", "forward", "input_gradient", "weight_gradient"),
    *("grouped_forward", "grouped_input_gradient", "grouped_weight_gradient"),
    *("depthwise_forward", "depthwise_input_gradient", "depthwise_weight_gradient"),
    *("attention", "attention_backward", "masked_attention", "masked_attention_backward"),
    *("recurrent", "layout", "thin"),
)
"""Kinds of kernels, each with constants of its own. ``stream``: each number by itself; ``strided``: they
change places; ``norm``: over a batch; ``rows``: softmax and layer normalization; a convolution's three."""


class Work(NamedTuple):
    """The work of one kernel, or of a few alike."""

    kind: str
    num_bytes: float
    """Read and written, as often as the kernels pass over them."""
    dtype: str = "float32"
    """Of the numbers that are multiplied, or else passed over."""
    m: float = 0
    n: float = 0
    k: float = 0
    batch: float = 0
    """As ``batch`` products of matrices of m by k and k by n; none where 0."""
    kernels: int = 1
    taps: int = 1
    """Places of a convolution's window."""
    channels: int = 8
    """The greatest power of two, to 8, that divides its numbers of channels, or a product's widths."""
    alike: bool = False
    """True of a convolution with as many channels into each group as out of it."""

    @property
    def flops(self) -> float:
        """Multiplications and additions, counted apart."""
        return 2.0 * self.m * self.n * self.k * self.batch


def works_of_call(call: Call, *, update: bool = False) -> list[Work]:
    """Reckon a call's work as kernels for GPUs do it, whatever the CPU's operators are called."""
    if update:
        return [Work("update", call.read_bytes + call.written_bytes)]
    found = _WORKS.get(call.name)
    if found is not None:
        return found(call)
    kind = _KIND_BY_NAME.get(call.name, "stream")
    if kind == "stream" and call.name in _COPIES and _changes_places(call):
        kind = "strided"
    return [_passed(kind, call)]


def _passed(kind: str, call: Call) -> Work:
    """Each argument and each result once."""
    first = next((each for each in (*call.results, *_seen(call))), None)
    return Work(kind, call.read_bytes + call.written_bytes, first.dtype if first else "float32")


def size(seen: SeenTensor) -> float:
    """A tensor's bytes."""
    return float(prod(seen.shape) * WIDTHS.get(seen.dtype, 4))


WIDTHS = {
    **dict.fromkeys(("float64", "int64", "complex64"), 8),
    **dict.fromkeys(("float16", "bfloat16", "int16"), 2),
    **dict.fromkeys(("bool", "uint8", "int8"), 1),
}


def _seen(call: Call) -> list[SeenTensor]:
    return [each for each in call.args if isinstance(each, SeenTensor)]


def _changes_places(call: Call) -> bool:
    """True if a copy reads in another order than it writes."""
    sources = [each for each in _seen(call) if prod(each.shape) > 1]
    orders = {_order(each) for each in (*sources, *call.results)}
    return len(orders) > 1


def _order(seen: SeenTensor) -> tuple[int, ...]:
    kept = [axis for axis in range(len(seen.shape)) if seen.shape[axis] > 1]
    return tuple(sorted(kept, key=lambda axis: (-seen.stride[axis], axis)))


def _product(call: Call) -> list[Work]:
    """Products of two matrices, one or many; the last two tensors are the factors."""
    left, right = _seen(call)[-2:]
    *many, m, k = left.shape
    n = right.shape[-1]
    num_bytes = call.read_bytes + call.written_bytes
    if min(n, k) < _THIN:  # kernels of their own, which pass over the other matrix
        return [Work("thin", num_bytes, left.dtype)]
    return [Work("product", num_bytes, left.dtype, m, n, k, prod(many), channels=_even(n, k))]


def _even(*numbers: int) -> int:
    """The greatest power of two up to 8 that divides all."""
    return gcd(8, *map(int, numbers))


def _convolution(call: Call) -> list[Work]:
    inputs, weight, bias, _, _, _, transposed, _, groups = call.args[:9]
    (outputs,) = call.results
    works = [_convolved("forward", inputs, weight, outputs, groups, transposed)]
    if bias is not None:
        works.append(Work("stream", 2 * size(outputs), outputs.dtype))
    return works + _layout(inputs, outputs)


def _convolution_backward(call: Call) -> list[Work]:
    above, inputs, weight, _, _, _, _, transposed, _, groups, wanted = call.args[:11]
    works = []
    if wanted[0]:
        works.append(_convolved("input_gradient", inputs, weight, above, groups, transposed))
        works += _layout(inputs, above)
    if wanted[1]:
        works.append(_convolved("weight_gradient", inputs, weight, above, groups, transposed))
        works += _layout(inputs, above)
    if wanted[2]:
        works.append(Work("reduction", size(above), above.dtype))
    return works


def _convolved(
    kind: str, inputs: SeenTensor, weight: SeenTensor, outputs: SeenTensor, groups: int, transposed: bool
) -> Work:
    """A convolution as a product of matrices; each pass multiplies the same pairs of numbers."""
    if transposed:  # the same pairs, with input and output having changed places
        inputs, outputs = outputs, inputs
        kind = {"forward": "input_gradient", "input_gradient": "forward"}.get(kind, kind)
    places = outputs.shape[0] * prod(outputs.shape[2:])
    fan_out, fan_in, taps = outputs.shape[1] // groups, inputs.shape[1] // groups, prod(weight.shape[2:])
    if groups > 1:
        kind = f"{'depthwise' if fan_in == 1 else 'grouped'}_{kind}"
    m: float
    n: float
    k: float
    if kind.endswith("forward"):
        m, n, k = places, fan_out, fan_in * taps
    elif kind.endswith("input_gradient"):
        places_in = inputs.shape[0] * prod(inputs.shape[2:])
        m, n, k = places_in, fan_in, fan_out * taps * places / max(places_in, 1)
    else:
        m, n, k = fan_out, fan_in * taps, places
    num_bytes = size(inputs) + size(weight) + size(outputs)
    even = _even(inputs.shape[1], outputs.shape[1])
    strided = -1 if inputs.shape[2:] != outputs.shape[2:] else 1
    shape = weight.dtype, m, n, k, groups
    return Work(kind, num_bytes, *shape, taps=strided * taps, channels=even, alike=fan_in == fan_out)


def _layout(*images: SeenTensor) -> list[Work]:
    """Copies into channels last, which kernels on tensor cores take, of images that are not."""
    moved = [
        each for each in images if len(each.shape) > 3 and each.shape[1] > 1 and not _is_channels_last(each)
    ]
    if not moved:
        return []
    return [Work("layout", 2 * sum(map(size, moved)), moved[0].dtype, kernels=len(moved))]


def _is_channels_last(image: SeenTensor) -> bool:
    return len(image.shape) > 3 and image.stride[1] == 1 and prod(image.shape[2:]) > 1


def _norm(call: Call) -> list[Work]:
    """Forward: over the inputs for their moments, and again."""
    inputs = call.args[0]
    work = Work("norm", _reads(inputs) * size(inputs) + size(call.results[0]), inputs.dtype, kernels=2)
    return [work, *_contiguous(call, inputs)]


def _norm_backward(call: Call) -> list[Work]:
    """Over both the gradient and the inputs for sums, and again."""
    above, inputs = call.args[:2]
    passed = _reads(inputs) * (size(above) + size(inputs)) + size(inputs)
    return [Work("norm", passed, inputs.dtype, kernels=2), *_contiguous(call, above, inputs)]


def _reads(inputs: SeenTensor) -> int:
    """The times that a normalization reads its input: cuDNN keeps half precision images in registers."""
    return 1 if _is_channels_last(inputs) and inputs.dtype in HALVES else 2


def _contiguous(call: Call, *inputs: SeenTensor) -> list[Work]:
    """Copies that normalization in groups takes of images with channels last."""
    if "group" not in call.name:
        return []
    return [Work("strided", 2 * size(each), each.dtype) for each in inputs if _is_channels_last(each)]


def _rows(call: Call) -> list[Work]:
    return [_passed("rows", call)]


def _rows_backward(call: Call) -> list[Work]:
    """Of layer normalization: the input's gradient, and apart from it the sums over rows."""
    above, inputs = call.args[:2]
    return [
        Work("rows", size(above) + 2 * size(inputs), inputs.dtype),
        Work("rows", size(above) + size(inputs), inputs.dtype),
    ]


def _padded(call: Call) -> list[Work]:
    """A part's gradient is laid into zeros of the whole."""
    (whole,), part = call.results, call.args[0]
    return [Work("stream", size(whole), whole.dtype), Work("strided", 2 * size(part), part.dtype)]


def _picked(call: Call) -> list[Work]:
    """Rows of the first tensor, of which the rest is not read."""
    return [Work("gather", 2 * sum(map(size, call.results)), call.results[0].dtype)]


def _scattered(call: Call) -> list[Work]:
    """Gradients are added to rows of a tensor of zeros."""
    (whole,), above = call.results, _seen(call)[0]
    return [Work("stream", size(whole), whole.dtype), Work("gather", 3 * size(above), above.dtype)]


def _mask(call: Call) -> list[Work]:
    """Dropout's random numbers, which a GPU draws in the kernel that applies them: a byte each."""
    return [Work("stream", float(prod(_seen(call)[0].shape)), "uint8", kernels=0)]


def _scaled(call: Call) -> list[Work]:
    """A quotient in place; of dropout's mask, by the share that is kept, it is in that kernel, too."""
    divisor = call.args[1] if len(call.args) > 1 else None
    return [] if isinstance(divisor, float) and 0 < divisor < 1 else [_passed("stream", call)]


def _attention(call: Call) -> list[Work]:
    """Attention without its matrix of weights in memory: two products, and five backward."""
    backward = "backward" in call.name
    query, key, value = call.args[1:4] if backward else call.args[:3]
    *many, places, width = query.shape
    causal = 0.5 if any(each is True for each in call.args[3:]) else 1.0
    is_masked = len(_seen(call)) > (6 if backward else 3)
    moved = sum(map(size, (query, key, value, query)))
    return [
        Work(
            f"{'masked_' if is_masked else ''}attention{'_backward' if backward else ''}",
            2 * moved if backward else moved,
            query.dtype,
            places,
            key.shape[-2],
            (5 if backward else 2) * (width + value.shape[-1]) / 2 * causal,
            prod(many),
        )
    ]


def _recurrent(call: Call) -> list[Work]:
    """Products with both weights at every time step; the recurrent weight is read anew in each."""
    inputs, input_weight, recurrent_weight = call.args[:3]
    times = 2 if "backward" in call.name else 1
    steps, examples = inputs.shape[:2]
    num_bytes = call.read_bytes + call.written_bytes + times * (steps - 1) * size(recurrent_weight)
    k = times * (input_weight.shape[1] + recurrent_weight.shape[1])
    dtype = input_weight.dtype
    return [Work("recurrent", num_bytes, dtype, examples, input_weight.shape[0], k, steps, kernels=steps)]


HALVES: tuple[Number, ...] = ("float16", "bfloat16")
_THIN = 8
_COPIES = (
    "clone",
    "copy_",
    "_to_copy",
    "cat",
    "stack",
    "contiguous",
    "roll",
    "constant_pad_nd",
    "_reshape_copy",
)
_KIND_BY_NAME = {
    **dict.fromkeys(("sum", "mean", "var", "var_mean", "amax", "max", "min", "norm", "cumsum"), "reduction"),
    **dict.fromkeys(("linalg_vector_norm", "std", "logsumexp"), "reduction"),
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool2d_with_indices_backward"), "reduction"),
    **dict.fromkeys(("avg_pool2d", "avg_pool2d_backward"), "reduction"),
    **dict.fromkeys(("_adaptive_avg_pool2d", "_adaptive_avg_pool2d_backward"), "reduction"),
    **dict.fromkeys(("max_pool3d_with_indices", "max_pool3d_with_indices_backward"), "reduction"),
    **dict.fromkeys(("roll", "flip", "unfold_backward", "im2col", "col2im"), "strided"),
    **dict.fromkeys(("index_put", "index_put_", "_index_put_impl_", "index_add", "scatter_add"), "gather"),
}
_WORKS: dict[str, Callable[[Call], list[Work]]] = {
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm", "addbmm"), _product),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    **dict.fromkeys(("native_batch_norm", "native_group_norm", "_native_batch_norm_legit"), _norm),
    **dict.fromkeys(("native_batch_norm_backward", "native_group_norm_backward"), _norm_backward),
    **dict.fromkeys(("native_layer_norm", "_softmax", "_log_softmax", "_safe_softmax"), _rows),
    **dict.fromkeys(("_softmax_backward_data", "_log_softmax_backward_data"), _rows),
    **dict.fromkeys(("native_layer_norm_backward", "_fused_rms_norm_backward"), _rows_backward),
    **dict.fromkeys(("slice_backward", "select_backward", "slice_scatter", "select_scatter"), _padded),
    **dict.fromkeys(("embedding", "index", "index_select", "gather"), _picked),
    **dict.fromkeys(("embedding_dense_backward", "index_select_backward", "gather_backward"), _scattered),
    "bernoulli_": _mask,
    "div_": _scaled,
    **dict.fromkeys(
        (
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention_for_cpu_backward",
        ),
        _attention,
    ),
    **dict.fromkeys(("mkldnn_rnn_layer", "mkldnn_rnn_layer_backward"), _recurrent),
}
