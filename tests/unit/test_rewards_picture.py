"""How pictures are compared, and how sources are found; rendering itself is among the integration tests."""

from __future__ import annotations

import numpy as np
import pytest
from PIL import Image

from mmrl.config.reward import RenderRewardConfig
from mmrl.errors import ConfigError
from mmrl.rewards.vision import rendering
from mmrl.rewards.vision.picture import MEASURES, edge, over_blank, pixel, ssim
from mmrl.rewards.vision.render import find_source, fitted, on_white


def flat(grey: int) -> Image.Image:
    return Image.new("RGB", (40, 30), (grey, grey, grey))


def noise() -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (30, 40, 3), dtype=np.uint8))


@pytest.mark.parametrize("name", MEASURES)
def test_equal_pictures_score_one_and_others_less(name: str) -> None:
    assert MEASURES[name](noise(), noise()) == pytest.approx(1.0)
    assert MEASURES[name](noise(), flat(128)) < 0.95
    assert MEASURES[name](flat(255), flat(255)) == pytest.approx(1.0)


def test_ssim_of_flat_pictures_is_worked_by_hand() -> None:
    """Without variance it is (2xy + C1) / (x² + y² + C1) with C1 = 2.55²."""
    expected = (2 * 100 * 200 + 2.55**2) / (100**2 + 200**2 + 2.55**2)
    assert ssim(flat(100), flat(200)) == pytest.approx(expected)


def test_pixel_is_one_minus_the_mean_difference() -> None:
    assert pixel(flat(0), flat(51)) == pytest.approx(0.8)
    assert pixel(Image.new("RGB", (2, 2), "red"), Image.new("RGB", (2, 2), "blue")) == pytest.approx(1 / 3)


def test_edges_count_where_they_are() -> None:
    left, right = flat(255), flat(255)
    left.paste((0, 0, 0), (5, 5, 12, 25))
    right.paste((0, 0, 0), (28, 5, 35, 25))
    assert edge(left, left) == pytest.approx(1.0)
    assert edge(left, right) < 0.05
    assert edge(left, flat(255)) == 0.0


@pytest.mark.parametrize("name", MEASURES)
def test_an_empty_picture_is_worth_nothing_over_blank(name: str) -> None:
    measure, target = MEASURES[name], flat(255)
    target.paste((0, 0, 0), (5, 5, 8, 8))
    blank = measure(flat(255), target)
    assert over_blank(blank, measure, target) == pytest.approx(0.0)
    assert over_blank(1.0, measure, target) == pytest.approx(1.0)
    assert over_blank(blank / 2, measure, target) == 0.0
    assert over_blank(0.3, measure, flat(255)) == 0.3


SVG = '<svg xmlns="http://www.w3.org/2000/svg"><circle r="3"/></svg>'


@pytest.mark.parametrize(
    ("response", "source"),
    [
        (f"```svg\n{SVG}\n```", SVG),
        (f"```xml\n<?xml version='1.0'?>\n{SVG}\n```", f"<?xml version='1.0'?>\n{SVG}"),
        (f"First <svg></svg>, then {SVG}.", SVG),
        (f"```\n{SVG}\n```\nNot <svg></svg>", SVG),
        ('<svg width="3"/>', '<svg width="3"/>'),
        ("<svg><circle", None),
        ("a circle", None),
        ("", None),
    ],
)
def test_the_source_is_the_last_whole_svg(response: str, source: str | None) -> None:
    assert find_source(response, "svg") == source


def test_html_is_found_with_its_doctype() -> None:
    page = "<!DOCTYPE html>\n<html><body>x</body></html>"
    assert find_source(f"Here:\n```html\n{page}\n```", "html") == page
    assert find_source("<p>x</p>", "html") is None


def test_pictures_are_fitted_in_proportion_and_laid_on_white() -> None:
    assert fitted((1000, 500), 100) == (100, 50)
    assert fitted((30, 20), 100) == (30, 20)
    assert fitted((3000, 1), 100) == (100, 1)
    clear = Image.new("RGBA", (2, 2), (0, 0, 0, 0))
    assert on_white(clear, (2, 2)).getpixel((0, 0)) == (255, 255, 255)


def test_html_without_a_browser_is_refused_with_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendering, "find_browser", lambda: None)
    with pytest.raises(ConfigError, match="install the Debian package chromium, or render svg"):
        rendering.HtmlRenderer("auto")


def test_a_response_must_have_the_time_that_its_renderings_take() -> None:
    with pytest.raises(ValueError, match=r"timeout_s \(15\) is below 2 times render_timeout_s \(10\)"):
        RenderRewardConfig(target="answer", timeout_s=15)
