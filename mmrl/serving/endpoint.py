"""Where a serving job answers, and with which key: a file of its run directory that only its account reads.

The key is in no event, log, metric or config, and goes into no object store. The file goes when the server does.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

ENDPOINT_FILE = "endpoint.json"


@dataclass(frozen=True)
class Endpoint:
    """url: without a path. model: its name in requests. max_images: in one request."""

    url: str
    model: str
    max_images: int
    key: str = field(repr=False)


@contextlib.contextmanager
def published(run_dir: Path, endpoint: Endpoint) -> Iterator[None]:
    """Within the block others find the endpoint."""
    path = run_dir / ENDPOINT_FILE
    partial = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(asdict(endpoint), file)
        partial.replace(path)
        yield
    finally:
        partial.unlink(missing_ok=True)
        path.unlink(missing_ok=True)


def read_endpoint(run_dir: Path) -> Endpoint | None:
    """None where it does not answer yet, or any more. The file of a server that was killed may outlive it."""
    try:
        return Endpoint(**json.loads((run_dir / ENDPOINT_FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
