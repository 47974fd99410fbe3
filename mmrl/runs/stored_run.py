"""A run in a store as later jobs see it, on any machine: what it has is told, and what is asked for is fetched."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from mmrl.config.secrets import redact
from mmrl.errors import NotFoundError, RunFailedError
from mmrl.runs import layout
from mmrl.runs.config_file import parse_config
from mmrl.runs.mirror import Mirror, is_address, local_folder
from mmrl.runs.records import CheckpointRecord

_CHECKPOINTS = layout.checkpoints_dir(Path()).name


def run_folder(text: str) -> Path:
    """The folder on this machine in which the run that a user named can be read: a run directory, a name, or an address
    in a store, of which all that readers look at is fetched.

    Raises NotFoundError for what is no run, RunFailedError for a store that does not answer.
    """
    return StoredRun(text).fetch_records() if is_address(text) else layout.resolve_run(text)


class StoredRun:
    """Listed once. Methods raise RunFailedError if the store does not answer."""

    def __init__(self, address: str) -> None:
        """folder: where what is fetched lies on this machine."""
        self.folder = local_folder(address)
        self._mirror = Mirror(self.folder, address.rstrip("/"))

    def config(self) -> dict[str, Any]:
        """Raises NotFoundError where the store has no run at this address."""
        text = self._read(layout.CONFIG_FILE)
        if text is None:
            raise NotFoundError(f"{self.shown} holds no run: there is no {layout.CONFIG_FILE}")
        return parse_config(text.decode())

    def checkpoints(self) -> list[CheckpointRecord]:
        """The whole ones, by step; the path of each is where it lies on this machine once it is fetched."""
        with self._answering():
            names = [name.split("/") for name in self._mirror.store.sizes]
        found = []
        for words in names:
            step = layout.parse_checkpoint_name(words[1]) if len(words) == 3 and words[0] == _CHECKPOINTS else None
            if step is not None and words[2] == layout.MANIFEST_FILE:
                manifest = json.loads(self._read("/".join(words)) or b"{}")
                num_bytes = sum(entry["bytes"] for entry in manifest.get("files", {}).values())
                path = layout.checkpoints_dir(self.folder) / words[1]
                found.append(CheckpointRecord(step, path, num_bytes, manifest.get("metrics", {})))
        return sorted(found, key=lambda point: point.step)

    def fetch_checkpoint(self, point: CheckpointRecord) -> None:
        """It lies whole at its path then."""
        self._mirror.pull_checkpoint(point.path.name)

    def fetch_records(self) -> Path:
        """The run's folder on this machine with all that readers look at, and neither checkpoints nor logs.

        Raises NotFoundError where the store has no run at this address.
        """
        with self._answering():
            is_there = any(name.startswith("attempt-") for name in self._mirror.store.sizes)
        if not is_there:
            raise NotFoundError(f"{self.shown} is not a run: the store holds no attempt-1 folder there")
        self._mirror.pull_records()
        return self.folder

    def address_of(self, point: CheckpointRecord) -> str:
        """Where a checkpoint lies in the store; commands that take a checkpoint take this."""
        return f"{self._mirror.address}/{_CHECKPOINTS}/{point.path.name}"

    def fetch(self) -> Path:
        """The run's folder on this machine with all that the store has of it, samples and checkpoints too."""
        self._mirror.pull()
        return self.folder

    @property
    def shown(self) -> str:
        """The address as messages tell it."""
        return str(redact(self._mirror.address))

    def _read(self, name: str) -> bytes | None:
        with self._answering():
            return self._mirror.store.read(name)

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise RunFailedError(f"{self.shown} cannot be read: {error}") from error
