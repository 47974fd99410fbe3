"""A small data set of one-coloured images, as a zip, with or without a row that names an image that is not there."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

from PIL import Image

NASTY = "<img src=x onerror=alert(1)> **bold**"


def shades_zip(path: Path, *, rows: int = 24, with_bad_row: bool = False, extra: str = "") -> Path:
    """extra: a text that stands in the first row's question."""
    lines = []
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(rows):
            is_bad = with_bad_row and number == 3
            name = "images/missing.png" if is_bad else f"images/{number}.png"
            question = f"<image>Which digit is this? Answer in \\boxed{{}}.{extra if number == 0 else ''}"
            lines.append(json.dumps({"prompt": question, "images": [name], "answer": str(number % 10)}))
            if not is_bad:
                archive.writestr(f"images/{number}.png", _png(number))
        archive.writestr("train.jsonl", "\n".join(lines))
    return path


def _png(number: int) -> bytes:
    buffer = io.BytesIO()
    shade = (number * 37 % 256, number * 91 % 256, number * 53 % 256)
    Image.new("RGB", (56, 56), shade).save(buffer, format="PNG")
    return buffer.getvalue()
