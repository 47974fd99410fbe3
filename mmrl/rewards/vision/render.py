"""The reward `render`: SVG or HTML that a response writes is rendered and compared with the target picture."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, ClassVar

from mmrl.config.reward import RenderRewardConfig
from mmrl.data.images import ImageStore
from mmrl.errors import MmrlError
from mmrl.rewards.base import Reward, RewardFailure, RewardItem, Score
from mmrl.rewards.sandbox.sandbox import Limits
from mmrl.rewards.vision.rendering import Renderer, RenderTrouble, renderer_for

if TYPE_CHECKING:
    from PIL.Image import Image

_FENCED = re.compile(
    r"^[ \t]*```[ \t]*(?:svg|xml|html)?[ \t]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE | re.IGNORECASE
)
_ELEMENT = {
    "svg": re.compile(r"(?:<\?xml[^>]*>\s*)?<svg\b.*?</svg\s*>|<svg\b[^>]*/>", re.DOTALL | re.IGNORECASE),
    "html": re.compile(r"(?:<!doctype[^>]*>\s*)?<html\b.*?</html\s*>", re.DOTALL | re.IGNORECASE),
}
_MIB = 2**20


class RenderReward(Reward):
    """The mean of the measures between the rendered picture and the target, both drawn on white in the target's size.

    A source that is missing, too long or cannot be rendered (not well-formed, too slow, too large) scores 0. The
    renderer runs in the sandbox of the reward `code`: no network, no file but the system's, so that a link in the
    source shows nothing.
    """

    isolated: ClassVar[bool] = True

    def __init__(self, config: RenderRewardConfig) -> None:
        self._config = config
        self._renderer: Renderer = renderer_for(config.language, config.isolation)
        self._limits = Limits(
            wall_s=config.render_timeout_s,
            memory_bytes=config.memory_mb * _MIB,
            processes=self._renderer.processes,
            output_bytes=64 * _MIB,
            disk_bytes=128 * _MIB,
            any_addresses=self._renderer.any_addresses,
        )

    @classmethod
    def preload(cls) -> None:
        import scipy.ndimage  # noqa: F401  (takes a while)

    def score(self, item: RewardItem) -> Score:
        from mmrl.rewards.vision.picture import MEASURES, over_blank

        target = self._target(item)
        source = find_source(item.response, self._config.language)
        if source is None:
            return Score(0.0, None, f"no {self._config.language.upper()} in the response")
        if len(source) > self._config.max_chars:
            return Score(0.0, source, f"{len(source)} characters are more than max_chars {self._config.max_chars}")
        try:
            picture = self._render(source, target.size)
        except RenderTrouble as trouble:
            return Score(0.0, source, f"it cannot be rendered: {trouble}")
        values: dict[str, float] = {name: MEASURES[name](picture, target) for name in self._config.measures}
        if self._config.over_blank:
            values = {name: over_blank(value, MEASURES[name], target) for name, value in values.items()}
        notes = ", ".join(f"{name} {value:.3f}" for name, value in values.items())
        return Score(sum(values.values()) / len(values), source, notes, values if len(values) > 1 else {})

    def _render(self, source: str, size: tuple[int, int]) -> Image:
        from PIL import Image

        png = self._renderer.render(source, size, self._limits)
        try:
            with Image.open(io.BytesIO(png), formats=("PNG",)) as picture:
                if picture.width * picture.height > 4 * self._config.max_side**2:
                    raise RenderTrouble(f"its picture is {picture.width}x{picture.height}")
                return on_white(picture, size)
        except (OSError, ValueError, SyntaxError) as error:
            raise RenderTrouble(f"the renderer gave no picture ({type(error).__name__})") from error

    def _target(self, item: RewardItem) -> Image:
        if self._config.target == "image":
            return self._target_image(item)
        source = find_source(item.answer, self._config.language) or item.answer
        try:
            side = self._config.max_side
            return self._render(source, self._renderer.size_of(source, side))
        except RenderTrouble as trouble:
            raise RewardFailure(f"the reference answer cannot be rendered: {trouble}") from trouble

    def _target_image(self, item: RewardItem) -> Image:
        images = item.sample.images
        if self._config.image >= len(images):
            raise RewardFailure(f"the sample has {len(images)} images; the target is image {self._config.image}")
        try:
            picture = ImageStore().open(images[self._config.image])
        except MmrlError as error:
            raise RewardFailure(str(error)) from error
        return on_white(picture, fitted(picture.size, self._config.max_side))


def find_source(response: str, language: str) -> str | None:
    """The last whole element of the language, in the last ``` block if that has one; None where there is none."""
    blocks = _FENCED.findall(response)
    for text in [*reversed(blocks), response]:
        if found := list(_ELEMENT[language].finditer(text)):
            return found[-1].group()
    return None


def fitted(size: tuple[int, int], max_side: int) -> tuple[int, int]:
    """The size with its longest side at most `max_side`, in proportion; no side under 1."""
    scale = min(1.0, max_side / max(size))
    return max(1, round(size[0] * scale)), max(1, round(size[1] * scale))


def on_white(picture: Image, size: tuple[int, int]) -> Image:
    """RGB in the given size, transparency on white."""
    from PIL import Image

    whole = picture.convert("RGBA")
    white = Image.new("RGBA", whole.size, "white")
    flat = Image.alpha_composite(white, whole).convert("RGB")
    return flat if flat.size == size else flat.resize(size, Image.Resampling.BICUBIC)
