"""Samples, bad rows and data sets as `mmrl dataset` prints them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmrl.data.registry import DatasetInfo
    from mmrl.data.rows import RowError
    from mmrl.trainer.preview import SamplePreview
    from mmrl.types import Message, Sample

NUM_SHOWN = 20


def info_to_json(info: DatasetInfo) -> dict[str, Any]:
    return info.model_dump(mode="json") | {"num_rows": info.num_rows, "num_bytes": info.num_bytes}


def splits_text(info: DatasetInfo) -> str:
    return ", ".join(f"{name} {split.num_rows} rows" for name, split in info.splits.items())


def error_lines(what: str, errors: Sequence[RowError]) -> list[str]:
    """The first bad rows, a line each, and how many more there are."""
    lines = [f"{what}: {error}" for error in errors[:NUM_SHOWN]]
    return lines + (
        [f"{what}: … and {len(errors) - NUM_SHOWN} more; --json lists all"] if len(errors) > NUM_SHOWN else []
    )


def sample_to_json(sample: Sample, preview: SamplePreview | None) -> dict[str, Any]:
    """id, messages, images, answer and meta; with a preview also what the model makes of them."""
    from mmrl.data.serialise import image_to_dict, sample_to_dict

    images = [image_to_dict(image) for image in sample.images]
    shown = sample_to_dict(sample) | {"images": images}
    if preview is None:
        return shown
    for image, seen in zip(images, preview.images, strict=True):
        image |= {"processed_size": list(seen.processed_size), "tokens": seen.tokens}
    return shown | {"prompt_tokens": preview.prompt_tokens, "fits": preview.fits}


def sample_text(number: int, sample: Sample, preview: SamplePreview | None) -> str:
    lines = [f"\nrow {number}  {sample.id}"]
    lines += [f"  {message.role}: {_message_text(message)}" for message in sample.messages]
    lines += [f"  answer: {sample.answer}" if sample.answer is not None else "  no answer"]
    if preview is not None:
        sizes = [f"{image.processed_size[0]}x{image.processed_size[1]} ({image.tokens})" for image in preview.images]
        over = "" if preview.fits else ", over the limit"
        lines.append(f"  {preview.prompt_tokens} tokens{over}" + (f"; images {', '.join(sizes)}" if sizes else ""))
    return "\n".join([*lines, f"  meta: {json.dumps(dict(sample.meta), ensure_ascii=False)}"])


def distribution_line(name: str, summary: Mapping[str, float] | None) -> str:
    """min, median, … of a distribution on one line."""
    values = "none" if summary is None else ", ".join(f"{key} {value:.4g}" for key, value in summary.items())
    return f"{name}: {values}"


def _message_text(message: Message) -> str:
    from mmrl.types import ImagePart

    return "".join(
        f"[image {part.image.width}x{part.image.height} {part.image.sha256[:12]}]"
        if isinstance(part, ImagePart)
        else part.text
        for part in message.content
    )
