"""`train`: from a config and a run directory to a finished run. It opens no database, so it runs anywhere."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from mmrl.config import RunConfig, dump_yaml
from mmrl.data.images import ImageStore
from mmrl.runs.layout import new_run_dir
from mmrl.runs.mirror import local_checkpoint, mirrored
from mmrl.runs.ownership import AttemptClaim
from mmrl.runs.progress import ProgressReporter, make_progress
from mmrl.runs.stopping import StopRequest
from mmrl.runs.trackers import Trackers
from mmrl.runs.writer import RunWriter
from mmrl.trainer.assembly import build_offline_loop, build_online_loop
from mmrl.trainer.assembly_offline import build_preference_loop, build_reward_model_loop
from mmrl.trainer.ending import TrainResult, ending, last_values
from mmrl.trainer.forking import note_fork
from mmrl.trainer.loop import Loop
from mmrl.trainer.preflight import check_rewards
from mmrl.trainer.recorder import Recorder
from mmrl.trainer.resume import ResumePoint, fork_point, named_checkpoint, newest_whole_checkpoint, settle
from mmrl.trainer.run_data import check_data, load_data


def train(
    config: RunConfig,
    *,
    run_dir: Path | str | None = None,
    resume: str | Path = "auto",
    reward_functions: Sequence[Callable[..., Any]] = (),
    progress: ProgressReporter | None = None,
) -> TrainResult:
    """Trains as `config` says and writes everything to `run_dir` (a new folder under MMRL_HOME/runs if not given).

    run_dir: a folder, or the address of one in an object store (`mmrl.runs.mirror`).
    resume: "auto" goes on from the newest whole checkpoint of a run directory of the same config, "never" takes only a
    new folder, and the path of a checkpoint goes on from that one; in a new folder it may be that of another run, of
    which this one is a fork then.
    `reward_functions` are added to the config's rewards with weight 1.
    Raises ConfigError, DataError, ModelError before the run begins, RunFailedError once it has.
    """
    claim = AttemptClaim.from_environment()
    progress = progress or make_progress()
    where = run_dir if run_dir is not None else new_run_dir(config.name)
    check_rewards(config, reward_functions)
    with mirrored(where, every_s=config.record.mirror_every_s, say=progress.message) as folder:
        return _train(config, folder, resume, reward_functions, progress, claim)


def _train(
    config: RunConfig,
    folder: Path,
    resume: str | Path,
    reward_functions: Sequence[Callable[..., Any]],
    progress: ProgressReporter,
    claim: AttemptClaim | None,
) -> TrainResult:
    torch.manual_seed(config.seed)
    data = load_data(config)
    check_data(config, data)
    text = dump_yaml(config)
    named = (
        None
        if str(resume) in ("auto", "never")
        else named_checkpoint(local_checkpoint(resume), folder, config_yaml=text)
    )
    writer = RunWriter.create(
        folder, config_yaml=text, resume=str(resume) != "never", record=config.record, claim=claim
    )
    store = ImageStore()
    recorder = Recorder(writer, progress=progress, store=store)
    trackers = Trackers.start(config.track, run_dir=writer.run_dir, config=config, warn=recorder.warn)
    recorder.trackers = trackers
    stop = StopRequest(writer.attempt_dir)
    with ending(writer, progress, stop=stop, trackers=trackers):
        point = named or newest_whole_checkpoint(writer.run_dir, say=recorder.warn)
        point = point or fork_point(writer.run_dir, config_yaml=text)
        if point is not None and point.is_fork:
            note_fork(writer.run_dir, point, say=recorder.say)
        first_step = 1 if point is None else point.step + 1
        recorder.say(_opening(config, writer, point))
        build = _BUILDERS[config.kind]
        with build(config, data, recorder=recorder, store=store, point=point, functions=reward_functions) as loop:
            # Only now, when nothing can refuse to go on any more, does this attempt take the place of earlier ones.
            settle(writer.run_dir, point, attempt=writer.attempt, say=recorder.say)
            writer.begin(first_step - 1, total_steps=config.train.steps)
            progress.start(config.train.steps, completed=first_step - 1)
            loop.run(first_step, stop=stop)
    progress.finish(recorder.latest)
    return TrainResult(folder, config.train.steps, recorder.latest or last_values(folder))


_BUILDERS: dict[str, Callable[..., AbstractContextManager[Loop]]] = {
    "rl": build_online_loop,
    "sft": build_offline_loop,
    "preference": build_preference_loop,
    "reward_model": build_reward_model_loop,
}


def _opening(config: RunConfig, writer: RunWriter, point: ResumePoint | None) -> str:
    if point is None:
        why = " (attempt 1)" if writer.attempt == 1 else f": no whole checkpoint is there (attempt {writer.attempt})"
        return f"{config.name}: starts fresh in {writer.run_dir}, {config.train.steps} steps{why}"
    if point.step >= config.train.steps:
        return f"{config.name}: all {config.train.steps} steps are done already; nothing is left to train"
    whose = "" if point.folder.parent.parent == writer.run_dir else f" of {point.folder.parent.parent}"
    return f"{config.name}: goes on from the checkpoint of step {point.step}{whose} as attempt {writer.attempt}"
