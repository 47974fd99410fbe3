"""The reward `render` with HTML: a real Chromium draws it in a real sandbox."""

from __future__ import annotations

import io
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from mmrl.config.reward import RenderRewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.data.images import ImageStore
from mmrl.rewards import RewardItem, RewardRunner, Score
from mmrl.rewards.sandbox.sandbox import Limits
from mmrl.rewards.vision.render import RenderReward
from mmrl.rewards.vision.rendering import _DRAW_HTML, HtmlRenderer, find_browser
from mmrl.types import ImagePart, Message, Sample, TextPart

SQUARE = '<div style="position:absolute; left:20px; top:20px; width:30px; height:30px; background:red"></div>'
LIMITS = Limits(wall_s=30, memory_bytes=2**30, processes=256, output_bytes=2**26, disk_bytes=2**27, any_addresses=True)


def html(body: str) -> str:
    return f'<html><body style="margin:0; background:white">{body}</body></html>'


RIGHT = html(SQUARE)


@pytest.fixture
def pictured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sample:
    """A sample with a picture of a red square on white, 100x60 pixels."""
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    picture = Image.new("RGB", (100, 60), "white")
    ImageDraw.Draw(picture).rectangle((20, 20, 49, 49), fill="red")
    image = ImageStore().add(picture)
    return Sample("s", (Message("user", (ImagePart(image), TextPart("Write it as HTML."))),), None)


@pytest.fixture
def red_server() -> Iterator[tuple[str, list[str]]]:
    """The address of a server whose every answer is a red picture, and the paths that it was asked for."""
    stream, asked = io.BytesIO(), []
    Image.new("RGB", (100, 60), "red").save(stream, "PNG")

    class Red(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "image/png")
            self.end_headers()
            self.wfile.write(stream.getvalue())

        def log_message(self, format: str, *args: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Red) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
        server.shutdown()


def score(sample: Sample, response: str, **settings: Any) -> Score:
    config = RenderRewardConfig(language="html", **{"render_timeout_s": 30.0, "timeout_s": 90.0, **settings})
    return RenderReward(config).score(RewardItem(sample, response))


def test_right_near_and_empty_pages(pictured: Sample) -> None:
    right = score(pictured, f"```html\n{RIGHT}\n```", measures=("ssim", "pixel", "edge"))
    assert right.value == pytest.approx(1.0, abs=0.01)
    assert right.extracted == RIGHT
    near = score(pictured, html(SQUARE.replace("left:20px", "left:24px")))
    assert near.value is not None
    assert 0.9 > near.value > 0.2
    assert score(pictured, html(""), measures=("pixel",)).value == pytest.approx(0.0, abs=0.01)
    assert score(pictured, "no page").explanation == "no HTML in the response"


def test_scripts_run_and_text_is_drawn_in_the_fonts_of_the_system() -> None:
    script = f"<script>setTimeout(() => document.body.innerHTML = `{SQUARE}`, 500)</script>"
    drawn = picture_of(HtmlRenderer("auto"), html(script + "<p>Seven</p>"))
    assert drawn.getpixel((35, 35)) == (255, 0, 0)
    words = picture_of(HtmlRenderer("auto"), html("<p style='font-size:30px; margin:0'>Seven</p>"))
    assert words.convert("L").getextrema()[0] < 60


def test_the_target_may_be_the_page_of_the_answer() -> None:
    sample = Sample("s", (Message("user", (TextPart("Draw a red square."),)),), RIGHT)
    assert score(sample, RIGHT, target="answer", max_side=100).value == pytest.approx(1.0)


def test_a_page_reaches_no_server_and_no_file(
    pictured: Sample, red_server: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, asked = red_server
    file = tmp_path / "red.png"
    Image.new("RGB", (100, 60), "red").save(file)
    pictures = "".join(
        f'<img src="{link}" style="position:absolute; left:0; top:0">'
        for link in (f"{address}/x.png", f"file://{file}")
    )
    fetched = f"<script>fetch('{address}/told', {{mode: 'no-cors'}})</script>"
    assert score(pictured, html(pictures + fetched), measures=("pixel",)).value == pytest.approx(0.0, abs=0.01)
    assert asked == []


def test_even_outside_of_the_sandbox_the_browser_looks_nothing_up(
    red_server: tuple[str, list[str]], tmp_path: Path
) -> None:
    """Where a system allows no namespaces, a renderer could reach the network."""
    address, asked = red_server
    browser = find_browser()
    assert browser is not None
    (tmp_path / "draw.py").write_text(_DRAW_HTML)
    (tmp_path / "source.html").write_text(html(f'<img src="{address}/x.png" style="position:absolute">{SQUARE}'))
    command = [sys.executable, "-I", "draw.py", browser, "100", "60"]
    done = subprocess.run(command, cwd=tmp_path, env={"HOME": str(tmp_path)}, capture_output=True, check=True)
    drawn = Image.open(io.BytesIO(done.stdout)).convert("RGB")
    assert (drawn.getpixel((35, 35)), drawn.getpixel((80, 50))) == ((255, 0, 0), (255, 255, 255))
    assert asked == []


@pytest.mark.parametrize(
    ("script", "settings", "problem"),
    [
        ("while (true) {}", {"render_timeout_s": 4.0}, "longer than render_timeout_s"),
        (
            "const kept = []; while (true) kept.push(new Array(1e6).fill(kept.length + 0.5))",
            {"memory_mb": 600},
            "more memory than memory_mb",
        ),
    ],
)
def test_a_page_that_takes_too_much_costs_its_response_only(
    pictured: Sample, script: str, settings: dict[str, float], problem: str
) -> None:
    found = score(pictured, html(f"<script>{script}</script>"), **settings)
    assert found.value == 0.0
    assert problem in (found.explanation or "")


def test_pages_are_scored_in_the_processes_of_the_runner(pictured: Sample) -> None:
    config = RenderRewardConfig(language="html", timeout_s=60.0, render_timeout_s=30.0)
    with RewardRunner([config], RewardRunnerConfig(workers=1)) as runner:
        right, broken = runner.score_texts([(pictured, RIGHT), (pictured, "<html><body><div></html>")])
    assert right.total == pytest.approx(1.0, abs=0.01)
    assert broken.total == pytest.approx(0.0, abs=0.01), "a browser draws whatever it can of a page"


def test_the_browser_is_found() -> None:
    assert find_browser() is not None, "install the Debian package chromium: these tests need it"


def picture_of(renderer: HtmlRenderer, source: str) -> Image.Image:
    return Image.open(io.BytesIO(renderer.render(source, (100, 60), LIMITS))).convert("RGB")
