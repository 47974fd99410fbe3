"""COCO annotations (images, annotations, categories): a row for each image, with its boxes.

Each row asks for all boxes; the answer is a JSON list of {label, bbox_2d} with corners x1, y1, x2, y2 in pixels of the
image as stored. `meta` has the boxes once more, the image's id and its size, and `frame: pixels`. Crowd regions are no
boxes of one object and are left out. `--map prompt=…` puts another question.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from mmrl.data.formats.json_items import JsonItems
from mmrl.data.rows import RawRow, RowError, RowProblem, describe
from mmrl.errors import DataError

LISTS = ("images", "annotations", "categories")

_Box = tuple[Any, list[float]]


class _Contents:
    def __init__(self) -> None:
        self.images: list[Mapping[str, Any]] = []
        self.names: dict[Any, str] = {}
        self.boxes: dict[Any, list[_Box]] = defaultdict(list)
        self.problems: dict[Any, str] = {}

    def take(self, key: str, item: Any) -> None:
        if not isinstance(item, Mapping):
            raise RowProblem(key, f"each item is one JSON object; got {describe(item)}")
        if key == "images":
            self.images.append({name: item.get(name) for name in ("id", "file_name", "width", "height")})
        elif key == "categories":
            self.names[item.get("id")] = str(item.get("name"))
        elif key == "annotations" and not item.get("iscrowd"):
            self._take_annotation(item)

    def _take_annotation(self, item: Mapping[str, Any]) -> None:
        image, box = item.get("image_id"), item.get("bbox")
        if isinstance(box, list) and len(box) == 4 and all(isinstance(value, int | float) for value in box):
            self.boxes[image].append((item.get("category_id"), box))
        else:
            self.problems.setdefault(
                image,
                f"annotation {describe(item.get('id'))} needs `bbox` as x, y, width, height (got {describe(box)})",
            )


def read(path: Path, items: JsonItems, fields: Iterator[str], first_key: str) -> Iterator[RawRow | RowError]:
    """The rows, once the whole file was looked through.

    items: stands at the list under `first_key`. fields: gives the keys that follow in the same object.
    """
    contents, seen = _Contents(), [first_key]
    _take_list(path, items, first_key, contents)
    for key in fields:
        if key in LISTS and items.peek() == "[":
            seen.append(key)
            _take_list(path, items, key, contents)
        else:
            items.value()
    missing = [key for key in ("images", "annotations") if key not in seen]
    if missing:
        raise DataError(
            f"{path}: COCO annotations need the lists {', '.join(LISTS)}; {' and '.join(missing)} is missing"
        )
    for number, image in enumerate(contents.images, start=1):
        try:
            yield RawRow(number, _row(image, contents), path.name)
        except RowProblem as problem:
            yield RowError(path.name, number, problem.field, problem.message)


def _take_list(path: Path, items: JsonItems, key: str, contents: _Contents) -> None:
    for number, item in enumerate(items.items(), start=1):
        try:
            contents.take(key, item)
        except (RowProblem, TypeError) as error:  # an id that is a list cannot be looked up
            raise DataError(f"{path}: {key}[{number - 1}]: {error}") from error


def _row(image: Mapping[str, Any], contents: _Contents) -> dict[str, Any]:
    name = image["id"]
    if problem := contents.problems.get(name):
        raise RowProblem("annotations", problem)
    if not isinstance(image["file_name"], str):
        raise RowProblem("images.file_name", f"must be the path of the image (got {describe(image['file_name'])})")
    boxes = [_box(category, box, contents.names) for category, box in contents.boxes.get(name, [])]
    return {
        "prompt": "<image>\nFind every object. Answer with a JSON list of {label, bbox_2d}, each box as "
        "x1, y1, x2, y2 in pixels.",
        "images": [image["file_name"]],
        "answer": json.dumps(boxes, ensure_ascii=False),
        "objects": boxes,
        "image_id": name,
        "width": image["width"],
        "height": image["height"],
        "frame": "pixels",
    }


def _box(category: Any, box: list[float], names: Mapping[Any, str]) -> dict[str, Any]:
    if category is not None and category not in names:
        raise RowProblem("annotations.category_id", f"{describe(category)} is not among the categories")
    x, y, width, height = box
    corners = [round(value, 2) for value in (x, y, x + width, y + height)]
    label = {} if category is None else {"label": names[category]}
    return {**label, "bbox_2d": [int(value) if float(value).is_integer() else value for value in corners]}
