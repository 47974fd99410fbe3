"""Config of the rewards for what is seen: text, boxes and points in an image."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from mmrl.config.reward_base import RewardBase
from mmrl.config.reward_code import Isolation

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


class CaptionRewardConfig(RewardBase):
    """How much of a caption overlaps with the reference captions, 0 to 1."""

    type: Literal["caption"] = "caption"
    """Which reward function this is."""
    measure: Literal["chrf", "bleu", "rouge_l"] = "chrf"
    """chrf: shares of character sequences (chrF2, for any language); bleu: sentence BLEU-4, smoothed; rouge_l: F1 of
    the longest common sequence of words."""
    references: str = "references"
    """The column (key of the sample's meta) that holds several reference captions; without it the answer is the one."""
    boxed: bool = False
    """Read the caption from the last \\boxed{...}; otherwise the whole response is the caption."""
    ignore_case: bool = True
    """Compare without regard to case."""


class RenderRewardConfig(RewardBase):
    """How much the picture that a response's SVG or HTML makes looks like the target, 0 to 1."""

    type: Literal["render"] = "render"
    """Which reward function this is."""
    language: Literal["svg", "html"] = "svg"
    """What the response writes. HTML needs Chromium (the Debian package chromium)."""
    target: Literal["image", "answer"] = "image"
    """What it is compared with: an image of the sample, or the picture that the reference answer makes."""
    image: int = Field(0, ge=0)
    """Which of the sample's images is the target, counted from 0."""
    measures: tuple[Literal["ssim", "pixel", "edge"], ...] = Field(("ssim",), min_length=1)
    """What is averaged. ssim: structural similarity; pixel: 1 - mean difference of colours; edge: overlap of edges."""
    over_blank: bool = True
    """Count only what is better than an empty white picture, which scores high where the target is mostly white."""
    max_side: int = Field(512, ge=16, le=4096)
    """Longest side of the pictures that are compared, in pixels."""
    max_chars: int = Field(200_000, ge=1)
    """Longest source that is rendered; a longer one scores 0."""
    render_timeout_s: float = Field(10.0, gt=0)
    """Seconds for rendering; a source that takes longer scores 0."""
    timeout_s: float = Field(60.0, gt=0)
    """Seconds for one response; then it counts as failed."""
    memory_mb: int = Field(1024, ge=128)
    """Memory of the renderer, in MiB."""
    isolation: Isolation = "auto"
    """How the renderer is kept apart, as for the reward code."""

    @model_validator(mode="after")
    def _can_be_rendered(self) -> RenderRewardConfig:
        renderings = 2 if self.target == "answer" else 1
        if self.timeout_s < renderings * self.render_timeout_s:
            raise ValueError(
                f"timeout_s ({self.timeout_s:g}) is below {renderings} times render_timeout_s "
                f"({self.render_timeout_s:g}), the time of {renderings} rendering(s)"
            )
        return self


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
