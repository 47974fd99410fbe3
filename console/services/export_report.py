"""A report: one HTML page that opens from a disk, follows light and dark, asks nothing of a network and runs nothing.

Every text is escaped and inert, and long ones are cut; images lie in it, smaller than they are.
"""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from console.services.exports import Bounded, Export, Record, nested_text, plain_text
from console.services.formats import exact_text, number_text
from mmrl.runs.inert import inert

IMAGE_SIDE = 512
"""Longest side of an image, in pixels."""
MAX_IMAGE_BYTES = 16 * 1024 * 1024
"""Of all images of a report."""
MAX_TEXT = 20_000
"""Characters of one text."""

_LONG = 24
"""Characters from which on a column of texts is made wide."""
_STYLE = """
:root{color-scheme:light dark;--ink:#0a0f12;--paper:#fff;--soft:#f3f6f7;--line:#d5dde0;--gray:#55626a;--accent:#0a6560}
@media(prefers-color-scheme:dark){:root{--ink:#e6ecef;--paper:#13181b;--soft:#1d2428;--line:#364147;--gray:#a3b0b7;
--accent:#5fcfc6}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1280px;padding:2rem 1.2rem;background:var(--paper);
color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
h1{font-size:1.6rem;margin:0 0 .6rem}h2{font-size:1.1rem;margin:0 0 .8rem}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1.2rem;margin:0 0 1rem}dt{color:var(--gray)}
dd{margin:0;overflow-wrap:anywhere;white-space:pre-wrap;unicode-bidi:plaintext}
section{border:1px solid var(--line);border-radius:.4rem;padding:1rem;margin:1.2rem 0}
img{max-width:100%;height:auto;border-radius:.3rem;margin:0 .6rem .6rem 0;background:var(--soft)}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-size:.92rem}
th{text-align:left;color:var(--gray);font-weight:600;white-space:nowrap}
th,td{padding:.4rem .7rem .4rem 0;border-bottom:1px solid var(--line);vertical-align:top}
td.number,th.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.long{min-width:min(22rem,70vw)}td.text{white-space:pre-wrap;overflow-wrap:anywhere;unicode-bidi:plaintext}
.none{color:var(--gray)}footer,.told{color:var(--gray);font-size:.9rem}
@media print{section{break-inside:avoid}}
"""
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


def report(export: Export, records: Bounded) -> tuple[bytes, list[str]]:
    """The page, and what was left out of it besides records."""
    images = _Images()
    sections = [_section(export, list(own), images) for _, own in groupby(records, key=lambda record: record.section)]
    left_out = images.told()
    if records.is_cut:
        of = max(export.total, records.num_rows + 1)
        left_out.insert(0, f"These are the first {records.num_rows:,} of {of:,} rows.")
    told = "".join(f'<p class="told">{_safe(text)}</p>' for text in left_out)
    about = {**export.about, "exported": exact_text(datetime.now(UTC))}
    page = (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_safe(export.title)}</title>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><main><h1>{_safe(export.title)}</h1>{_facts(about.items())}{told}"
        f"{''.join(sections)}</main><footer>Made by mmrl. It needs no network and runs no code.</footer></body></html>"
    )
    return page.encode(), [text.rstrip(".") for text in images.told()]


def _section(export: Export, records: Sequence[Record], images: _Images) -> str:
    first = records[0]
    shared = [(name, first.values[name]) for name in export.shared if name in first.values]
    heading = f"<h2><bdi>{_safe(first.section)}</bdi></h2>" if first.section else ""
    pictures = "".join(images.shown(path, number) for number, path in enumerate(first.images, start=1))
    return f"<section>{heading}{pictures}{_facts(shared)}{_table(records, set(export.shared))}</section>"


def _table(records: Sequence[Record], leave_out: set[str]) -> str:
    columns = [name for name in dict.fromkeys(n for each in records for n in each.values) if name not in leave_out]
    if not columns:
        return ""
    numbers = {name for name in columns if all(_is_number(record.values.get(name)) for record in records)}
    long = {name for name in columns if any(_is_long(record.values.get(name)) for record in records)}
    head = "".join(f"<th{_kind(name in numbers)}>{_safe(name)}</th>" for name in columns)
    rows = (
        f"<tr>{''.join(_cell(record.values.get(name), name in numbers, name in long) for name in columns)}</tr>"
        for record in records
    )
    head_row = f"<thead><tr>{head}</tr></thead>"
    return f'<div class="wide" tabindex="0"><table>{head_row}<tbody>{"".join(rows)}</tbody></table></div>'


def _cell(value: Any, is_number: bool, is_long: bool) -> str:
    if is_number:
        return f'<td class="number">{_shown(value)}</td>'
    return f'<td class="text{" long" if is_long else ""}" dir="auto">{_shown(value)}</td>'


def _kind(is_number: bool) -> str:
    return ' class="number"' if is_number else ""


def _facts(pairs: Iterable[tuple[str, Any]]) -> str:
    lines = "".join(f'<dt>{_safe(name)}</dt><dd dir="auto">{_shown(value)}</dd>' for name, value in pairs)
    return f"<dl>{lines}</dl>" if lines else ""


def _shown(value: Any) -> str:
    if value is None:
        return '<span class="none">none</span>'
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return number_text(value)
    return _safe(value if isinstance(value, str) else nested_text(value)) or '<span class="none">(empty)</span>'


def _safe(text: str) -> str:
    safe = inert(plain_text(text[:MAX_TEXT]))
    return html.escape(safe) + (f"… ({len(text):,} characters)" if len(text) > MAX_TEXT else "")


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _is_long(value: Any) -> bool:
    return isinstance(value, str) and len(value) > _LONG


class _Images:
    """Images of one report, as data in it, as long as there is room."""

    def __init__(self) -> None:
        self._num_bytes = self._num_left_out = 0

    def shown(self, path: Path, number: int) -> str:
        try:
            data = _shrunk(path)
        except (OSError, ValueError) as error:
            return f"<p>image {number} cannot be shown: {_safe(str(error))[:200]}</p>"
        if self._num_bytes + len(data) > MAX_IMAGE_BYTES:
            self._num_left_out += 1
            return f"<p>image {number} was left out: the images before it fill this report</p>"
        self._num_bytes += len(data)
        return f'<img alt="image {number}" src="data:image/jpeg;base64,{base64.b64encode(data).decode()}">'

    def told(self) -> list[str]:
        num = self._num_left_out
        return [f"{num:,} {'image was' if num == 1 else 'images were'} left out for the report's size."] if num else []


def _shrunk(path: Path) -> bytes:
    from PIL import Image

    with Image.open(path, formats=("PNG", "JPEG")) as image:
        image.draft("RGB", (IMAGE_SIDE, IMAGE_SIDE))
        small = image.convert("RGB")
    small.thumbnail((IMAGE_SIDE, IMAGE_SIDE), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    small.save(buffer, format="JPEG", quality=85)
    return buffer.getvalue()
