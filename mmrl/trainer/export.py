"""Export: a checkpoint's model as a folder of its own that `from_pretrained`, vLLM and the rewards load.

What is copied is checked before it takes its name: that the weights are those of its architecture, that prompts are
read token by token as by the model that the run began with, and that transformers' own `generate` gives the answers
that the checkpoint gives.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from mmrl.checkpoint_files import ADAPTER_FOLDER
from mmrl.errors import ConflictError, DataError, NotFoundError
from mmrl.models.loading import check_shard_indexes
from mmrl.runs.checkpoint_refs import ModelRef
from mmrl.runs.disk import writing
from mmrl.trainer.checkpoint_folder import find_fault, sha256_of
from mmrl.trainer.disk_room import check_room
from mmrl.trainer.export_checks import Verified, verify, verify_adapter
from mmrl.trainer.lineage import Lineage, lineage_of
from mmrl.trainer.model_card import model_card

ExportForm = Literal["merged", "adapter"]

LINEAGE_FILE = "lineage.json"
CARD_FILE = "README.md"


def export_checkpoint(
    ref: ModelRef,
    out: Path,
    *,
    form: ExportForm = "merged",
    compare_answers: bool = True,
    say: Callable[[str], None] = lambda text: None,
) -> Path:
    """Copies the model of `ref` to `out`, which must not exist yet or be empty, with a model card. Returns `out`.

    form: of a run that trained an adapter: `merged` is a whole model, `adapter` a folder that peft loads beside the
    base model. compare_answers: whether the weights are loaded again, which takes memory for the whole model.
    Raises DataError for a checkpoint that is not whole, ConflictError for a folder with files in it, RunFailedError
    without room, ModelError where a check fails; `out` is then as it was.
    """
    if ref.checkpoint is not None:
        fault = find_fault(ref.checkpoint)
        if fault is not None:
            raise DataError(f"checkpoint {ref.checkpoint} cannot be exported: {fault}; export an earlier one")
    check_shard_indexes(ref.model)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConflictError(f"{out} exists and is not empty; name another folder")
    files = _files(ref, form)
    check_room(out.absolute().parent, sum(path.stat().st_size for path in files.values()), what=f"export: {ref.label}")
    temporary = out.absolute().with_name(f".{out.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with writing(temporary):
            for name, path in files.items():
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, temporary / name)
        lineage = lineage_of(ref)
        check = verify if form == "merged" else verify_adapter
        verified = check(temporary, ref, lineage, compare_answers=compare_answers, say=say)
        _describe(temporary, lineage, verified)
        if out.exists():
            out.rmdir()
        temporary.rename(out)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return out


def _files(ref: ModelRef, form: ExportForm) -> dict[str, Path]:
    """Path in the export -> the file that it is a copy of. Raises NotFoundError for a run without an adapter."""
    model = {path.relative_to(ref.model).as_posix(): path for path in sorted(ref.model.rglob("*")) if path.is_file()}
    if form == "merged":
        return model
    folder = None if ref.checkpoint is None else ref.checkpoint / ADAPTER_FOLDER
    if folder is None or not folder.is_dir():
        raise NotFoundError(f"{ref.label} has no adapter to export: its run trained whole weights (model.lora is null)")
    beside = {
        name: path
        for name, path in model.items()
        if not name.endswith((".safetensors", ".index.json")) and name not in ("config.json", "generation_config.json")
    }
    return beside | {path.name: path for path in sorted(folder.iterdir())}


def _describe(folder: Path, lineage: Lineage, verified: Verified) -> None:
    """The card for people, and the same facts with a hash of each file for programs."""
    hashes = {
        path.relative_to(folder).as_posix(): sha256_of(path) for path in sorted(folder.rglob("*")) if path.is_file()
    }
    facts = {"schema_version": 1, **lineage.to_json(), "verified": verified.to_json(), "files": hashes}
    (folder / LINEAGE_FILE).write_text(json.dumps(facts, indent=1, ensure_ascii=False), encoding="utf-8")
    (folder / CARD_FILE).write_text(model_card(lineage, verified), encoding="utf-8")
