"""What the model saw of an image, and the boxes of answers, against numbers worked out by hand."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from homes import Home
from PIL import Image

from console.services.processed_image import PixelLimits, pixel_limits, processed_view
from console.services.sample_boxes import drawn_on, reference_shapes, response_shapes, reward_for
from mmrl.config.reward import IouRewardConfig, PointRewardConfig
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.rewards.vision.boxes import Box, Point
from mmrl.runs.records import GroupRecord
from mmrl.types import ImagePart, ImageRef, Message

IMAGE = ImageRef("a" * 64, 200, 100)
PIXELS = {"min_pixels": 3136, "max_pixels": 1_003_520}


def _group(answer: str, meta: dict[str, object] | None = None) -> GroupRecord:
    prompt = (Message("user", (ImagePart(IMAGE),)),)
    return GroupRecord(1, "train", 1, 0, "p", None, None, "all", 1.0, (), prompt, answer, meta or {})


@pytest.mark.parametrize(
    ("size", "expected", "tokens"),
    [
        ((200, 100), (196, 112), 28),  # nearest multiples of 28
        ((56, 28), (84, 56), 6),  # 1,568 pixels are too few: times sqrt(2), rounded up
        ((2000, 1000), (1400, 700), 1250),  # 1,988 x 1,008 are too many: over sqrt(2,000,000 / 1,003,520), rounded down
    ],
)
def test_the_size_and_the_tokens_are_those_of_the_processor(
    size: tuple[int, int], expected: tuple[int, int], tokens: int
) -> None:
    found = PixelLimits(28, **PIXELS).size(ImageRef("b" * 64, *size))
    assert ((found.width, found.height), found.num_tokens) == (expected, tokens)


def test_limits_are_the_processors_own_narrowed_by_the_run(shared_home: Callable[[str], Home], tmp_path: Path) -> None:
    home = shared_home("small")
    with home.active(), Database.open() as database:
        job = Jobs(database).get(home.jobs["running"])
    config = {
        **job.config,
        "model": {"path": str(tmp_path)},
        "data": {"image": {"min_pixels": 100, "max_pixels": 9000}},
    }
    own = replace(job, config=config, run_dir=str(tmp_path / "run"))
    assert pixel_limits(own) is None, "no processor is known"
    settings = {"patch_size": 16, "merge_size": 2, "size": {"shortest_edge": 1024, "longest_edge": 5000}}
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": settings}))
    assert pixel_limits(own) == PixelLimits(32, 1024, 5000)
    older = {**config, "data": {"image": {"min_pixels": 100, "max_pixels": 9000, "resize_to": 448}}}
    assert pixel_limits(replace(own, config=older)) == PixelLimits(32, 1024, 5000), "a setting of another version"
    for odd in ({"max_pixels": "many"}, {"min_pixels": 9, "max_pixels": 1}):
        assert pixel_limits(replace(own, config={**config, "data": {"image": odd}})) is None
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": settings | {"patch_size": None}}))
    assert pixel_limits(own) is None


def test_the_processed_view_has_the_grid_of_tokens(tmp_path: Path) -> None:
    Image.new("RGB", (200, 100), (10, 120, 60)).save(tmp_path / "a.png")
    size = PixelLimits(28, **PIXELS).size(IMAGE)
    with Image.open(io.BytesIO(processed_view(tmp_path / "a.png", size))) as shown:
        scale = shown.width // size.width
        assert shown.size == (size.width * scale, size.height * scale)
        assert shown.getpixel((28 * scale, 5)) != (10, 120, 60), "a line between two tokens"
        assert shown.getpixel((14 * scale, 5)) == (10, 120, 60), "no line within one"


def test_boxes_are_brought_to_pixels_from_the_frame_that_the_reward_reads_them_in() -> None:
    reward = IouRewardConfig(frame="per_mille", reference_frame="pixels")
    group = _group("[[20, 10, 100, 50]]")
    assert reference_shapes(reward, group).shapes == (Box(20, 10, 100, 50),)
    answer = "I looked at [1, 2, 3, 4]; it is \\boxed{[100, 100, 500, 500]}"
    (box,) = response_shapes(reward, group, answer).shapes
    assert isinstance(box, Box)
    assert (box.x1, box.y1, box.x2, box.y2) == pytest.approx((20, 10, 100, 50)), "only the answer is read, not the talk"
    assert response_shapes(reward, group, None).shapes == ()


def test_coordinates_of_the_resized_image_and_points_are_read_too() -> None:
    """200 x 100 became 196 x 112, so (98, 56) is the middle."""
    reward = PointRewardConfig(frame="resized", reference_frame="pixels", factor=28, **PIXELS)
    (point,) = response_shapes(reward, _group("[90, 40, 110, 60]"), "[98, 56]").shapes
    assert isinstance(point, Point)
    assert (point.x, point.y) == pytest.approx((100, 50))
    assert reference_shapes(reward, _group("[90, 40, 110, 60]")).shapes == (Box(90, 40, 110, 60),)


def test_without_a_box_reward_a_row_that_names_its_frame_is_drawn_and_no_other() -> None:
    assert reward_for([], {"frame": "pixels"}) == IouRewardConfig()
    assert reward_for([], {"frame": "dream"}) is None
    assert reward_for([], None) is None


@pytest.mark.parametrize("shape", [Box(-5, -5, 1e300, float("inf")), Box(50, 40, 10, 10), Point(float("inf"), -1e9)])
def test_boxes_that_no_image_holds_do_no_harm(tmp_path: Path, shape: Box | Point) -> None:
    Image.new("RGB", (200, 100)).save(tmp_path / "a.png")
    with Image.open(io.BytesIO(drawn_on(tmp_path / "a.png", [shape], [shape]))) as shown:
        assert shown.size == (768, 384)
