"""The folder of a checkpoint, and how to tell that it is whole.

checkpoints/step-000100/
    model/          what `from_pretrained` loads: weights, config, tokenizer, processor, template
    shards/         states of parts that are divided among ranks, a file a rank (`engines.shard_checkpoint`)
    trainer.pt      part of the run -> its state (optimiser, random numbers …), readable without unpickling code
    state.json      step, place in the data, best metric, the model that the run began with
    config.yaml     the config of the attempt, secrets removed
    manifest.json   size and SHA-256 of every file, the step and the metrics; written last
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

from mmrl.checkpoint_files import MODEL_FOLDER
from mmrl.errors import DataError
from mmrl.runs.checkpoint_refs import ModelRef
from mmrl.runs.disk import plain
from mmrl.runs.layout import MANIFEST_FILE


def check_model(ref: ModelRef) -> None:
    """Raises DataError where the model of a checkpoint is not what was written: its answers would be another's."""
    fault = None if ref.checkpoint is None else find_fault(ref.checkpoint, within=f"{MODEL_FOLDER}/")
    if fault is not None:
        raise DataError(f"checkpoint {ref.checkpoint} is damaged: {fault}; take another one")


def find_fault(folder: Path, *, within: str = "") -> str | None:
    """What is wrong with a checkpoint, or None when every file is as its manifest says.

    within: how the names of the files begin that are looked at.
    """
    try:
        manifest = json.loads((folder / MANIFEST_FILE).read_text())
        files = {
            name: (int(entry["bytes"]), str(entry["sha256"]))
            for name, entry in manifest["files"].items()
            if name.startswith(within)
        }
    except FileNotFoundError:
        return f"it has no {MANIFEST_FILE}, so it was never finished"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"its {MANIFEST_FILE} is damaged"
    except OSError as error:
        return f"its {MANIFEST_FILE} cannot be read ({error.strerror})"
    for name, (num_bytes, sha256) in files.items():
        try:
            fault = _fault_of_file(folder / name, num_bytes, sha256)
        except OSError as error:
            fault = f"cannot be read ({error.strerror})"
        if fault is not None:
            return f"{name} {fault}"
    return None


def seal(folder: Path, *, step: int, metrics: Mapping[str, float]) -> int:
    """Brings every file to the disk, then writes the manifest, then brings the folder to the disk.

    Returns the bytes of all files.
    """
    files = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as file:
            os.fsync(file.fileno())
        files[path.relative_to(folder).as_posix()] = {"bytes": path.stat().st_size, "sha256": sha256_of(path)}
    for path in sorted(path for path in folder.rglob("*") if path.is_dir()):
        fsync_folder(path)
    manifest = {"schema_version": 1, "step": step, "metrics": plain(metrics), "files": files}
    with (folder / MANIFEST_FILE).open("w") as file:
        json.dump(manifest, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    fsync_folder(folder)
    return sum(entry["bytes"] for entry in files.values())  # type: ignore[misc]


def fsync_folder(folder: Path) -> None:
    """Brings the names in a folder to the disk: a rename is not there to stay before that."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fault_of_file(path: Path, num_bytes: int, sha256: str) -> str | None:
    if not path.is_file():
        return "is missing"
    if path.stat().st_size != num_bytes:
        return f"has {path.stat().st_size} bytes where {num_bytes} were written"
    if sha256_of(path) != sha256:
        return "does not have the content that was written"
    return None
