"""The reward `render`: SVG is rendered in a real sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from mmrl.config.reward import RenderRewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.data.images import ImageStore
from mmrl.rewards import RewardItem, RewardRunner, Score
from mmrl.rewards.base import RewardFailure
from mmrl.rewards.vision.render import RenderReward
from mmrl.types import ImagePart, Message, Sample, TextPart

ALL = ("ssim", "pixel", "edge")


def svg(body: str, size: str = 'viewBox="0 0 100 60"') -> str:
    head = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return f"<svg {head} {size}>{body}</svg>"


SQUARE = '<rect x="20" y="20" width="30" height="30" fill="red"/>'
RIGHT = svg(SQUARE)


@pytest.fixture
def pictured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    """A sample with a picture of a red square on white, 100x60 pixels."""
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    picture = Image.new("RGB", (100, 60), "white")
    ImageDraw.Draw(picture).rectangle((20, 20, 49, 49), fill="red")
    image = ImageStore().add(picture)
    return Sample("s", (Message("user", (ImagePart(image), TextPart("Write it as SVG."))),), None)


def score(sample: Sample, response: str, **settings: Any) -> Score:
    return RenderReward(RenderRewardConfig(**settings)).score(RewardItem(sample, response))


def test_right_near_wrong_malformed_and_empty_sources(pictured: Sample) -> None:
    right = score(pictured, f"```svg\n{RIGHT}\n```", measures=ALL)
    assert right.value == pytest.approx(1.0, abs=0.01)
    assert right.extracted == RIGHT
    assert set(right.extras) == set(ALL)
    near = score(pictured, svg(SQUARE.replace('x="20"', 'x="24"')))
    wrong = score(pictured, svg('<circle cx="80" cy="10" r="9" fill="blue"/>'))
    assert near.value is not None
    assert wrong.value is not None
    assert 0.9 > near.value > 0.2 > wrong.value
    blank = score(pictured, svg(""), measures=ALL)
    assert blank.value == pytest.approx(0.0, abs=0.01)
    assert (score(pictured, svg(""), over_blank=False).value or 0) > 0.5
    malformed = score(pictured, "<svg><rect></svg>")
    assert malformed.value == 0.0
    assert "it cannot be rendered" in (malformed.explanation or "")
    assert score(pictured, "").explanation == "no SVG in the response"


def test_the_target_may_be_the_picture_of_the_answer() -> None:
    sample = Sample("s", (Message("user", (TextPart("Draw a red square."),)),), RIGHT)
    assert score(sample, RIGHT, target="answer", max_side=100).value == pytest.approx(1.0)
    assert (score(sample, svg(""), target="answer", max_side=100).value) == pytest.approx(0.0)
    broken = Sample("s", sample.messages, "<svg><rect></svg>")
    with pytest.raises(RewardFailure, match="the reference answer cannot be rendered"):
        score(broken, RIGHT, target="answer")


def test_nothing_outside_of_the_source_is_shown(pictured: Sample, tmp_path: Path) -> None:
    file = tmp_path / "right.png"
    Image.new("RGB", (100, 60), "red").save(file)
    for link in (str(file), f"file://{file}", "http://127.0.0.1:9/x.png"):
        body = f'<image xlink:href="{link}" href="{link}" width="100" height="60"/>'
        assert score(pictured, svg(body), measures=ALL).value == pytest.approx(0.0, abs=0.01)
    entity = f'<!DOCTYPE svg [<!ENTITY x SYSTEM "file:///etc/hostname">]>{svg("<text>&x;</text>")}'
    assert score(pictured, entity).value == 0.0


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (svg(SQUARE * 100), "are more than max_chars 2000"),
        (svg("<g>" * 3 + "&x;" + "</g>" * 3), "it cannot be rendered"),
        (svg("<g opacity='0.5' filter='url(#f)'>" * 40 + "</g>" * 39), "it cannot be rendered"),
    ],
)
def test_sources_that_take_too_much_score_zero(pictured: Sample, source: str, problem: str) -> None:
    found = score(pictured, source, max_chars=2000)
    assert found.value == 0.0
    assert problem in (found.explanation or "")


def test_a_source_that_renders_for_ever_costs_its_time_only(pictured: Sample) -> None:
    uses = "".join(f'<g id="g{level}">' + f'<use xlink:href="#g{level - 1}"/>' * 10 + "</g>" for level in range(1, 9))
    found = score(
        pictured, svg(f'<defs><g id="g0">{SQUARE}</g>{uses}</defs><use xlink:href="#g8"/>'), render_timeout_s=1
    )
    assert found.value == 0.0
    assert "it cannot be rendered" in (found.explanation or "")


def test_a_huge_picture_is_drawn_in_the_size_of_the_target(pictured: Sample) -> None:
    assert score(pictured, svg(SQUARE, 'width="1e7" height="6e6" viewBox="0 0 100 60"')).value == pytest.approx(
        1, abs=0.01
    )


def test_a_sample_without_the_image_is_a_failure(pictured: Sample) -> None:
    config = RenderRewardConfig(image=1)
    with RewardRunner([config], RewardRunnerConfig(workers=1)) as runner:
        (result,) = runner.score_texts([(pictured, RIGHT)])
    assert result.total is None
    assert "the sample has 1 images; the target is image 1" in (result.parts[0].error or "")
