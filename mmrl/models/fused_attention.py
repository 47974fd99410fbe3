"""Differentiable attention that keeps its output and one sum a query, not its weights (arXiv 2205.14135).

On a CPU the forward pass is torch's fused one; the backward pass is that of `kernels` where it can be, which takes half
to nine tenths of the time of torch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from mmrl.models import kernels


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    is_causal: bool,
    scaling: float | None,
    dropout: float = 0.0,
) -> Tensor:
    """Attention of query (rows, heads, T, dim) over key and value (rows, kv_heads, S, dim), each query head with the
    key head of its group: (rows, heads, T, dim).

    mask: (rows or 1, 1, T, S), added to the scores, in which query t sees no key behind t + S − T; or None.
    is_causal: the same without a mask, for S = T.
    """
    if torch.is_grad_enabled() and not dropout and kernels.can_attend(query, key, value) and query.numel():
        query, key, value = (each if each.stride(-1) == 1 else each.contiguous() for each in (query, key, value))
        scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
        fused: Tensor = _Attention.apply(query, key, value, mask, is_causal, scaling, None, None)
        return fused
    groups = query.shape[1] // key.shape[1]
    return scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        dropout_p=dropout,
        is_causal=is_causal,
        scale=scaling,
        enable_gqa=groups > 1,
    )


def attention_of_known(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float,
    output: Tensor,
    log_sums: Tensor,
) -> Tensor:
    """The attention of query (rows, heads, T, dim) over key and value (rows, kv_heads, keys, dim) that came out before
    as `output` (rows, T, heads · dim), which is returned, now with its gradients.

    mask: (rows, 1, T, keys), added to the scores. log_sums: (rows, T, heads), the logarithm of the sum over keys of
    exp(score), from which the backward pass has each weight again (arXiv 2205.14135, appendix B.2); +inf where a query
    is padding.
    """
    if not torch.is_grad_enabled():
        return output
    output, log_sums = output.unflatten(2, (query.shape[1], -1)).transpose(1, 2), log_sums.transpose(1, 2)
    known: Tensor = _Attention.apply(query, key, value, mask, False, scaling, output, log_sums)
    return known.transpose(1, 2).flatten(2)


def attend_within(packed: Tensor, lengths: list[int], scaling: float) -> Tensor:
    """Attention of each piece of a sequence within itself: (length, 3, heads, dim), queries, keys and values, to
    (length, heads · dim).

    lengths: of the pieces, one after another. Pieces of one length that follow each other are one batch.
    """
    runs = _runs(lengths)
    if not runs:
        return packed[:, 0].flatten(1)
    packed = packed.contiguous()
    fewest = min(count for _, count in runs) * packed.shape[2]
    if torch.is_grad_enabled() and kernels.can_attend(packed) and _fills_threads(fewest):
        within: Tensor = _AttentionWithin.apply(packed, runs, scaling)
        return within
    outputs = []
    for batch in _batches(packed, runs):
        output = scaled_dot_product_attention(*(each.transpose(1, 2) for each in batch.unbind(2)), scale=scaling)
        outputs.append(output.transpose(1, 2).flatten(2).flatten(0, 1))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


class _Attention(torch.autograd.Function):
    """output (rows, heads, T, dim) and log_sums (rows, heads, T): where they are known, forward is nothing."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        is_causal: bool,
        scaling: float,
        output: Tensor | None,
        log_sums: Tensor | None,
    ) -> Tensor:
        if output is None or log_sums is None:
            output, log_sums = _fused(query, key, value, mask=mask, is_causal=is_causal, scaling=scaling)
        ctx.save_for_backward(query, key, value, mask, output, log_sums)
        ctx.is_causal, ctx.scaling = is_causal, scaling
        return output.view_as(output)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask, output, log_sums = ctx.saved_tensors
        none = (None,) * 5
        is_ours = kernels.can_attend(query, key, value) and kernels.can_use(grad, output, log_sums)
        if not is_ours or not _fills_threads(query.shape[0] * key.shape[1]):
            gradients = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
                grad, query, key, value, output, log_sums, 0.0, ctx.is_causal, attn_mask=mask, scale=ctx.scaling
            )
            return *gradients, *none
        gradients = kernels.attention_backward(
            grad.transpose(1, 2),
            query.transpose(1, 2),
            key.transpose(1, 2),
            value.transpose(1, 2),
            output.transpose(1, 2),
            log_sums.transpose(1, 2),
            mask=mask,
            is_causal=True,
            scaling=ctx.scaling,
        )
        return *(each.transpose(1, 2) for each in gradients), *none


class _AttentionWithin(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packed: Tensor, runs: list[tuple[int, int]], scaling: float) -> Tensor:
        results = []
        for batch in _batches(packed, runs):
            parts = (each.transpose(1, 2) for each in batch.unbind(2))
            results.append(_fused(*parts, mask=None, is_causal=False, scaling=scaling))
        ctx.save_for_backward(packed, *(each.transpose(1, 2) for result in results for each in result))
        ctx.runs, ctx.scaling = runs, scaling
        outputs = [output.transpose(1, 2).flatten(2).flatten(0, 1) for output, _ in results]
        return outputs[0].view_as(outputs[0]) if len(outputs) == 1 else torch.cat(outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        packed, *results = ctx.saved_tensors
        grad_packed = torch.empty_like(packed)
        of_output = grad.unflatten(1, packed.shape[2:])
        batches = (_batches(each, ctx.runs) for each in (packed, grad_packed, of_output))
        for batch, grad_batch, grad_output, output, log_sums in zip(*batches, results[::2], results[1::2], strict=True):
            query, key, value = batch.unbind(2)
            kernels.attention_backward(
                grad_output,
                query,
                key,
                value,
                output,
                log_sums,
                mask=None,
                is_causal=False,
                scaling=ctx.scaling,
                into=grad_batch.unbind(2),
            )
        return grad_packed, None, None


def _fills_threads(num_tasks: int) -> bool:
    """The backward kernel shares its work by rows and key heads, torch's also by query heads."""
    return num_tasks >= torch.get_num_threads()


def _fused(
    query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None, is_causal: bool, scaling: float
) -> tuple[Tensor, Tensor]:
    """(rows, heads, T, dim) and, (rows, heads, T), the logarithm of each query's sum of exp(score)."""
    results: tuple[Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, attn_mask=mask, scale=scaling
    )
    return results


def _batches(packed: Tensor, runs: list[tuple[int, int]]) -> list[Tensor]:
    """A sequence (length, …) as (count, length, …) of each run."""
    parts = packed.split([length * count for length, count in runs])
    return [part.unflatten(0, (count, length)) for part, (length, count) in zip(parts, runs, strict=True)]


def _runs(lengths: list[int]) -> list[tuple[int, int]]:
    """Each length with how often it follows itself."""
    runs: list[tuple[int, int]] = []
    for length in lengths:
        if runs and runs[-1][0] == length:
            runs[-1] = (length, runs[-1][1] + 1)
        elif length:
            runs.append((length, 1))
    return runs
