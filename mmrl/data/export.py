"""A data set written as plain files that `mmrl dataset add` reads back to the same samples.

<out>/<split>.jsonl, one row a line as messages with content parts, and <out>/images/<sha256>.png or .jpg.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mmrl.data.files import explain_write_errors, folder_in_progress
from mmrl.data.images import ImageStore
from mmrl.errors import ConflictError, DataError
from mmrl.types import ContentPart, ImageRef, Sample, TextPart

IMAGE_FOLDER = "images"
_RESERVED = ("messages", "answer", "image", "images")


def export_samples(splits: dict[str, Iterable[Sample]], out: Path, *, store: ImageStore) -> None:
    """Writes the splits to the folder `out`, which must not exist yet; all of it or nothing."""
    if out.exists():
        raise ConflictError(f"{out} exists already; export to a folder that does not")
    with folder_in_progress(out.resolve().parent) as folder:
        for split, samples in splits.items():
            _write_split(folder, split, samples, store)
        with explain_write_errors(out):
            folder.rename(out)


def _write_split(folder: Path, split: str, samples: Iterable[Sample], store: ImageStore) -> None:
    with explain_write_errors(folder), (folder / f"{split}.jsonl").open("w", encoding="utf-8") as lines:
        for sample in samples:
            lines.write(json.dumps(_row(sample, folder, store), ensure_ascii=False) + "\n")


def _row(sample: Sample, folder: Path, store: ImageStore) -> dict[str, Any]:
    clash = next((key for key in _RESERVED if key in sample.meta), None)
    if clash:
        raise DataError(f"sample {sample.id}: its meta has the key {clash!r}, which is a column of its own; rename it")
    messages = [
        {"role": message.role, "content": [_part(part, folder, store) for part in message.content]}
        for message in sample.messages
    ]
    return {"messages": messages, "answer": sample.answer, **sample.meta}


def _part(part: ContentPart, folder: Path, store: ImageStore) -> dict[str, str]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": "image", "image": _write_image(part.image, folder, store)}


def _write_image(image: ImageRef, folder: Path, store: ImageStore) -> str:
    """The path of the image relative to the export, written unless an earlier row did."""
    data = store.read(image)
    suffix = "png" if data.startswith(b"\x89PNG") else "jpg"
    target = folder / IMAGE_FOLDER / f"{image.sha256}.{suffix}"
    if not target.exists():
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(data)
    return f"{IMAGE_FOLDER}/{target.name}"
