"""Whatever a model wrote is shown as it stands and does nothing: on the pages, and in a report on a disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from evaluation_builders import SETTINGS, evaluated
from homes import Home
from looking import settle
from playwright.sync_api import Page, expect

from mmrl.data.images import ImageStore
from mmrl.evaluation.panels import PanelSettings, panel_of, save_panel
from mmrl.types import Message, Sample, TextPart

Consoles = Callable[..., Any]

HTML = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script><h1>big</h1>"
MARKDOWN = "# heading\n[link](javascript:document.title='owned') ![i](http://example.org/i.png) **bold** $\\frac{1}{2}$"
CONTROL = "before\u202eafter\x1b[2J\x00end"
HEBREW = "התשובה היא 42, כן?"
LONG = "word " * 200_000
TEXTS = [HTML, MARKDOWN, CONTROL, f"{HEBREW} {LONG}"]
SHOWN = ["<h1>big</h1>", "# heading", "before\\u202eafter\\x1b[2J\\x00end", HEBREW]


def _write(home: Home) -> None:
    """As responses of a run's last step, and as the answers of two checkpoints."""
    run = home.path / "runs"
    (shard,) = [file for file in run.rglob("train-000060.parquet") if "running" in str(file)]
    table = pq.read_table(shard)
    place = table.schema.get_field_index("response")
    pq.write_table(table.set_column(place, "response", pa.array(TEXTS * 2)), shard)
    prompts = [Sample(f"s{n}", (Message("user", (TextPart(text[:2000]),)),), "4") for n, text in enumerate(TEXTS)]
    panel = panel_of(prompts, PanelSettings(max_response_tokens=SETTINGS.max_response_tokens), name="nasty")
    save_panel(panel, ImageStore())
    for step in (0, 9):
        evaluated(panel, step, *((f"{text} {step}",) for text in TEXTS), run=run / "nasty")


def _expect_inert(page: Page) -> None:
    for text in SHOWN:
        expect(page.get_by_text(text).first).to_be_visible()
    main = page.locator("[data-testid=stMain]")
    for made in (
        "img[src='x']",
        "h1:text-is('big')",
        "h1:text-is('heading')",
        ".katex",
        "a[href^='javascript']",
        "script",
    ):
        assert not main.locator(made).count(), made
    assert not page.locator("img[src^='http://example.org']").count()
    assert page.title() != "owned"
    assert not {"\u202e", "\x1b"} & set(main.inner_text())


def test_x06_no_text_of_a_model_does_anything_and_all_of_it_can_be_read(
    start_console: Consoles, open_page: Callable[..., Page], tmp_path: Path
) -> None:
    console, home = start_console("small")
    with home.active():
        _write(home)
    page = open_page(console, f"/responses?run={home.jobs['running']}&step=60&group=0")
    _expect_inert(page)
    assert len(page.locator("[data-testid=stMain]").inner_text()) < 50_000, "a long text is cut"
    page.get_by_role("button", name="Show all 1,000,019 characters").click()
    expect(page.get_by_role("button", name="Show less")).to_be_visible()
    expect(page.locator("[data-testid=stCode]").first).to_contain_text(HEBREW)
    _expect_report(page, open_page, console, tmp_path)
    page.goto("/compare")
    settle(page)
    _expect_inert(page)


def _expect_report(page: Page, open_page: Callable[..., Page], console: Any, folder: Path) -> None:
    """Made and taken from the page, then opened from the disk by a browser without a network."""
    page.get_by_role("button", name="Export").click()
    page.get_by_role("button", name="Make the file").click()
    expect(page.get_by_text("all 8 rows")).to_be_visible()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download").click()
    file = folder / "report.html"
    download.value.save_as(file)
    alone = open_page(console, file.as_uri(), settles=False, offline=True)
    for text in SHOWN:
        expect(alone.get_by_text(text).first).to_be_visible()
    assert alone.locator("img").first.evaluate("image => image.naturalWidth") > 0
    assert not alone.locator("script, h1:text-is('big'), img[src='x']").count()
    assert alone.title().startswith("Responses of running")
