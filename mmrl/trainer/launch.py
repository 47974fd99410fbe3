"""`train`: from a config and a run directory to a finished run. It opens no database, so it runs anywhere."""

from __future__ import annotations

import contextlib
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from mmrl.config import RunConfig, dump_yaml
from mmrl.data.images import ImageStore
from mmrl.errors import MmrlError, RunCancelledError, RunFailedError
from mmrl.runs.layout import new_run_dir
from mmrl.runs.progress import ProgressReporter, make_progress
from mmrl.runs.reader import RunReader
from mmrl.runs.records import StateName
from mmrl.runs.trackers import Trackers
from mmrl.runs.writer import RunWriter
from mmrl.trainer.assembly import build_offline_loop, build_online_loop
from mmrl.trainer.preflight import check_rewards
from mmrl.trainer.recorder import Recorder
from mmrl.trainer.resume import ResumePoint, named_checkpoint, newest_whole_checkpoint, settle
from mmrl.trainer.run_data import check_data, load_data


@dataclass(frozen=True)
class TrainResult:
    """run_dir: what the run left behind. metrics: the last value of each metric."""

    run_dir: Path
    steps: int
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        """The model folder of the last step's checkpoint."""
        return self.run_dir / "checkpoints" / f"step-{self.steps:06d}" / "model"


def train(
    config: RunConfig,
    *,
    run_dir: Path | str | None = None,
    resume: str | Path = "auto",
    reward_functions: Sequence[Callable[..., Any]] = (),
    progress: ProgressReporter | None = None,
) -> TrainResult:
    """Trains as `config` says and writes everything to `run_dir` (a new folder under MMRL_HOME/runs if not given).

    resume: "auto" goes on from the newest whole checkpoint of a run directory of the same config, "never" takes only a
    new folder, and the path of a checkpoint goes on from that one.
    `reward_functions` are added to the config's rewards with weight 1.
    Raises ConfigError, DataError, ModelError before the run begins, RunFailedError once it has.
    """
    check_rewards(config, reward_functions)
    folder = Path(run_dir) if run_dir is not None else new_run_dir(config.name)
    torch.manual_seed(config.seed)
    data = load_data(config)
    check_data(config, data)
    text = dump_yaml(config)
    named = None if str(resume) in ("auto", "never") else named_checkpoint(Path(resume), folder, config_yaml=text)
    writer = RunWriter.create(folder, config_yaml=text, resume=str(resume) != "never", record=config.record)
    progress = progress or make_progress()
    store = ImageStore()
    recorder = Recorder(writer, progress=progress, store=store)
    trackers = Trackers.start(config.track, run_dir=writer.run_dir, config=config, warn=recorder.warn)
    recorder.trackers = trackers
    with _ending(writer, trackers, progress):
        point = named or newest_whole_checkpoint(writer.run_dir, say=recorder.warn)
        first_step = 1 if point is None else point.step + 1
        recorder.say(_opening(config, writer, point))
        build = build_online_loop if config.kind == "rl" else build_offline_loop
        with build(config, data, recorder=recorder, store=store, point=point, functions=reward_functions) as loop:
            # Only now, when nothing can refuse to go on any more, does this attempt take the place of earlier ones.
            settle(writer.run_dir, point, attempt=writer.attempt, say=recorder.say)
            writer.begin(first_step - 1, total_steps=config.train.steps)
            progress.start(config.train.steps, completed=first_step - 1)
            loop.run(first_step)
    progress.finish(recorder.latest)
    return TrainResult(folder, config.train.steps, recorder.latest or _last_values(folder))


def _last_values(run_dir: Path) -> dict[str, float]:
    """The last value of each metric of a run that was finished already."""
    rows = RunReader(run_dir).metrics()
    return {name: value for row in rows for name, value in row.values.items() if value is not None}


def _opening(config: RunConfig, writer: RunWriter, point: ResumePoint | None) -> str:
    if point is None:
        why = " (attempt 1)" if writer.attempt == 1 else f": no whole checkpoint is there (attempt {writer.attempt})"
        return f"{config.name}: starts fresh in {writer.run_dir}, {config.train.steps} steps{why}"
    if point.step >= config.train.steps:
        return f"{config.name}: all {config.train.steps} steps are done already; nothing is left to train"
    whose = "" if point.folder.parent.parent == writer.run_dir else f" of {point.folder.parent.parent}"
    return f"{config.name}: goes on from the checkpoint of step {point.step}{whose} as attempt {writer.attempt}"


@contextlib.contextmanager
def _ending(writer: RunWriter, trackers: Trackers, progress: ProgressReporter) -> Iterator[None]:
    """Writes how the run ended, with the cause of a failure; an OSError becomes a RunFailedError with its file."""
    state: StateName = "failed"
    cause: str | None = None
    earlier = _listen_for_termination()
    try:
        yield
        state = "succeeded"
    except (KeyboardInterrupt, RunCancelledError):
        state, cause = "cancelled", "stopped on request"
        raise
    except MmrlError as error:
        cause = str(error)
        raise
    except OSError as error:
        cause = f"{error.strerror or error} ({error.filename or writer.run_dir})"
        raise RunFailedError(f"the run in {writer.run_dir} failed: {cause}") from error
    except BaseException as error:
        stop = _request_within(error)
        if stop is not None:
            state, cause = "cancelled", "stopped on request"
            raise stop from error
        cause = "".join(traceback.format_exception_only(error)).strip()
        if isinstance(error, SystemExit):
            raise RunFailedError(f"the run in {writer.run_dir} was ended by a call of exit ({cause})") from error
        raise
    finally:
        if earlier is not None:
            signal.signal(signal.SIGTERM, earlier)
        trackers.finish(state)
        progress.close()
        with contextlib.suppress(OSError, MmrlError):
            if cause is not None and state == "failed":
                writer.event("failure", message=cause)
            writer.close(state)


def _request_within(error: BaseException) -> BaseException | None:
    """The request to stop that compiled code (Ray's, while it waits) was given as an exception and made another of."""
    if isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt | RunCancelledError):
        return error.__cause__
    return None


def _listen_for_termination() -> Any:
    """SIGTERM ends the run as a cancellation. Returns the handler before; None where this thread may set none."""
    if threading.current_thread() is not threading.main_thread():
        return None
    return signal.signal(signal.SIGTERM, _terminated)


def _terminated(*_: Any) -> None:
    raise RunCancelledError("the run was stopped by SIGTERM; the same command goes on from its newest checkpoint")
