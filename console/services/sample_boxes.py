"""Boxes and points of a reference and of a response, in pixels of the stored image, as the run's rewards read them.

A reward of type `iou` or `point` says in which frame its coordinates are. Where a run has none, a row that names its
`frame` (as rows from COCO annotations do) is read the same way.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from PIL import Image, ImageDraw, ImageFont

from console.theme import CHART_COLOURS
from mmrl.config.reward import IouRewardConfig, PointRewardConfig
from mmrl.config.reward_vision import Frame
from mmrl.rewards.base import RewardFailure
from mmrl.rewards.vision.boxes import MAX_MATCHED, Box, Point, answer_region, read_boxes, read_points
from mmrl.rewards.vision.frames import unit_scales
from mmrl.runs.records import GroupRecord
from mmrl.types import Sample

FramedReward = IouRewardConfig | PointRewardConfig
Shape = Box | Point

REFERENCE_COLOUR, RESPONSE_COLOUR = CHART_COLOURS[2], CHART_COLOURS[1]
_SHOWN_SIDE = 768
_MAX_TEXT = 200_000


@dataclass(frozen=True)
class Drawn:
    """shapes: in pixels of the image. image: which of the prompt's, from 0."""

    image: int
    shapes: tuple[Shape, ...]


def reward_for(rewards: Sequence[FramedReward], meta: Mapping[str, Any] | None) -> FramedReward | None:
    """The first of the run's, else one of the frame that the row names; None where nothing says what numbers mean."""
    frame = (meta or {}).get("frame")
    if rewards:
        return rewards[0]
    if frame in get_args(Frame) and frame != "resized":
        return IouRewardConfig(frame=frame, reference_frame=frame)
    return None


def reference_shapes(reward: FramedReward, group: GroupRecord) -> Drawn:
    text = (group.answer or "")[:_MAX_TEXT]
    form = reward.reference_form if isinstance(reward, IouRewardConfig) else reward.form
    boxes: list[Shape] = [*read_boxes(text, form, pairs=isinstance(reward, IouRewardConfig))]
    if not boxes and isinstance(reward, PointRewardConfig):
        boxes = [*read_points(text)]
    return _in_pixels(reward, group, boxes, is_reference=True)


def response_shapes(reward: FramedReward, group: GroupRecord, text: str | None) -> Drawn:
    region = answer_region((text or "")[:_MAX_TEXT])
    shapes: list[Shape]
    shapes = [*read_boxes(region, reward.form)] if isinstance(reward, IouRewardConfig) else [*read_points(region)]
    return _in_pixels(reward, group, shapes, is_reference=False)


def drawn_on(path: Path, reference: Sequence[Shape], response: Sequence[Shape]) -> bytes:
    """The image with both as a PNG: the reference's with solid lines, the response's dashed and numbered."""
    with Image.open(path, formats=("PNG", "JPEG")) as image:
        shown = image.convert("RGB")
    scale = _SHOWN_SIDE / max(shown.size)
    shown = shown.resize((max(1, round(shown.width * scale)), max(1, round(shown.height * scale))))
    draw = ImageDraw.Draw(shown)
    for shape in reference:
        _draw(draw, _near(shape.scaled((scale, scale))), REFERENCE_COLOUR, is_dashed=False, label="")
    for number, shape in enumerate(response, start=1):
        _draw(draw, _near(shape.scaled((scale, scale))), RESPONSE_COLOUR, is_dashed=True, label=str(number))
    buffer = io.BytesIO()
    shown.save(buffer, format="PNG")
    return buffer.getvalue()


def words_of(shapes: Sequence[Shape]) -> str:
    """The same for those who do not see them."""
    return "; ".join(
        f"[{shape.x1:.0f}, {shape.y1:.0f}, {shape.x2:.0f}, {shape.y2:.0f}]"
        if isinstance(shape, Box)
        else f"[{shape.x:.0f}, {shape.y:.0f}]"
        for shape in shapes
    )


def _in_pixels(reward: FramedReward, group: GroupRecord, shapes: Sequence[Shape], *, is_reference: bool) -> Drawn:
    """None are drawn where the image that they are in is not there."""
    images = group.images
    if reward.image >= len(images):
        return Drawn(reward.image, ())
    image = images[reward.image]
    try:
        scale = unit_scales(reward, Sample(group.prompt_id, group.prompt or (), group.answer))[is_reference]
    except RewardFailure:
        return Drawn(reward.image, ())
    to_pixels = (scale[0] * image.width, scale[1] * image.height)
    return Drawn(reward.image, tuple(shape.scaled(to_pixels) for shape in shapes[:MAX_MATCHED]))


def _near(shape: Shape) -> Shape:
    """A response may name any number; what is far outside is drawn just outside."""

    def near(value: float) -> float:
        return min(max(value, -_SHOWN_SIDE), 2 * _SHOWN_SIDE)

    if isinstance(shape, Point):
        return Point(near(shape.x), near(shape.y))
    return Box(near(shape.x1), near(shape.y1), near(shape.x2), near(shape.y2))


def _draw(draw: ImageDraw.ImageDraw, shape: Shape, colour: str, *, is_dashed: bool, label: str) -> None:
    if isinstance(shape, Point):
        draw.line(((shape.x - 9, shape.y), (shape.x + 9, shape.y)), fill=colour, width=3)
        draw.line(((shape.x, shape.y - 9), (shape.x, shape.y + 9)), fill=colour, width=3)
        corner = (shape.x + 8, shape.y + 4)
    else:
        corners = [(shape.x1, shape.y1), (shape.x2, shape.y1), (shape.x2, shape.y2), (shape.x1, shape.y2)]
        for start, end in zip(corners, [*corners[1:], corners[0]], strict=True):
            _line(draw, start, end, colour, is_dashed=is_dashed)
        corner = (shape.x1 + 4, shape.y1 + 3)
    if label:
        font = ImageFont.load_default(26)
        draw.text(corner, label, fill=colour, font=font, stroke_width=3, stroke_fill="white")


def _line(
    draw: ImageDraw.ImageDraw, start: tuple[float, float], end: tuple[float, float], colour: str, *, is_dashed: bool
) -> None:
    """Along a side of a box; dashes of 10 pixels with gaps of 6, and at most some hundreds of them."""
    if not is_dashed:
        draw.line((start, end), fill=colour, width=4)
        return
    length = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1.0)
    step = max(16.0, length / 200)
    for place in range(int(length // step) + 1):
        first, last = place * step / length, min(1.0, (place * step + step * 0.6) / length)
        begin = (start[0] + (end[0] - start[0]) * first, start[1] + (end[1] - start[1]) * first)
        stop = (start[0] + (end[0] - start[0]) * last, start[1] + (end[1] - start[1]) * last)
        draw.line((begin, stop), fill=colour, width=3)
