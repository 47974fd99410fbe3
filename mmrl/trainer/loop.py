"""What every loop does around its steps: evaluation, checkpoints and the records of each step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Protocol

from mmrl.config import RunConfig
from mmrl.engines.finite import NotFiniteError
from mmrl.errors import RunFailedError
from mmrl.runs.stopping import StopRequest
from mmrl.trainer.checkpoints import Checkpointer
from mmrl.trainer.faults import write_fault
from mmrl.trainer.recorder import Recorder


class Learner(Protocol):
    """What a loop trains."""

    def begin_step(self, step: int) -> None: ...


class HeldOutEvaluation(Protocol):
    """What a loop evaluates, and when."""

    def evaluate(self) -> None: ...

    def evaluate_if_due(self, step: int) -> None: ...

    def is_due(self, step: int) -> bool: ...


class Loop(ABC):
    """A loop is a subclass that gives `one_step` and `close_step`.

    sync: brings the actor's weights to the rollout engine, as the given version.
    """

    def __init__(
        self,
        config: RunConfig,
        *,
        actor: Learner,
        sync: Callable[[int], None],
        evaluator: HeldOutEvaluation,
        checkpointer: Checkpointer,
        recorder: Recorder,
    ) -> None:
        self.config = config
        self.actor = actor
        self.sync = sync
        self.evaluator = evaluator
        self.checkpointer = checkpointer
        self.recorder = recorder

    def run(self, first_step: int, *, stop: StopRequest | None = None) -> None:
        """Steps first_step..train.steps, and what a checkpoint still has to write.

        A request to `stop` is obeyed once the step under way has ended and a checkpoint of it is written, with a
        RunCancelledError; after the last step there is nothing left to stop.

        A step's metrics are written before its checkpoint, so a run that goes on from the checkpoint lacks none; those
        of a step that fails are written as far as it came.
        """
        if first_step == 1 and self.config.eval.at_start:
            self.recorder.begin(0)
            with self._writing_faults_aside(0):
                self.evaluator.evaluate()
            self.recorder.end()
        try:
            with stop.between_steps() if stop is not None else nullcontext():
                for step in range(first_step, self.config.train.steps + 1):
                    self._step(step)
                    if stop is not None and stop.is_requested and step < self.config.train.steps:
                        stop.raise_after(step, is_saved=self.checkpointer.save_now(step))
        finally:
            self.checkpointer.wait()
        self.checkpointer.require_last()

    def _step(self, step: int) -> None:
        self.recorder.begin(step)
        self.begin_step(step)
        try:
            with self._writing_faults_aside(step), self.recorder.stage("step"):
                self.one_step(step)
                self.evaluator.evaluate_if_due(step)
            self.close_step()
        finally:
            self.recorder.end()
        self.checkpointer.save_if_due(step)

    def begin_step(self, step: int) -> None:
        """The updates that follow belong to this step; learning rates go by it."""
        self.actor.begin_step(step)

    @contextmanager
    def _writing_faults_aside(self, step: int) -> Iterator[None]:
        """A number that is not finite stops the run with what it came from written down."""
        try:
            yield
        except NotFiniteError as error:
            path = write_fault(error, step, snapshots=self.checkpointer.snapshots, recorder=self.recorder)
            if path is None:
                raise
            raise RunFailedError(
                f"{error}. What it came from is written down: `mmrl train --replay {path}` shows where it begins"
            ) from error

    @abstractmethod
    def one_step(self, step: int) -> None:
        """What is learned in a step."""

    @abstractmethod
    def close_step(self) -> None:
        """Records what is known of a step once it is over."""
