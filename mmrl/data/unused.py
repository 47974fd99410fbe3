"""What a row holds and nothing uses: an image is refused, a column that looks like the answer is named."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from mmrl.data.rows import RowProblem, describe
from mmrl.data.turns import InlineImage, Slot, Turn

NUMBERED_IMAGE = re.compile(r"(?:image|img)[_ ]?(\d{1,3})", re.IGNORECASE)

_NUMBERED_PLACE = re.compile(r"<(?:image|img)[_ ]?(\d{1,3})>", re.IGNORECASE)
_KIND = r"(?:path|url|uri|file|filename|file_name|bytes|data|base64|b64)"
_IMAGE_NAME = re.compile(
    rf"(?:\w+_)?(?:image|img|picture|pic|photo)s?(?:[_ -]?\d+)?(?P<kind>[_ -]?{_KIND}s?)?", re.IGNORECASE
)
_IMAGE_BYTES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"II*\0", b"MM\0*")
_COUNT_OR_FLAG = re.compile(r"[\d.]*|true|false|yes|no|none|null|nan", re.IGNORECASE)
_IMAGE_BASE64 = ("iVBORw0KGgo", "/9j/", "R0lGODlh", "R0lGODdh", "UklGR")
_MIN_BASE64_CHARACTERS = 64
_IMAGE_FILE = re.compile(r"\S+\.(?:png|jpe?g|webp|gif|bmp|tiff?)", re.IGNORECASE)
_ANSWER_NAME = re.compile(
    r"(?:\w+_)?(?:answers?|solutions?|ground_?truths?|gt|label|target|response|output|gold|reference)", re.IGNORECASE
)


def refuse_lost_images(rest: Mapping[str, Any], *, has_images: bool) -> None:
    """Raises RowProblem for a column that holds an image and is not used: the row would be read without it.

    rest: the columns that would be kept as meta. has_images: the row has images already; where those came from, such
    as an `image_url`, may then stand beside them.
    """
    for name, value in rest.items():
        if _holds_image(name, value, has_images=has_images):
            raise RowProblem(
                name,
                f"looks like an image ({describe(value)}) and nothing uses it; read it with --map images={name}, or "
                "leave this column out. Images stand in the column `images` or `image`, and <image> in the text marks "
                "the place of each",
            )


def numbered_images(values: Mapping[str, Any]) -> dict[int, InlineImage]:
    """The images of the columns `image_1`, `image_2` … that are filled, by number."""
    found: dict[int, InlineImage] = {}
    for name, value in values.items():
        match = NUMBERED_IMAGE.fullmatch(name)
        if match and value is not None and _could_be_image(value):
            found[int(match[1])] = InlineImage(value, name)
    return dict(sorted(found.items()))


def place_numbered(turns: list[Turn], images: Mapping[int, InlineImage]) -> list[Turn]:
    """The turns with the image of that number in place of each `<image 1>` or `<image_1>` of a user's or tool's text.

    Where there is none of these but some `<image>`, those take the images by their order.
    """
    placed = [_place(turn, images) for turn in turns]
    if any(turn.has_images for turn in turns) and placed == turns:
        in_order = iter(images.values())
        return [
            Turn(turn.role, tuple(next(in_order, part) if isinstance(part, Slot) else part for part in turn.parts))
            for turn in turns
        ]
    return placed


def refuse_empty_places(turns: Iterable[Turn], values: Mapping[str, Any]) -> None:
    """Raises RowProblem for an `<image_1>` in the text of a row whose column for that image is empty."""
    columns = {int(match[1]): name for name in values if (match := NUMBERED_IMAGE.fullmatch(name))}
    for number, place in numbered_places(turn.text for turn in turns if turn.role in ("user", "tool")).items():
        if number in columns:
            raise RowProblem(
                columns[number], f"is empty and the text holds {place}; fill it, or take {place} out of the text"
            )


def numbered_places(texts: Iterable[str]) -> dict[int, str]:
    """The `<image_1>` and `<image 1>` of texts as they are written, by number."""
    return {int(match[1]): match[0] for text in texts for match in _NUMBERED_PLACE.finditer(text)}


def image_file_columns(meta: Mapping[str, Any]) -> list[str]:
    """The columns that nothing used and that name an image file, whatever they are called; `a.b` for the key b of an
    object in the column a."""
    return [name for key, value in meta.items() if key != "source" for name in _naming_files(key, value)]


def _naming_files(name: str, value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [path for key, item in value.items() for path in _naming_files(f"{name}.{key}", item)]
    names_file = any(isinstance(text, str) and _IMAGE_FILE.fullmatch(text) for text in _as_list(value))
    return [name] if names_file else []


def answer_lookalikes(meta: Iterable[str]) -> list[str]:
    """The columns that nothing used and that are named as if they held the answer."""
    return [name for name in meta if _ANSWER_NAME.fullmatch(name)]


def _place(turn: Turn, images: Mapping[int, InlineImage]) -> Turn:
    if turn.role not in ("user", "tool"):
        return turn
    parts: list[str | Slot | InlineImage] = []
    for part in turn.parts:
        parts += _split(part, images) if isinstance(part, str) else [part]
    return Turn(turn.role, tuple(parts))


def _split(text: str, images: Mapping[int, InlineImage]) -> list[str | Slot | InlineImage]:
    parts: list[str | Slot | InlineImage] = []
    end = 0
    for match in _NUMBERED_PLACE.finditer(text):
        number = int(match[1])
        if number not in images:
            known = ", ".join(image.field for image in images.values())
            raise RowProblem(
                "",
                f"the text holds {match[0]} and no column holds that image; filled are {known}; fill it or mend "
                "the number",
            )
        parts += [text[end : match.start()], images[number]]
        end = match.end()
    return [part for part in [*parts, text[end:]] if part != ""]


def _holds_image(name: str, value: Any, *, has_images: bool) -> bool:
    if _is_image_value(value) and not (has_images and isinstance(value, Mapping)):
        return True
    match = _IMAGE_NAME.fullmatch(name)
    if match is None or not _could_be_image(value):
        return False
    return not (has_images and match["kind"])


def _is_image_value(value: Any) -> bool:
    """Whether the value is an image by itself: bytes, a data URI, base64, or what holds one of these."""
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value[:4]).startswith(_IMAGE_BYTES)
    if isinstance(value, str):
        is_base64 = value.startswith(_IMAGE_BASE64) and len(value) >= _MIN_BASE64_CHARACTERS and " " not in value[:64]
        return is_base64 or value[:11].lower() == "data:image/"
    if isinstance(value, Mapping):
        return any(_is_image_value(item) for item in value.values())
    return isinstance(value, list | tuple) and any(_is_image_value(item) for item in value)


def _as_list(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple) else [value]


def _could_be_image(value: Any) -> bool:
    """Whether a column that is named like an image holds one: a number or an empty value is none."""
    if value is None or isinstance(value, bool | int | float):
        return False
    if isinstance(value, list | tuple):
        return any(_could_be_image(item) for item in value)
    if isinstance(value, str) and _COUNT_OR_FLAG.fullmatch(value.strip()):
        return False
    return not isinstance(value, str | bytes | Mapping) or bool(value)
