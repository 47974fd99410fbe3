"""Samples, responses and batches for the tests of models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from mmrl.batch import GroupBatch, build_group_batch
from mmrl.types import ImagePart, ImageRef, Message, Rollout, Sample, TextPart

VISION_FAMILIES = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
FAMILIES = (*VISION_FAMILIES, "qwen2")


def user(*parts: str | ImageRef) -> Message:
    return Message("user", tuple(TextPart(part) if isinstance(part, str) else ImagePart(part) for part in parts))


def turn(role: Any, text: str) -> Message:
    return Message(role, (TextPart(text),))


def sample(*messages: Message) -> Sample:
    return Sample("sample", messages)


def response(token_ids: Sequence[int], mask: Sequence[int] | None = None) -> Rollout:
    ids = tuple(token_ids)
    sampled = tuple(mask) if mask is not None else (1,) * len(ids)
    return Rollout("sample", 0, ids, sampled, (0.0,) * len(ids), "stop", "", 0, 0)


def mixed_samples(pictures: Sequence[ImageRef], *, sees_images: bool = True) -> list[Sample]:
    """Unequal prompts: text only; one image; two images; the second of those again beside text."""
    texts = [sample(user("What is 12 + 34?")), sample(turn("system", "Be brief."), user("Look at it."))]
    if not sees_images:
        return [*texts, sample(user("What colour is the square? Let me think step by step."))]
    small, medium, large = pictures
    return [
        texts[0],
        sample(user(small, "Which digit is shown in the image?")),
        sample(turn("system", "Be brief."), user(large, "Compare it with ", medium, " and say more.")),
        sample(user("Again: ", medium)),
    ]


def mixed_batch(
    policy: Any, pictures: Sequence[ImageRef], *, with_vision_id: bool = False, limit: int = 9
) -> GroupBatch:
    """Groups of two to four: an empty response, one cut at the limit with a tool's answer inside, one of a single id.

    with_vision_id: the tool's answer holds an image placeholder, which is no place of an image.
    """
    samples = mixed_samples(pictures, sees_images=policy.family.sees_images)
    draw = torch.Generator().manual_seed(0)
    groups = []
    for index in range(len(samples)):
        group = []
        for length in [5, 0, limit, 1][: 2 + index % 3]:
            ids = torch.randint(0, 400, (length,), generator=draw).tolist()
            mask = [1] * length
            if length == limit:
                mask[2] = mask[3] = 0
                if with_vision_id:
                    ids[2] = policy.prompts.image_token_id
            group.append(response(ids, mask))
        groups.append(group)
    return build_group_batch([policy.prompts.prepare(one) for one in samples], groups)
