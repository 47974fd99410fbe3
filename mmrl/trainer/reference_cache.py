"""Log-probabilities of answers under the reference, computed once and kept by content.

The key of an answer is a hash of the reference's fingerprint, the settings of its passes, the prompt's ids and images
and the answer's ids and mask. So another model, other image limits or another template never find what is not theirs,
and a run that goes on, or another one on the same data and model, finds everything. It lies under MMRL_HOME, in a
database file for each reference. Where the file cannot be read or written, what is computed stays in memory.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mmrl.batch import GroupBatch, PreparedImage
from mmrl.config.base import home

FORMAT = 1
"""Counted up when what is computed for a key changes."""

_CHUNK = 500


@dataclass(frozen=True)
class ReferenceKey:
    """fingerprint: of the model that the run began with. settings: whatever else its log-probabilities depend on."""

    fingerprint: Mapping[str, Any]
    settings: Mapping[str, Any]

    @property
    def digest(self) -> str:
        content = {"format": FORMAT, "fingerprint": dict(self.fingerprint), "settings": dict(self.settings)}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


class ReferenceCache:
    """Of one reference. folder: MMRL_HOME/reference-logprobs if not given. warn: is told, once, of a file at fault."""

    def __init__(self, key: ReferenceKey, *, folder: Path | None = None, warn: Callable[[str], None]) -> None:
        self._digest = key.digest
        self.path = (folder or home() / "reference-logprobs") / f"{self._digest[:32]}.sqlite"
        self._warn = warn
        self._is_broken = False
        self._in_memory: dict[bytes, np.ndarray[Any, Any]] = {}

    def find(self, batch: GroupBatch) -> tuple[Tensor, Tensor]:
        """(B, T) log-probabilities of the rows that are known, zero elsewhere, and (B,) bool which those are."""
        keys = self.keys(batch)
        known = self._read(set(keys)) | self._in_memory
        logprobs = torch.zeros_like(batch.response_mask)
        is_known = torch.zeros(batch.num_rows, dtype=torch.bool)
        for row, (key, length) in enumerate(zip(keys, batch.response_lengths.tolist(), strict=True)):
            found = known.get(key)
            if found is not None and len(found) == length:
                logprobs[row, :length] = torch.from_numpy(found)
                is_known[row] = True
        return logprobs, is_known

    def add(self, batch: GroupBatch, logprobs: Tensor) -> None:
        """logprobs: (B, T) of the rows of `batch`."""
        rows = []
        for row, (key, length) in enumerate(zip(self.keys(batch), batch.response_lengths.tolist(), strict=True)):
            values = logprobs[row, :length].float().cpu().numpy()
            rows.append((key, values.astype("<f4")))
        self._write(rows)
        if self._is_broken:
            self._in_memory |= dict(rows)

    def keys(self, batch: GroupBatch) -> list[bytes]:
        prompts = [_prompt_bytes(prompt.token_ids, prompt.images) for prompt in batch.prompts]
        keys = []
        for row, length in enumerate(batch.response_lengths.tolist()):
            content = hashlib.sha256(self._digest.encode())
            content.update(prompts[int(batch.prompt_of_row[row])])
            content.update(_int_bytes(batch.response_ids[row, :length].tolist()))
            content.update(batch.response_mask[row, :length].to(torch.uint8).numpy().tobytes())
            keys.append(content.digest())
        return keys

    def _read(self, keys: set[bytes]) -> dict[bytes, np.ndarray[Any, Any]]:
        if self._is_broken or not self.path.is_file():
            return {}
        found: dict[bytes, np.ndarray[Any, Any]] = {}
        try:
            with closing(self._connect()) as connection:
                wanted = list(keys)
                for start in range(0, len(wanted), _CHUNK):
                    some = wanted[start : start + _CHUNK]
                    marks = ",".join("?" * len(some))
                    query = f"SELECT key, logprobs FROM answers WHERE key IN ({marks})"
                    for key, values in connection.execute(query, some):
                        found[key] = np.frombuffer(values, dtype="<f4").copy()
        except sqlite3.Error as error:
            self._give_up(error)
            return {}
        return found

    def _write(self, rows: Sequence[tuple[bytes, np.ndarray[Any, Any]]]) -> None:
        if self._is_broken:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with closing(self._connect()) as connection, connection:
                connection.execute("CREATE TABLE IF NOT EXISTS answers (key BLOB PRIMARY KEY, logprobs BLOB NOT NULL)")
                stored = [(key, values.tobytes()) for key, values in rows]
                connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?)", stored)
        except (sqlite3.Error, OSError) as error:
            self._give_up(error)

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=60)

    def _give_up(self, error: Exception) -> None:
        self._is_broken = True
        self._warn(
            f"log-probabilities of the reference cannot be kept in {self.path} ({error}), only in memory, so that a "
            "run that goes on computes them again. Delete the file if it is damaged"
        )


def _prompt_bytes(token_ids: Sequence[int], images: Sequence[PreparedImage]) -> bytes:
    shown = json.dumps([[image.sha256, *image.grid_thw, *image.processed_size] for image in images])
    return _int_bytes(token_ids) + shown.encode() + b"\0"


def _int_bytes(values: Sequence[int]) -> bytes:
    return np.asarray([len(values), *values], dtype="<i8").tobytes()
