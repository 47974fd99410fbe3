"""Renderers of SVG and HTML, each a program in the sandbox: source in, PNG out."""

from __future__ import annotations

import re
import sys
from abc import ABC, abstractmethod
from functools import cache
from typing import ClassVar

from mmrl.config.reward_code import Isolation
from mmrl.errors import ConfigError
from mmrl.rewards.sandbox.sandbox import Limits, Run, Sandbox, find_program

_BROWSERS = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_DEFAULT_SIDE = 256
_ATTRIBUTE = re.compile(r"""\b(width|height|viewBox)\s*=\s*["']([^"']*)["']""")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
_ENTITY = re.compile(r"<!ENTITY|<!DOCTYPE[^>]*\[", re.IGNORECASE)

_DRAW_SVG = """\
import sys

import resvg_py

source, width, height = open("source.svg").read(), int(sys.argv[1]), int(sys.argv[2])
size = {"width": width, "height": height}
png = resvg_py.svg_to_bytes(svg_string=source, **size, background="#ffffff", resources_dir="/dev/shm")
sys.stdout.buffer.write(bytes(png))
"""
_DRAW_HTML = """\
import os
import subprocess
import sys

browser, width, height = sys.argv[1:]
here = os.getcwd()
settings = [
    "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-extensions",
    "--disable-dev-shm-usage", "--no-zygote", "--force-device-scale-factor=1",
    "--host-resolver-rules=MAP * ~NOTFOUND",
    "--virtual-time-budget=2000", f"--window-size={width},{height}",
    f"--user-data-dir={here}/profile", f"--screenshot={here}/picture.png",
]
subprocess.run([browser, *settings, f"{here}/source.html"], stdout=sys.stderr, check=True)
sys.stdout.buffer.write(open("picture.png", "rb").read())
"""


class RenderTrouble(Exception):
    """A source that cannot be rendered; the message says why."""


class Renderer(ABC):
    """processes: how many it needs. any_addresses: whether it reserves more addresses than memory."""

    processes: ClassVar[int]
    any_addresses: ClassVar[bool]

    def __init__(self, isolation: Isolation) -> None:
        self.sandbox = Sandbox(isolation)

    @abstractmethod
    def render(self, source: str, size: tuple[int, int], limits: Limits) -> bytes:
        """A PNG of `size` pixels, width and height. Raises RenderTrouble."""

    @abstractmethod
    def size_of(self, source: str, max_side: int) -> tuple[int, int]:
        """The size in which a reference is drawn."""


class SvgRenderer(Renderer):
    """resvg: static SVG, no scripts, no entities."""

    processes = 8
    any_addresses = False

    def render(self, source: str, size: tuple[int, int], limits: Limits) -> bytes:
        if _ENTITY.search(source):
            raise RenderTrouble("it declares entities, which are not read")
        files = {"draw.py": _DRAW_SVG, "source.svg": source}
        argv = [sys.executable, "-I", "draw.py", *map(str, size)]
        return _png_of(self.sandbox.run(argv, files=files, limits=limits))

    def size_of(self, source: str, max_side: int) -> tuple[int, int]:
        """In the proportions that the source says, its longest side `max_side`."""
        width, height = _proportions(source)
        scale = max_side / max(width, height)
        return max(1, round(width * scale)), max(1, round(height * scale))


class HtmlRenderer(Renderer):
    """A headless Chromium; scripts run for two seconds of page time, and nothing is loaded from anywhere."""

    processes = 256
    any_addresses = True

    def __init__(self, isolation: Isolation) -> None:
        browser = find_browser()
        if browser is None:
            raise ConfigError(
                f"reward 'render' with language html needs Chromium, and none of {', '.join(_BROWSERS)} is installed; "
                "install the Debian package chromium, or render svg"
            )
        super().__init__(isolation)
        self._browser = browser

    def render(self, source: str, size: tuple[int, int], limits: Limits) -> bytes:
        files = {"draw.py": _DRAW_HTML, "source.html": source}
        argv = [sys.executable, "-I", "draw.py", self._browser, *map(str, size)]
        return _png_of(self.sandbox.run(argv, files=files, limits=limits))

    def size_of(self, source: str, max_side: int) -> tuple[int, int]:
        return max_side, max_side


def find_browser() -> str | None:
    """The Chromium that renders HTML, if one is installed."""
    return find_program(_BROWSERS)


@cache
def renderer_for(language: str, isolation: Isolation) -> Renderer:
    """Raises ConfigError where what it needs is not installed, or the sandbox cannot be made."""
    return SvgRenderer(isolation) if language == "svg" else HtmlRenderer(isolation)


def _png_of(run: Run) -> bytes:
    if run.stopped is not None:
        limit = {"time": "longer than render_timeout_s", "memory": "more memory than memory_mb"}[run.stopped]
        raise RenderTrouble(f"rendering takes {limit}")
    if run.exit_code != 0 or not run.stdout:
        last = run.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise RenderTrouble(last[-200:] or f"the renderer ended with exit code {run.exit_code}")
    return run.stdout


def _proportions(source: str) -> tuple[float, float]:
    head = source[source.find("<svg") :].partition(">")[0]
    values = dict(_ATTRIBUTE.findall(head))
    numbers = [float(number) for number in _NUMBER.findall(values.get("viewBox", ""))]
    if len(numbers) == 4 and min(numbers[2:]) > 0:
        return numbers[2], numbers[3]
    sides = [_NUMBER.match(values.get(name, "")) for name in ("width", "height")]
    width, height = (float(side.group()) if side else 0.0 for side in sides)
    return (width, height) if width > 0 and height > 0 else (_DEFAULT_SIDE, _DEFAULT_SIDE)
