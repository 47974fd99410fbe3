"""The prompt of a group: its images as they are, as the model saw them and with boxes, its turns, and the reference."""

from __future__ import annotations

import base64
import html
from pathlib import Path

import streamlit as st

from console.components.address import change, show_value, words
from console.components.changes import changed
from console.components.long_text import model_text
from console.services.formats import count_text
from console.services.processed_image import PixelLimits, processed_view
from console.services.responses import Responses
from console.services.sample_boxes import (
    Drawn,
    FramedReward,
    drawn_on,
    reference_shapes,
    response_shapes,
    words_of,
)
from mmrl.data.thumbnails import thumbnail_of
from mmrl.runs.records import GroupRecord
from mmrl.types import ImageRef

_SHOWN_SIDE = 512
_MAX_ZOOMED_BYTES = 12_000_000
_VIEWS = {"stored": "as stored", "seen": "as the model sees it", "boxes": "with boxes"}


def prompt_side(
    responses: Responses, group: GroupRecord, *, limits: PixelLimits | None, framed: FramedReward | None
) -> None:
    """limits: how the model's images are resized, None where that is not known. framed: how boxes are read."""
    if group.images:
        _images(responses, group, limits, framed)
    if group.prompt is None:
        st.text("Only the numbers of this prompt were kept.")
        return
    key = f"{group.split}-{group.step}-{group.group_id}"
    for number, message in enumerate(group.prompt):
        st.caption(message.role)
        model_text(message.text, key=f"turn-{key}-{number}", empty="(no text)")
    st.caption("reference answer")
    if group.answer is None:
        st.text("none")
    else:
        model_text(group.answer, key=f"answer-{key}")


def _images(responses: Responses, group: GroupRecord, limits: PixelLimits | None, framed: FramedReward | None) -> None:
    offered = ["stored", *(["seen"] if limits else []), *(["boxes"] if framed else [])]
    view = words().get("image", "")
    view = view if view in offered else "boxes" if framed else "stored"
    if len(offered) > 1:
        show_value("responses-image", view)
        st.segmented_control(
            "Image",
            offered,
            format_func=_VIEWS.__getitem__,
            key="responses-image",
            required=True,
            label_visibility="collapsed",
            on_change=changed("responses-image", lambda value: change(image=value)),
        )
    if view == "boxes" and framed is not None:
        chosen = _whose_boxes(group)
        reference, response = reference_shapes(framed, group), _of_response(framed, group, chosen)
    else:
        reference = response = Drawn(-1, ())
    for number, image in enumerate(group.images):
        path = responses.image(image.sha256)
        if path is None:
            st.text(f"image {number + 1} ({image.width} × {image.height} pixels) was not kept")
        elif view == "seen" and limits is not None:
            _seen(path, image, number, limits)
        elif view == "boxes" and number == reference.image:
            _boxes(path, number, reference, response)
        else:
            _stored(path, image, number)


def _stored(path: Path, image: ImageRef, number: int) -> None:
    size = f"{image.width} × {image.height} pixels"
    shown = (
        path if max(image.width, image.height) <= _SHOWN_SIDE else thumbnail_of(path, image.sha256, side=_SHOWN_SIDE)
    )
    st.image(str(shown), caption=f"image {number + 1} · {size}", alt=f"image {number + 1}, {size}", width="stretch")
    if st.button("Zoom", key=f"zoom-{number}", help="The image pixel by pixel, at its full size.", type="tertiary"):
        _zoom(path, image, number)


def _seen(path: Path, image: ImageRef, number: int, limits: PixelLimits) -> None:
    size = limits.size(image)
    told = (
        f"image {number + 1} · {size.width} × {size.height} pixels · {size.columns} × {size.rows} = "
        f"{count_text(size.num_tokens)} tokens"
    )
    st.image(processed_view(path, size), caption=told, alt=f"{told}, with the grid of tokens", width="stretch")
    st.caption(
        f"Resized from {image.width} × {image.height} pixels, by the model's image processor and `data.image`. Each "
        f"square is one token of {size.side} × {size.side} pixels.",
        help="Computed from the settings of processor and run. Where a prompt was too long and `data.on_overlong` is "
        "`resize`, its images were shrunk further.",
    )


def _whose_boxes(group: GroupRecord) -> int:
    """The response whose boxes are drawn beside the reference's; the best one unless another is chosen."""
    places = {response.sample_idx: place for place, response in enumerate(group.by_reward, start=1)}
    wanted = words().get("boxes", "")
    chosen = int(wanted) if wanted.isdecimal() and int(wanted) in places else next(iter(places))
    show_value("responses-boxes", chosen)
    st.segmented_control(
        "Boxes of response",
        list(places),
        format_func=lambda index: f"{places[index]}.",
        key="responses-boxes",
        required=True,
        on_change=changed("responses-boxes", lambda value: change(boxes=str(value))),
    )
    return chosen


def _of_response(framed: FramedReward, group: GroupRecord, index: int) -> Drawn:
    text = next((response.text for response in group.responses if response.sample_idx == index), None)
    return response_shapes(framed, group, text)


def _boxes(path: Path, number: int, reference: Drawn, response: Drawn) -> None:
    own, other = words_of(reference.shapes) or "none", words_of(response.shapes) or "none"
    alt = f"image {number + 1}; reference {own}; response {other}"
    st.image(drawn_on(path, reference.shapes, response.shapes), alt=alt, width="stretch")
    st.caption(f"Green, solid: the reference, {own}. Orange, dashed and numbered: the response, {other}. In pixels.")


@st.dialog("Image", width="large")
def _zoom(path: Path, image: ImageRef, number: int) -> None:
    times = st.segmented_control("Size", [1, 2, 4, 8], format_func=lambda n: f"{n} : 1", default=1, key="zoom-times")
    if path.stat().st_size > _MAX_ZOOMED_BYTES:
        st.text(f"The file has {path.stat().st_size:,} bytes, too many for a browser; it lies at {path}.")
        return
    kind = "png" if path.suffix == ".png" else "jpeg"
    source = f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
    name = html.escape(f"image {number + 1}, {image.width} × {image.height} pixels")
    width = min(image.width * (times or 1), 16_384)
    st.html(
        f'<div role="group" tabindex="0" aria-label="{name}, moved by scrolling" style="overflow:auto;max-height:70vh">'
        f'<img alt="{name}" src="{source}" style="width:{width}px;max-width:none;image-rendering:pixelated"></div>'
    )
    st.caption(f"{image.width} × {image.height} pixels as stored")
