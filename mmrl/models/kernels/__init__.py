"""What torch does on a CPU in several passes over memory, each done in one: float32, without gradients of their own.

`fast/functions.py`, `fused_attention.py` and `group_cache.py` take them where a `can_…` says so, and compute the same
with torch's operations elsewhere. Shapes as in the comments of the C files.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from mmrl.models.kernels.compiling import compiled

MOST_DIM = 256
"""Largest head that attention takes; the same in the C files."""
SEVERAL_THREADS_FROM = 8192
"""Numbers from which on waking other threads is worth it."""

_POINTER, _LENGTH, _NUMBER, _THREADS = ctypes.c_void_p, ctypes.c_int64, ctypes.c_float, ctypes.c_int
_Layout = ctypes.c_int64 * 27
_SIGNATURES: dict[str, list[Any]] = {
    "mmrl_rms_norm": [*[_POINTER] * 2, _NUMBER, *[_LENGTH] * 2, *[_POINTER] * 2, _THREADS],
    "mmrl_rms_norm_backward": [*[_POINTER] * 4, *[_LENGTH] * 2, *[_POINTER] * 2, _THREADS],
    "mmrl_silu_mul": [_POINTER, _LENGTH, _POINTER, *[_LENGTH] * 3, _POINTER, _THREADS],
    "mmrl_silu_mul_backward": [_POINTER, _LENGTH, _POINTER, *[_LENGTH] * 3, *[_POINTER] * 3, _THREADS],
    "mmrl_rotate": [
        *(_POINTER, *[_LENGTH] * 3, _POINTER, _POINTER, *[_LENGTH] * 5, _NUMBER, _POINTER, *[_LENGTH] * 3, _THREADS)
    ],
    "mmrl_attend_group": [*[_POINTER] * 7, *[_LENGTH] * 8, _NUMBER, *[_POINTER] * 2, _THREADS],
    "mmrl_attention_backward": [
        *(*[_POINTER] * 7, _LENGTH, _POINTER, *[_LENGTH] * 7, _NUMBER, *[_POINTER] * 3, _THREADS)
    ],
}


def can_use(*tensors: Tensor) -> bool:
    """Plain float32 tensors on the CPU, on a machine on which the kernels compile."""
    return (
        all(
            type(each) in (Tensor, Parameter) and each.dtype is torch.float32 and each.device.type == "cpu"
            for each in tensors
        )
        and _kernels() is not None
    )


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The norm of x (…, size), and what each row was multiplied by, (…, 1)."""
    assert weight.shape == x.shape[-1:], f"a weight of {tuple(weight.shape)} for features of {tuple(x.shape)}"
    x, weight = x.contiguous(), weight.contiguous()
    result, scale = torch.empty_like(x), x.new_empty(*x.shape[:-1], 1)
    _call(
        "mmrl_rms_norm",
        *(_at(x), _at(weight), eps, *_rows_and_size(x), _at(result), _at(scale)),
        threads=_threads(x),
    )
    return result, scale


def rms_norm_backward(
    grad: Tensor, x: Tensor, weight: Tensor, scale: Tensor, *, needs_x: bool, needs_weight: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of x (…, size) and weight."""
    x, grad, weight, scale = (each.contiguous() for each in (x, grad, weight, scale))
    threads = _threads(x)
    grad_x = torch.empty_like(x) if needs_x else None
    parts = x.new_zeros(threads, x.shape[-1]) if needs_weight else None
    _call(
        "mmrl_rms_norm_backward",
        *(_at(grad), _at(x), _at(weight), _at(scale), *_rows_and_size(x), _at(grad_x), _at(parts)),
        threads=threads,
    )
    return grad_x, None if parts is None else parts.sum(0)


def silu_mul(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up, of one shape."""
    gate, up = _in_pieces(gate), _in_pieces(up)
    result = gate.new_empty(gate.shape)
    _call("mmrl_silu_mul", *_gate_and_up(gate, up), _at(result), threads=_threads(result))
    return result


def silu_mul_backward(
    grad: Tensor, gate: Tensor, up: Tensor, *, needs_product: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of gate, which takes the place of `grad`, and up; and silu(gate) · up again."""
    gate, up = _in_pieces(gate), _in_pieces(up)
    assert grad.is_contiguous(), "is written over"
    grad_up = gate.new_empty(gate.shape)
    product = gate.new_empty(gate.shape) if needs_product else None
    _call(
        "mmrl_silu_mul_backward",
        *(*_gate_and_up(gate, up), _at(grad), _at(grad_up), _at(product)),
        threads=_threads(grad),
    )
    return grad, grad_up, product


def can_rotate(x: Tensor, cos: Tensor, sin: Tensor) -> bool:
    """x (outer, inner, heads, dim) and cos, sin (outer or 1, inner, 1, dim) as `rotate` takes them."""
    return (
        x.dim() == cos.dim() == 4
        and can_use(x, cos, sin)
        and cos.shape == sin.shape == (cos.shape[0], x.shape[1], 1, x.shape[3])
        and cos.shape[0] in (1, x.shape[0])
        and x.stride(3) == 1
        and x.shape[3] % 2 == 0
    )


def rotate(x: Tensor, cos: Tensor, sin: Tensor, direction: float, out: Tensor | None = None) -> Tensor:
    """x · cos + direction · rotate_half(x) · sin, contiguous or in `out`, which may be x."""
    outer, inner, heads, dim = x.shape
    cos, sin = cos.contiguous(), sin.contiguous()
    out = x.new_empty(x.shape) if out is None else out
    _call(
        "mmrl_rotate",
        *(_at(x), *x.stride()[:3], _at(cos), _at(sin), 0 if cos.shape[0] == 1 else inner * dim),
        *(outer, inner, heads, dim, direction, _at(out), *out.stride()[:3]),
        threads=_threads(x),
    )
    return out


def can_attend(*tensors: Tensor) -> bool:
    """Whether `attend_group` and `attention_backward` take these queries, keys and values, whose last size is that of a
    head."""
    dim = tensors[0].shape[-1]
    return dim % 16 == 0 and dim <= MOST_DIM and all(each.shape[-1] == dim for each in tensors) and can_use(*tensors)


def as_columns(keys: Tensor) -> Tensor:
    """(P, K, L, dim) as `attend_group` takes prompts' keys: (P, K, dim, L rounded up to a multiple of 16)."""
    prompts, heads, length, dim = keys.shape
    columns = keys.new_zeros(prompts, heads, dim, length + -length % 16)
    columns[..., :length] = keys.transpose(2, 3)
    return columns


def attend_group(
    query: Tensor,
    prompt_columns: Tensor,
    prompt_values: Tensor,
    mask: Tensor | None,
    prompt_of_row: Tensor,
    own_keys: Tensor,
    own_values: Tensor,
    num_own: int,
    scaling: float,
    *,
    with_log_sums: bool,
) -> tuple[Tensor, Tensor | None]:
    """query (B, heads, dim) over what each row has seen: (B, heads, dim), and (B, heads) the logarithms of the sums.

    prompt_columns: of `as_columns`. prompt_values: (P, K, L, dim). mask: (P · K, 1, L) or None. prompt_of_row: (B,)
    int64. own_keys, own_values: (B, K, room, dim), the first `num_own` of each are the row's.
    """
    query, mask = query.contiguous(), None if mask is None else mask.contiguous()
    prompt_values, own_keys, own_values = (each.contiguous() for each in (prompt_values, own_keys, own_values))
    prompt_of_row = prompt_of_row.to(torch.int64).contiguous()
    rows, heads, dim = query.shape
    key_heads = own_keys.shape[1]
    output = query.new_empty(rows, heads, dim)
    log_sums = query.new_empty(rows, heads) if with_log_sums else None
    _call(
        "mmrl_attend_group",
        *(_at(query), _at(prompt_columns), _at(prompt_values), _at(mask), _at(prompt_of_row)),
        *(_at(own_keys), _at(own_values), rows, key_heads, heads // key_heads, dim, prompt_values.shape[2]),
        *(prompt_columns.shape[3], own_keys.shape[2], num_own, scaling, _at(output), _at(log_sums)),
        threads=_threads(query),
    )
    return output, log_sums


def attention_backward(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    output: Tensor,
    log_sums: Tensor,
    *,
    mask: Tensor | None,
    is_causal: bool,
    scaling: float,
    into: tuple[Tensor, Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query (rows, T, heads, dim), key and value (rows, S, kv_heads, dim), given `grad`, that of output.

    output: as query. log_sums: (rows, T, heads), +inf where a query is padding. mask: (rows or 1, 1, T, S), added to
    the scores, or None. is_causal: query t sees no key behind t + S − T, whatever the mask says. into: what the
    gradients are written to; without it they are laid out as what they are of.
    """
    rows, length, heads, dim = query.shape
    num_keys, key_heads = key.shape[1:3]
    query, key, value, output, grad = (
        each if each.stride(3) == 1 else each.contiguous() for each in (query, key, value, output, grad)
    )
    mask = None if mask is None else mask.expand(-1, 1, length, num_keys).contiguous()
    gradients = into or (torch.empty_like(query), torch.empty_like(key), torch.empty_like(value))
    strides = [
        stride for each in (query, key, value, output, log_sums, grad, *gradients) for stride in each.stride()[:3]
    ]
    _call(
        "mmrl_attention_backward",
        *(_at(grad), _at(query), _at(key), _at(value), _at(output), _at(log_sums), _at(mask)),
        *(0 if mask is None or len(mask) == 1 else mask.stride(0), _Layout(*strides)),
        *(rows, length, heads, num_keys, key_heads, dim, num_keys - length if is_causal else num_keys, scaling),
        *(_at(each) for each in gradients),
        threads=_threads(key),
    )
    return gradients


@functools.cache
def _kernels() -> dict[str, Any] | None:
    library = compiled().library
    if library is None:
        return None
    kernels = {name: getattr(library, name) for name in _SIGNATURES}
    for name, kernel in kernels.items():
        kernel.argtypes, kernel.restype = _SIGNATURES[name], None
    return kernels


def _call(name: str, *arguments: Any, threads: int) -> None:
    kernels = _kernels()
    assert kernels is not None, "see can_use"
    kernels[name](*arguments, threads)


def _at(tensor: Tensor | None) -> int | None:
    if tensor is None:
        return None
    address = tensor.data_ptr()
    if not address and tensor.numel():
        raise RuntimeError(f"the memory of a tensor {tuple(tensor.shape)} was freed before it was needed again")
    return address


def _threads(x: Tensor) -> int:
    return torch.get_num_threads() if x.numel() >= SEVERAL_THREADS_FROM else 1


def _rows_and_size(x: Tensor) -> tuple[int, int]:
    return x.numel() // max(x.shape[-1], 1), x.shape[-1]


def _in_pieces(x: Tensor) -> Tensor:
    """x, or a copy where it is not pieces along its first axis, each contiguous."""
    return x if x.is_contiguous() or (x.dim() > 1 and len(x) and x[0].is_contiguous()) else x.contiguous()


def _gate_and_up(gate: Tensor, up: Tensor) -> tuple[int | None, ...]:
    """Both as `outer` pieces of `inner` numbers: pointer and stride of each, outer, inner."""
    assert gate.shape == up.shape, f"a gate of {tuple(gate.shape)} for {tuple(up.shape)}"
    outer = len(gate) if gate.dim() > 1 else 1
    strides = [each.stride(0) if each.dim() > 1 else 0 for each in (gate, up)]
    return _at(gate), strides[0], _at(up), strides[1], outer, gate.numel() // max(outer, 1)
