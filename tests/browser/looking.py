"""How browser tests wait for a page, look at it and photograph it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page

SCREENSHOTS_VARIABLE = "MMRL_SCREENSHOTS"
"""A folder to put screenshots in, such as docs/images/console; without it they go with the test's own files."""
WIDTHS = {"wide": 1280, "narrow": 420}
THEMES = ("light", "dark")
_SERIOUS = ("serious", "critical")
_COLOURS = 192
_SETTLED = """async () => {
  const still = () => {
    const app = document.querySelector('[data-testid=stApp]');
    return app && app.getAttribute('data-test-script-state') === 'notRunning'
      && app.getAttribute('data-test-connection-state') === 'CONNECTED'
      && !document.querySelector('[data-stale=true], [data-testid=stSkeleton]');
  };
  for (let quiet = 0, tries = 0; tries < 1200; tries++) {
    quiet = still() ? quiet + 1 : 0;
    if (quiet >= 6) return true;
    await new Promise(done => setTimeout(done, 50));
  }
  return false;
}"""


def settle(page: Page) -> None:
    """Until the script has run and nothing is stale for 300 ms. To wait for a change, wait for its text instead."""
    assert page.evaluate(_SETTLED), f"{page.url} did not settle within 60 s"
    broken = page.locator("[data-testid=stException], [data-testid=stErrorElementStack]")
    assert not broken.count(), f"{page.url}: {broken.first.inner_text()}"


def shoot(page: Page, name: str, folder: Path, *, look: Callable[[Page], None] | None = None) -> list[Path]:
    """The page as it stands, full height, light and dark, wide and narrow: NAME-wide-light.png and so on.

    It is reloaded for each, which loses nothing that the address does not hold. look: called with each.
    """
    folder = Path(os.environ.get(SCREENSHOTS_VARIABLE) or folder)
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for theme in THEMES:
        for size, width in WIDTHS.items():
            with looking(page, theme=theme, width=width):
                path = folder / f"{name}-{size}-{theme}.png"
                _save(page.screenshot(), path)
                found.append(path)
                if look is not None:
                    look(page)
    return found


@contextmanager
def looking(page: Page, *, theme: str, width: int) -> Iterator[None]:
    """The page reloaded in a theme and a width, as high as it is; as it was afterwards."""
    earlier = page.viewport_size or {"width": 1280, "height": 800}
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": 800})
    page.reload()
    settle(page)
    height = page.evaluate("document.querySelector('[data-testid=stMain]').scrollHeight")
    page.set_viewport_size({"width": width, "height": max(400, min(int(height), 6000))})
    page.wait_for_timeout(400)  # charts draw themselves anew
    try:
        yield
    finally:
        page.emulate_media(color_scheme="light")
        page.set_viewport_size(earlier)  # type: ignore[arg-type]


def faults(page: Page) -> dict[tuple[str, str], str]:
    """What axe-core finds to be serious: by rule and element, with what is wrong."""
    from axe_playwright_python.sync_playwright import Axe

    found = {}
    for violation in Axe().run(page).response["violations"]:
        if violation["impact"] in _SERIOUS:
            for node in violation["nodes"]:
                where = " ".join(str(part) for part in node["target"])
                found[violation["id"], where] = f"{violation['help']}: {node['html'][:200]} {node['failureSummary']}"
    return found


def lasting_faults(page: Page) -> dict[tuple[str, str], str]:
    """Those of `faults` that are there again and again: what is being drawn anew may be half there at one look."""
    found = faults(page)
    for _ in range(2):
        if found:
            settle(page)
            again = faults(page)
            found = {where: text for where, text in found.items() if where in again}
    return found


def _save(png: bytes, path: Path) -> None:
    """As few colours as the eye needs: a quarter of the bytes."""
    with Image.open(io.BytesIO(png)) as image:
        image.convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE).save(path, optimize=True)
