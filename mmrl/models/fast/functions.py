"""Differentiable functions with fewer passes over memory than the same written in single operations.

All are exact: they differ from the plain form by rounding. x stands for (…, features), N for its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from mmrl.models import kernels

_ADDS_IN_PLACE: ContextVar[bool] = ContextVar("adds_in_place", default=False)


@contextmanager
def gradients_added_in_place(enabled: bool) -> Iterator[None]:
    """Within the block products that make the gradient of a weight are added to its `grad` as they are computed, once
    it has one, which spares a pass over it and a tensor of its size.

    Only for `backward()`: `torch.autograd.grad` would not be given what was added. Weights with hooks on their gradient
    are left to autograd.
    """
    token = _ADDS_IN_PLACE.set(enabled)
    try:
        yield
    finally:
        _ADDS_IN_PLACE.reset(token)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None, known: Tensor | None = None) -> Tensor:
    """`torch.nn.functional.linear` through oneDNN, whose float32 products are the faster ones on many processors.

    With the shapes of training on two cores: 120 GFLOP/s where the default, MKL, has 97.
    known: the result, where it was computed before.
    """
    if not torch.is_grad_enabled():
        return _product(x, weight, bias) if known is None else known
    return _Linear.apply(x, weight, bias, known)


def can_use_onednn(x: Tensor, weight: Tensor) -> bool:
    """Float32 on the CPU outside autocast, the case in which the default product is not oneDNN's anyway."""
    return (
        x.device.type == "cpu"
        and x.dtype == weight.dtype == torch.float32
        and x.numel() > 0
        and type(weight.data) is Tensor
        and torch.backends.mkldnn.is_available()
        and not torch.is_autocast_enabled("cpu")
    )


def gated(x: Tensor, gate: tuple[Tensor, Tensor | None], up: tuple[Tensor, Tensor | None]) -> Tensor:
    """silu(gate(x)) · up(x) without gradients, silu and product done while oneDNN writes the results.

    gate, up: weight and bias of each.
    """
    active = torch.ops.mkldnn._linear_pointwise(x, *gate, "swish", [], "")
    product: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, active, *up, "mul")
    return product


def gated_linear(gate: Tensor, up: Tensor, weight: Tensor, bias: Tensor | None, known: Tensor | None = None) -> Tensor:
    """linear(silu(gate) · up) (SwiGLU, arXiv 2002.05202), of which only gate and up are kept for the backward pass.

    known: the result, where it was computed before.
    """
    return _GatedLinear.apply(gate, up, weight, bias, known)


def gated_product(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) · up."""
    if kernels.can_use(gate, up):
        return _GatedProduct.apply(gate, up) if torch.is_grad_enabled() else kernels.silu_mul(gate, up)
    return functional.silu(gate) * up if torch.is_grad_enabled() else functional.silu(gate).mul_(up)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """weight · x / sqrt(mean(x²) + eps) over the last axis (arXiv 1910.07467)."""
    if not torch.is_grad_enabled():
        if x.device.type != "cpu" and x.dtype == weight.dtype:
            return functional.rms_norm(x, (x.shape[-1],), weight, eps)
        return _normed(x, weight, eps)[0]
    return _RmsNorm.apply(x, weight, eps)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x · cos + rotate_half(x) · sin (RoPE, arXiv 2104.09864); cos and sin broadcast to x, their halves are equal."""
    if not torch.is_grad_enabled():
        return _turn(x, cos, sin, 1.0)
    return _Rotate.apply(x, cos, sin)


def rotate_packed(packed: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """`rotate` for the queries and keys of (length, 3, heads, dim), queries, keys and values; in place where it can be,
    which spares memory of their size. cos, sin: (length, dim)."""
    cos, sin = cos[:, None, None], sin[:, None, None]
    if packed.dtype == cos.dtype:
        return _RotatePacked.apply(packed, cos, sin)
    query_key, value = packed.split([2, 1], dim=1)
    return torch.cat([rotate(query_key, cos, sin), value], dim=1)


def _product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return result


def _weight_gradient(weight: Tensor, rows: Tensor, x: Tensor) -> Tensor | None:
    """(outputs, inputs) of a linear map, from rows (N, outputs) of its gradient; None where it was added to
    `weight.grad`. MKL is faster where the product's first side is the longer one, by a tenth to a sixth with the shapes
    of training."""
    x = x.reshape(-1, x.shape[-1])
    is_wide = rows.shape[1] >= x.shape[1]
    if _takes_in_place(weight):
        assert weight.grad is not None
        weight.grad.addmm_(rows.t(), x) if is_wide else weight.grad.t().addmm_(x.t(), rows)
        return None
    return rows.t() @ x if is_wide else (x.t() @ rows).t()


def _takes_in_place(weight: Any) -> bool:
    if not _ADDS_IN_PLACE.get() or not weight.is_leaf:
        return False
    total = weight.grad
    return (
        type(total) is Tensor
        and total.dtype == weight.dtype
        and total.is_contiguous()
        and not total.requires_grad
        and not weight._backward_hooks
        and not weight._post_accumulate_grad_hooks
    )


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, known: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, weight)
        return _product(x, weight, bias) if known is None else known

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, weight = ctx.saved_tensors
        rows = grad.reshape(-1, grad.shape[-1])
        needs_x, needs_weight, needs_bias, _ = ctx.needs_input_grad
        return (
            _product(rows, weight.t(), None).view(x.shape) if needs_x else None,
            _weight_gradient(weight, rows, x) if needs_weight else None,
            rows.sum(0) if needs_bias else None,
            None,
        )


class _GatedLinear(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, gate: Tensor, up: Tensor, weight: Tensor, bias: Tensor | None, known: Tensor | None
    ) -> Tensor:
        ctx.save_for_backward(gate, up, weight)
        return _product(gated_product(gate, up), weight, bias) if known is None else known

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, None]:
        """Computing silu again takes a hundredth of the products' time and spares two of the widest tensors."""
        gate, up, weight = ctx.saved_tensors
        rows = grad.reshape(-1, grad.shape[-1])
        needs_weight, needs_bias = ctx.needs_input_grad[2:4]
        grad_hidden = _product(rows, weight.t(), None).view(up.shape)
        grad_gate, grad_up, product = _gated_product_backward(grad_hidden, gate, up, needs_product=needs_weight)
        grad_weight = _weight_gradient(weight, rows, product) if product is not None else None
        return grad_gate, grad_up, grad_weight, rows.sum(0) if needs_bias else None, None


class _GatedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Tensor:
        ctx.save_for_backward(gate, up)
        return gated_product(gate, up)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        gate, up = ctx.saved_tensors
        owned = grad.clone(memory_format=torch.contiguous_format)
        return _gated_product_backward(owned, gate, up, needs_product=False)[:2]


def _gated_product_backward(
    grad: Tensor, gate: Tensor, up: Tensor, *, needs_product: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Gradients of gate and up, and `gated_product` again; grad is written over."""
    if kernels.can_use(grad, gate, up):
        return kernels.silu_mul_backward(grad, gate, up, needs_product=needs_product)
    active = functional.silu(gate)
    product = active * up if needs_product else None
    grad_up = active.mul_(grad)
    return torch.ops.aten.silu_backward(grad.mul_(up), gate), grad_up, product


def _normed(x: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The result and (…, 1) what x is scaled by. Two passes over x fewer than torch's own norm makes on a CPU."""
    if kernels.can_use(x, weight):
        return kernels.rms_norm(x, weight, eps)
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=_exact(x))
    scale = length.square_().div_(x.shape[-1]).add_(eps).rsqrt_()
    return (x * scale).mul_(weight).to(x.dtype), scale


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        result, scale = _normed(x, weight, eps)
        ctx.save_for_backward(x, weight, scale)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        """dx = s·(w·g) − x·s³/d·Σ(w·g·x), dw = Σ_N g·x·s, with s the scale and d the features."""
        x, weight, scale = ctx.saved_tensors
        needs_x, needs_weight, _ = ctx.needs_input_grad
        if kernels.can_use(grad, x, weight, scale):
            gradients = kernels.rms_norm_backward(grad, x, weight, scale, needs_x=needs_x, needs_weight=needs_weight)
            return *gradients, None
        size = x.shape[-1]
        products = (grad * x).to(_exact(x)).reshape(-1, size)
        flat_scale = scale.reshape(-1, 1)
        grad_x = grad_weight = None
        if needs_weight:
            grad_weight = (flat_scale.t() @ products)[0].to(weight.dtype)
        if needs_x:
            along = (products @ weight.to(products.dtype))[:, None] * flat_scale.pow(3).div_(-size)
            grad_x = (grad * weight).mul_(scale).addcmul_(x, along.view(scale.shape)).to(x.dtype)
        return grad_x, grad_weight, None


def _exact(x: Tensor) -> torch.dtype:
    """The type that sums over x are computed in."""
    return torch.float64 if x.dtype == torch.float64 else torch.float32


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _turn(x, cos, sin, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        """A rotation's transpose is the rotation back."""
        cos, sin = ctx.saved_tensors
        return _turn(grad, cos, sin, -1.0), None, None


class _RotatePacked(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.mark_dirty(packed)
        _turn_in_place(packed[:, :2], cos, sin, 1.0)
        return packed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        grad = grad.clone(memory_format=torch.contiguous_format)
        _turn_in_place(grad[:, :2], cos, sin, -1.0)
        return grad, None, None


def _turn_in_place(x: Tensor, cos: Tensor, sin: Tensor, direction: float) -> None:
    flat = x.flatten(1, 2)[None]
    is_view = flat.data_ptr() == x.data_ptr()
    if is_view and kernels.can_rotate(flat, cos.flatten(1, 2)[None], sin.flatten(1, 2)[None]):
        kernels.rotate(flat, cos.flatten(1, 2)[None], sin.flatten(1, 2)[None], direction, out=flat)
        return
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    before = first.clone()
    first.mul_(cos[..., :half]).addcmul_(second, sin[..., :half], value=-direction)
    second.mul_(cos[..., half:]).addcmul_(before, sin[..., half:], value=direction)


def _turn(x: Tensor, cos: Tensor, sin: Tensor, direction: float) -> Tensor:
    if kernels.can_rotate(x, cos, sin):
        return kernels.rotate(x, cos, sin, direction)
    half, dtype = x.shape[-1] // 2, x.dtype
    x = x.to(cos.dtype)
    turned = x * cos
    turned[..., :half].addcmul_(x[..., half:], sin[..., :half], value=-direction)
    turned[..., half:].addcmul_(x[..., :half], sin[..., half:], value=direction)
    return turned.to(dtype)
