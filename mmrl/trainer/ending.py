"""How a run ends: written down with its cause, whatever raised it, and given back as what it left behind. No torch."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mmrl.errors import MmrlError, RunCancelledError, RunFailedError
from mmrl.runs.layout import checkpoint_dir
from mmrl.runs.progress import ProgressReporter
from mmrl.runs.reader import RunReader
from mmrl.runs.records import StateName
from mmrl.runs.stopping import StopRequest
from mmrl.runs.writer import RunWriter

if TYPE_CHECKING:
    from mmrl.runs.trackers import Trackers


@dataclass(frozen=True)
class TrainResult:
    """run_dir: what the run left behind. metrics: the last value of each metric."""

    run_dir: Path
    steps: int
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def checkpoint(self) -> Path:
        """The model folder of the last step's checkpoint."""
        return checkpoint_dir(self.run_dir, self.steps) / "model"


def last_values(run_dir: Path) -> dict[str, float]:
    """The last value of each metric of a run that was finished already."""
    rows = RunReader(run_dir).metrics()
    return {name: value for row in rows for name, value in row.values.items() if value is not None}


@contextlib.contextmanager
def ending(
    writer: RunWriter, progress: ProgressReporter, *, stop: StopRequest, trackers: Trackers | None = None
) -> Iterator[None]:
    """Writes how the run ended, with the cause of a failure; an OSError becomes a RunFailedError with its file."""
    state: StateName = "failed"
    cause: tuple[str, BaseException] | None = None
    try:
        with stop.listening():
            yield
        state = "succeeded"
    except (KeyboardInterrupt, RunCancelledError):
        state = stop.state
        raise
    except MmrlError as error:
        cause = (str(error), error)
        raise
    except OSError as error:
        text = f"{error.strerror or error} ({error.filename or writer.run_dir})"
        cause = (text, error)
        raise RunFailedError(f"the run in {writer.run_dir} failed: {text}") from error
    except BaseException as error:
        request = _request_within(error)
        if request is not None:
            state = stop.state
            raise request from error
        text = "".join(traceback.format_exception_only(error)).strip()
        cause = (text, error)
        if isinstance(error, SystemExit):
            raise RunFailedError(f"the run in {writer.run_dir} was ended by a call of exit ({text})") from error
        raise
    finally:
        if trackers is not None:
            trackers.finish(state)
        progress.close()
        with contextlib.suppress(OSError, MmrlError):
            if cause is not None:
                writer.event("failure", message=cause[0], error=type(cause[1]).__name__)
            writer.close(state)


def _request_within(error: BaseException) -> BaseException | None:
    """The request to stop that compiled code (Ray's, while it waits) was given as an exception and made another of."""
    if isinstance(error, SystemError) and isinstance(error.__cause__, KeyboardInterrupt | RunCancelledError):
        return error.__cause__
    return None
