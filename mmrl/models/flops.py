"""Floating-point operations of a batch, for model FLOPs utilisation (MFU). Vision counts like everything else.

Counted are the matrix products, two operations for each multiplication and addition: linear maps, the patch embedding,
attention scores and their values. Attention counts the whole rectangle of queries and keys, as torch's own counter
does, also where causality leaves half of it out. Padding counts nothing: it is no work that was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from torch import nn

from mmrl.batch import GroupBatch, PreparedPrompt
from mmrl.models.policy_model import ForwardPath, PolicyModel


@dataclass(frozen=True)
class Flops:
    """Of one pass: the tower's patch embedding and blocks, its projector, and the language model with its head."""

    patches: float = 0.0
    tower: float = 0.0
    projector: float = 0.0
    language: float = 0.0

    @property
    def vision(self) -> float:
        return self.patches + self.tower + self.projector

    @property
    def total(self) -> float:
        return self.vision + self.language


def forward_flops(
    policy: PolicyModel,
    prompts: Sequence[PreparedPrompt],
    prompt_of_row: Sequence[int],
    response_lengths: Sequence[int],
    *,
    path: ForwardPath = "prefix",
    head_size: int | None = None,
) -> Flops:
    """Of the forward pass of a group batch, or of sampling it token by token, which does the same products.

    path: `prefix` forwards every prompt and every different image once, `plain` with each response, `packed` every
    prompt with each response and every different image once. head_size: weights of the head, where it is another than
    the model's own over the vocabulary.
    """
    is_plain = path != "prefix"
    if is_plain:
        prompts, prompt_of_row = [prompts[index] for index in prompt_of_row], range(len(prompt_of_row))
    vision = _vision_flops(policy, prompts, share_images=path != "plain")
    head = policy.family.head(policy.hf).weight.numel() if head_size is None else head_size
    return replace(vision, language=_language_flops(policy, prompts, prompt_of_row, response_lengths, is_plain, head))


def step_flops(
    policy: PolicyModel,
    batch: GroupBatch,
    *,
    path: ForwardPath = "prefix",
    forwarded_before: Sequence[PreparedPrompt] = (),
    rows_forwarded_before: Sequence[int] = (),
    head_size: int | None = None,
) -> float:
    """Of forward and backward pass of a batch, with what is frozen left out of the backward pass.

    Backward takes the forward's twice, once for inputs and once for weights (the patch embedding's inputs are pixels
    and take none); a frozen part that gradients only pass through takes it once, one that none reaches not at all.
    A frozen tower counts nothing here: its features were computed when the responses were sampled, and kept.
    forwarded_before: prompts whose forward pass was kept from sampling, which does not count here again.
    rows_forwarded_before: of the batch, of which what linear maps and attention made was kept from sampling;
    that does not either.
    """
    forward = forward_flops(
        policy,
        batch.prompts,
        batch.prompt_of_row.tolist(),
        batch.response_lengths.tolist(),
        path=path,
        head_size=head_size,
    )
    parts = policy.family.parts(policy.hf)
    trains = {part: any(_is_trained(module) for module in modules) for part, modules in parts.items()}
    before = forward_flops(policy, forwarded_before, (), ())
    tower = 2.0 if trains.get("vision") else 0.0
    projector = 2.0 if trains.get("projector") else tower / 2
    language = 2.0 if trains["language"] else float(bool(tower or projector))
    if not tower:
        forward, before = (
            replace(part, patches=0.0, tower=0.0, projector=part.projector if projector else 0.0)
            for part in (forward, before)
        )
    return (
        forward.patches * (1 + tower / 2)
        + forward.tower * (1 + tower)
        + forward.projector * (1 + projector)
        + forward.language * (1 + language)
        - before.total
        - _layers_flops(policy, batch, rows_forwarded_before)
    )


def _layers_flops(policy: PolicyModel, batch: GroupBatch, rows: Iterable[int]) -> float:
    """Forward passes of these rows of `batch` through the layers behind their prompts, on the prefix path."""
    layers = policy.family.language_model(policy.hf).layers
    prompts, lengths = batch.prompt_of_row.tolist(), batch.response_lengths.tolist()
    num_tokens = pairs = 0
    for row in rows:
        num_inputs = max(lengths[row] - 1, 0)
        num_tokens += num_inputs
        pairs += num_inputs * (len(batch.prompts[prompts[row]]) + num_inputs)
    return 2.0 * num_tokens * _linear_size(layers) + 4.0 * len(layers) * _attention_width(policy) * pairs


def _language_flops(
    policy: PolicyModel,
    prompts: Sequence[PreparedPrompt],
    prompt_of_row: Iterable[int],
    lengths: Sequence[int],
    is_plain: bool,
    head_size: int,
) -> float:
    """Each prompt's tokens once; of a response all tokens but the last are inputs, and all are predicted.

    On the prefix path the last layer makes only keys and values of a prompt's tokens before its last one.
    """
    layers = policy.family.language_model(policy.hf).layers
    width = _attention_width(policy)
    num_tokens = sum(len(prompt) for prompt in prompts)
    pairs = sum(len(prompt) ** 2 for prompt in prompts)
    num_predicted = len(prompts)
    left_out = 0.0
    if not is_plain:
        num_left_out = num_tokens - len(prompts)
        attention = layers[-1].self_attn
        keys_and_values = _linear_size([attention.k_proj, attention.v_proj])
        left_out = 2.0 * num_left_out * (_linear_size([layers[-1]]) - keys_and_values)
        left_out += 4.0 * width * (pairs - num_tokens)
    for prompt, length in zip(prompt_of_row, lengths, strict=True):
        num_inputs = max(length - 1, 0)
        num_tokens += num_inputs
        num_predicted += num_inputs
        num_keys = len(prompts[prompt]) + num_inputs
        pairs += num_inputs * num_keys + (len(prompts[prompt]) * num_inputs if is_plain else 0)
    linear = 2.0 * (num_tokens * _linear_size(layers) + num_predicted * head_size)
    return linear + 4.0 * len(layers) * width * pairs - left_out


def _attention_width(policy: PolicyModel) -> int:
    """Features of all query heads of a layer together."""
    config = policy.hf.config.get_text_config()
    heads = config.num_attention_heads
    return int(heads * (getattr(config, "head_dim", None) or config.hidden_size // heads))


def _vision_flops(policy: PolicyModel, prompts: Sequence[PreparedPrompt], *, share_images: bool) -> Flops:
    images = [image for prompt in prompts for image in prompt.images]
    if share_images:
        images = list({(image.sha256, image.grid_thw): image for image in images}.values())
    if not images:
        return Flops()
    hf = policy.hf
    num_patches = sum(math.prod(image.grid_thw) for image in images)
    num_merged = sum(image.num_tokens for image in images)
    pairs = sum(policy.family.vision_attention_pairs(hf, image.grid_thw) for image in images)
    tower = hf.model.visual
    attention = tower.blocks[0].attn
    return Flops(
        patches=2.0 * num_patches * _linear_size([tower.patch_embed]),
        tower=2.0 * num_patches * _linear_size(tower.blocks) + 4.0 * attention.num_heads * attention.head_dim * pairs,
        projector=2.0 * num_merged * _linear_size(policy.family.projectors(hf)),
    )


def _linear_size(modules: Iterable[nn.Module]) -> int:
    """Weights of the linear maps in `modules`; a patch embedding is one."""
    kinds = (nn.Linear, nn.Conv3d)
    return sum(part.weight.numel() for module in modules for part in module.modules() if isinstance(part, kinds))


def _is_trained(module: nn.Module) -> bool:
    return any(weight.requires_grad for weight in module.parameters())
