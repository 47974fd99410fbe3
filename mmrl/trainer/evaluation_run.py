"""`run_evaluate`: an evaluation as a run of its own, with a run directory like any other."""

from __future__ import annotations

from pathlib import Path

from mmrl.config.dump import dump_yaml
from mmrl.config.evaluate import EvaluateConfig
from mmrl.data.images import ImageStore
from mmrl.errors import NotFoundError
from mmrl.evaluation.comparison import Comparison, compare_evaluations
from mmrl.evaluation.finding import find_evaluations
from mmrl.evaluation.records import Evaluation
from mmrl.runs.checkpoint_refs import ModelRef, resolve_model
from mmrl.runs.layout import new_run_dir
from mmrl.runs.mirror import MIRROR_EVERY_S, mirrored
from mmrl.runs.ownership import AttemptClaim
from mmrl.runs.progress import ProgressReporter, make_progress
from mmrl.runs.stopping import StopRequest
from mmrl.runs.trackers import Trackers
from mmrl.runs.writer import RunWriter
from mmrl.trainer.ending import TrainResult, ending, last_values
from mmrl.trainer.evaluate import Evaluated, evaluate_model, make_panel, named_panel
from mmrl.trainer.recorder import Recorder

STEP = 0
"""The step of everything that such a run writes: nothing is trained."""


def run_evaluate(
    config: EvaluateConfig,
    *,
    run_dir: Path | str | None = None,
    resume: str | Path = "auto",
    progress: ProgressReporter | None = None,
) -> TrainResult:
    """Evaluates as `config` says. run_dir: as `mmrl.trainer.train` takes it; a later attempt evaluates anew.

    The metrics of the run are those of the evaluation (`accuracy`, `pass@4` …), and `against/difference`,
    `against/p_value` where it is compared. Raises NotFoundError, DataError, ModelError as evaluating does.
    """
    progress = progress or make_progress()
    where = run_dir if run_dir is not None else new_run_dir(config.name)
    with mirrored(where, every_s=MIRROR_EVERY_S, say=progress.message) as folder:
        return _run(config, folder, resume, progress)


def _run(config: EvaluateConfig, folder: Path, resume: str | Path, progress: ProgressReporter) -> TrainResult:
    claim = AttemptClaim.from_environment()
    ref = model_of(config.model.path)
    writer = RunWriter.create(folder, config_yaml=dump_yaml(config), resume=str(resume) != "never", claim=claim)
    recorder = Recorder(writer, progress=progress, store=ImageStore())
    trackers = Trackers.start(config.track, run_dir=writer.run_dir, config=config, warn=recorder.warn)
    recorder.trackers = trackers
    with ending(writer, progress, stop=StopRequest(writer.attempt_dir), trackers=trackers):
        writer.begin(STEP, total_steps=STEP)
        progress.start(1)
        recorder.begin(STEP)
        with recorder.stage("evaluation"):
            evaluated = _evaluate(config, ref, writer.run_dir, recorder)
        _record(config, evaluated, recorder)
    values = last_values(writer.run_dir)
    progress.finish(values)
    return TrainResult(writer.run_dir, STEP, values)


def model_of(path: str) -> ModelRef:
    """The checkpoint or folder that a config means; what is neither may be a name on the hub."""
    try:
        return resolve_model(path)
    except NotFoundError:
        if path.count("/") == 1 and not path.startswith((".", "/", "~")) and not Path(path).exists():
            return ModelRef(Path(path))
        raise


def _evaluate(config: EvaluateConfig, ref: ModelRef, run_dir: Path, recorder: Recorder) -> Evaluated:
    settings = config.as_run()
    if config.eval.panel is not None:
        panel = named_panel(config.eval.panel)
    else:
        assert config.data.eval is not None
        panel = make_panel(
            settings,
            answers=config.eval,
            data=config.data.eval,
            name=config.eval.save_panel,
            limit=config.eval.max_samples,
        )
    return evaluate_model(ref, settings, panel, root=ref.run_dir or run_dir, say=recorder.say)


def _record(config: EvaluateConfig, evaluated: Evaluated, recorder: Recorder) -> None:
    evaluation = evaluated.evaluation
    recorder.add(evaluation.summary.flat())
    recorder.samples("eval", evaluated.answers.groups)
    if evaluation.greedy is not None:
        recorder.add(evaluation.greedy.flat("greedy/"))
        recorder.samples("eval-greedy", evaluated.answers.greedy)
    if config.eval.against is not None:
        _compare(config.eval.against, evaluation, recorder)
    recorder.end()
    recorder.writer.event("evaluation", step=STEP, id=evaluation.id, path=str(evaluation.folder))


def _compare(against: str, evaluation: Evaluation, recorder: Recorder) -> None:
    base = _same_panel(find_evaluations(against), evaluation)
    comparison: Comparison = compare_evaluations([base, evaluation])
    result = comparison.results[0]["accuracy"]
    for flag in comparison.flags[0]:
        recorder.warn(f"compared with {base.model.label}: {flag}")
    recorder.say(f"against {base.model.label}: accuracy {result.first:.3f} to {result.second:.3f}; {result.verdict}")
    recorder.add({"against/difference": result.difference, "against/p_value": result.p_value})


def _same_panel(found: list[Evaluation], evaluation: Evaluation) -> Evaluation:
    """The newest on the same panel, else the newest."""
    same = [each for each in found if each.panel_hash == evaluation.panel_hash and each.id != evaluation.id]
    return (same or found)[-1]
