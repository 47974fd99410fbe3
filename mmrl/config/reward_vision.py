"""Config of the rewards for what is seen: text, boxes and points in an image."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from mmrl.config.reward_base import RewardBase

Frame = Literal["pixels", "resized", "per_mille", "unit"]
BoxForm = Literal["corners", "corner_size", "centre_size"]


class OcrRewardConfig(RewardBase):
    """1 minus the error rate of the read text against the reference (CER or WER), never below 0."""

    type: Literal["ocr"] = "ocr"
    """Which reward function this is."""
    unit: Literal["character", "word"] = "character"
    """What errors are counted in: characters (CER) or words (WER)."""
    boxed: bool = False
    """Read the text from the last \\boxed{...}; otherwise the whole response is the text."""
    ignore_case: bool = False
    """Compare without regard to case."""
    ignore_punctuation: bool = False
    """Compare letters, digits and spaces only."""


class FramedRewardConfig(RewardBase):
    """The frames that coordinates of answer and reference are in."""

    frame: Frame = "pixels"
    """Frame of the answer's coordinates: pixels of the image as stored; resized, pixels of the image as the model gets
    it (see min_pixels); per_mille, 0 to 1000 over each side; unit, 0 to 1 over each side."""
    reference_frame: Frame = "pixels"
    """Frame of the reference's coordinates."""
    image: int = Field(0, ge=0)
    """Which of the sample's images the coordinates are in, counted from 0."""
    min_pixels: int | None = Field(None, ge=1)
    """For the frame resized: the run's data.image.min_pixels."""
    max_pixels: int | None = Field(None, ge=1)
    """For the frame resized: the run's data.image.max_pixels."""
    factor: int = Field(28, ge=1)
    """For the frame resized: the sides of a resized image are multiples of this (Qwen2.5-VL 28, Qwen3-VL 32)."""

    @model_validator(mode="after")
    def _can_resize(self) -> FramedRewardConfig:
        is_resized = "resized" in (self.frame, self.reference_frame)
        if is_resized and (self.min_pixels is None or self.max_pixels is None):
            raise ValueError(
                "the frame 'resized' needs min_pixels and max_pixels, the same as the run's data.image, to know sizes"
            )
        return self


class IouRewardConfig(FramedRewardConfig):
    """How well the answer's boxes cover the reference's: overlaps of matched boxes over the larger number of boxes."""

    type: Literal["iou"] = "iou"
    """Which reward function this is."""
    form: BoxForm = "corners"
    """What four numbers of the answer mean: corners x1, y1, x2, y2; corner_size x, y, width, height; centre_size."""
    reference_form: BoxForm = "corners"
    """What four numbers of the reference mean."""
    threshold: float | None = Field(None, gt=0, le=1)
    """If given, a matched pair counts 1 for at least this overlap, else 0; if not, it counts its overlap."""


class PointRewardConfig(FramedRewardConfig):
    """The share of the reference's boxes (or points) that the answer's points hit, each by a point of its own."""

    type: Literal["point"] = "point"
    """Which reward function this is."""
    form: BoxForm = "corners"
    """What four numbers of the reference mean; two numbers are a point."""
    radius: float = Field(0.02, gt=0)
    """How near an answer must be to a reference point, as a share of the image's diagonal."""
