"""Generated rows with images in every form, mode, size and count, and rows that are broken in every way."""

from __future__ import annotations

import base64
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

MODES = ("RGB", "L", "LA", "RGBA", "P", "1", "CMYK", "I;16")
FORMS = ("bytes", "object", "object with path", "path", "data uri", "base64", "pil", "part", "url part")
SIZES = ((8, 8), (28, 28), (26, 28), (56, 56), (100, 1), (1, 1), (200, 1), (45, 80), (112, 84), (90, 30), (140, 120))


def picture(draw: random.Random, mode: str, size: tuple[int, int]) -> Image.Image:
    """A noise image of this mode; with transparency where the mode has any."""
    pixels = np.random.default_rng(draw.getrandbits(32))
    width, height = size
    if mode == "I;16":
        return Image.fromarray(pixels.integers(0, 65536, (height, width), dtype=np.uint16))
    image = Image.fromarray(pixels.integers(0, 256, (height, width, 3), dtype=np.uint8))
    if mode in ("LA", "RGBA"):
        image = image.convert(mode)
        image.putalpha(Image.fromarray(pixels.integers(0, 256, (height, width), dtype=np.uint8)))
        return image
    return image.convert(mode)


def encoded(image: Image.Image) -> bytes:
    buffer = io.BytesIO()
    if image.mode == "CMYK":
        image.save(buffer, format="TIFF")
    elif image.mode == "P":
        image.save(buffer, format="PNG", transparency=bytes(range(256)))
    else:
        image.save(buffer, format="PNG")
    return buffer.getvalue()


def shown_as(form: str, image: Image.Image, folder: Path, name: str) -> Any:
    """The image in one of the forms that a row may hold."""
    data = encoded(image)
    if form in ("path", "object with path"):
        (folder / name).write_bytes(data)
        return name if form == "path" else {"bytes": None, "path": name}
    text = base64.b64encode(data).decode()
    return {
        "bytes": data,
        "object": {"bytes": data, "path": None},
        "data uri": f"data:image/png;charset=utf-8;base64,{text}",
        "base64": text,
        "pil": Image.open(io.BytesIO(data)),
        "part": {"type": "image", "image": data},
        "url part": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{text}"}},
    }[form]


def good_row(draw: random.Random, folder: Path, index: int) -> dict[str, Any]:
    """A row with 0 to 5 images."""
    count = draw.choice((0, 1, 1, 2, 3, 5))
    form = FORMS[index % len(FORMS)]
    images = [
        shown_as(form, picture(draw, draw.choice(MODES), draw.choice(SIZES)), folder, f"{index}-{place}.img")
        for place in range(count)
    ]
    text = f"Row {index}: which one?"
    if form in ("part", "url part"):
        content = [*images, {"type": "text", "text": text}]
        return {"messages": [{"role": "user", "content": content}], "answer": str(index)}
    row = {"prompt": "<image>" * count + text, "images": images, "answer": str(index)}
    if count == 0:
        row["images"] = draw.choice(([], None))
    return row
