"""`run_export`: an export as a run of its own, so that a pipeline can end with it."""

from __future__ import annotations

from pathlib import Path

from mmrl.config.dump import dump_yaml
from mmrl.config.export import ExportConfig
from mmrl.config.secrets import redact
from mmrl.errors import ConfigError
from mmrl.runs.checkpoint_refs import resolve_model
from mmrl.runs.layout import new_run_dir
from mmrl.runs.mirror import MIRROR_EVERY_S, is_address, mirrored
from mmrl.runs.ownership import AttemptClaim
from mmrl.runs.progress import ProgressReporter, make_progress
from mmrl.runs.stopping import StopRequest
from mmrl.runs.writer import RunWriter
from mmrl.trainer.ending import TrainResult, ending
from mmrl.trainer.export import export_checkpoint


def run_export(
    config: ExportConfig,
    *,
    run_dir: Path | str | None = None,
    resume: str | Path = "auto",
    progress: ProgressReporter | None = None,
) -> TrainResult:
    """Exports as `config` says; the event `export` of the run directory names the folder.

    run_dir: as `mmrl.trainer.train` takes it; a store takes records of a run and no models, so the folder of the model
    must be named then. Raises ConfigError where it is not, and as `export_checkpoint` does.
    """
    where = run_dir if run_dir is not None else new_run_dir(config.name)
    if is_address(where) and config.export.out is None:
        raise ConfigError(f"export.out: the run directory is {redact(str(where))}; name a folder for the model itself")
    progress = progress or make_progress()
    with mirrored(where, every_s=MIRROR_EVERY_S, say=progress.message) as folder:
        return _run(config, folder, resume, progress)


def _run(config: ExportConfig, folder: Path, resume: str | Path, progress: ProgressReporter) -> TrainResult:
    claim = AttemptClaim.from_environment()
    ref = resolve_model(config.model.path)
    writer = RunWriter.create(folder, config_yaml=dump_yaml(config), resume=str(resume) != "never", claim=claim)
    out = Path(config.export.out) if config.export.out is not None else writer.run_dir / "model"
    with ending(writer, progress, stop=StopRequest(writer.attempt_dir)):
        writer.begin(0, total_steps=0)
        progress.start(1)
        export_checkpoint(ref, out, compare_answers=config.export.compare_answers, say=progress.message)
        writer.event("export", step=ref.step, path=str(out.absolute()))
        values = {"export/bytes": float(sum(path.stat().st_size for path in out.rglob("*") if path.is_file()))}
        writer.metrics(0, values)
    progress.finish(values)
    return TrainResult(writer.run_dir, 0, values)
