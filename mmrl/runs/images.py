"""The images of a run's samples: named by content, shared by its attempts, hard links to the image store."""

from __future__ import annotations

import re
from pathlib import Path

from mmrl.runs.disk import link_or_copy
from mmrl.runs.layout import image_path

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def keep_image(run_dir: Path, sha256: str, source: Path) -> Path:
    """Puts the image into the run directory, unless it is there. Returns where it lies.

    Raises FileNotFoundError when `source` is missing, RunFailedError when the image cannot be written.
    """
    kept = find_image(run_dir, sha256)
    if kept is not None:
        return kept
    with source.open("rb") as file:
        suffix = ".png" if file.read(len(_PNG_SIGNATURE)) == _PNG_SIGNATURE else ".jpg"
    target = image_path(run_dir, sha256, suffix)
    link_or_copy(source, target)
    return target


def find_image(run_dir: Path, sha256: str) -> Path | None:
    """Where the image of this SHA-256 lies in the run directory; None if it was not kept."""
    if not _SHA256.fullmatch(sha256):
        return None
    for suffix in (".png", ".jpg"):
        path = image_path(run_dir, sha256, suffix)
        if path.is_file():
            return path
    return None
