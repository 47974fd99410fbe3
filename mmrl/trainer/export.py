"""Export: a checkpoint's model as a folder of its own that `from_pretrained` loads."""

from __future__ import annotations

import shutil
from pathlib import Path

from mmrl.errors import ConflictError, DataError, NotFoundError
from mmrl.trainer.checkpoint_folder import find_fault


def export_checkpoint(run_dir: Path, step: int, out: Path) -> Path:
    """Copies the model of a whole checkpoint to `out`, which must not exist yet or be empty. Returns `out`."""
    folder = run_dir / "checkpoints" / f"step-{step:06d}"
    if not folder.is_dir():
        steps = ", ".join(str(int(path.name[5:])) for path in sorted((run_dir / "checkpoints").glob("step-*")))
        raise NotFoundError(f"{run_dir} has no checkpoint of step {step}; it has {steps or 'none'}")
    fault = find_fault(folder)
    if fault is not None:
        raise DataError(f"checkpoint {folder} cannot be exported: {fault}; export an earlier one")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConflictError(f"{out} exists and is not empty; name another folder")
    temporary = out.with_name(f".{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    shutil.copytree(folder / "model", temporary)
    if out.exists():
        out.rmdir()
    temporary.rename(out)
    return out
