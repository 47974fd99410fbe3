"""What tells one model folder from another behind the same path: the content of all files that loading reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

_SUFFIXES = (".json", ".safetensors", ".bin", ".model", ".txt", ".jinja")


def model_fingerprint(path: str) -> dict[str, Any]:
    """`files`: name -> SHA-256 of the folder's files; `vocabulary`: rows of the embedding, where config.json says so.

    For a name on the hub, `commit`: the revision that is in the local cache.
    """
    folder = Path(path)
    if not folder.is_dir():
        return {"commit": _cached_commit(path)}
    files = sorted(entry for entry in folder.iterdir() if entry.is_file() and entry.suffix in _SUFFIXES)
    with ThreadPoolExecutor(max_workers=4) as threads:
        hashes = list(threads.map(_sha256, files))
    return {
        "files": {file.name: digest for file, digest in zip(files, hashes, strict=True)},
        "vocabulary": _vocabulary(folder / "config.json"),
    }


def fingerprint_difference(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """How the model of `now` differs from that of `before`, as a clause; None where it is the same."""
    if before == now:
        return None
    if before.get("vocabulary") != now.get("vocabulary"):
        return f"its vocabulary has {now.get('vocabulary')} rows and had {before.get('vocabulary')}"
    old, new = before.get("files", {}), now.get("files", {})
    for words, names in (
        ("other content in", [name for name in old if name in new and old[name] != new[name]]),
        ("no more", [name for name in old if name not in new]),
        ("new", [name for name in new if name not in old]),
    ):
        if names:
            return f"it has {words} {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return f"it is of revision {now.get('commit')} and was of {before.get('commit')}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _vocabulary(config: Path) -> int | None:
    try:
        values = json.loads(config.read_text())
        found = values.get("text_config", {}).get("vocab_size", values.get("vocab_size"))
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, int) else None


def _cached_commit(name: str) -> str | None:
    from huggingface_hub import try_to_load_from_cache

    found = try_to_load_from_cache(name, "config.json")
    return Path(found).parent.name if isinstance(found, str) else None
