"""A run in workers that loses a process: it ends soon with the cause named, leaves nothing running, and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from learning import run_config, warm_model

from mmrl.config import dump_yaml
from mmrl.runs.reader import RunReader

STEPS = 8
DEADLINE_S = 40
PLACEMENT = {"executor": "ray", "pools": {"main": {"workers": 2}}, "deadline_s": DEADLINE_S}
BOUND_S = 60


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("hybrid-faults")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def model(home: Path) -> Path:
    return warm_model(home / "model", "digits-which", steps=10)


@dataclass
class Trainer:
    """`mmrl train` in a process of its own; its processes are known by a variable in their environment."""

    folder: Path
    config: Path
    process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        environment = os.environ | {"MMRL_TEST_RUN": str(self.folder), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "mmrl.cli.app", "train", str(self.config), "--run-dir", str(self.folder)]
        self.process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)

    def wait_for_step(self, step: int) -> None:
        self._wait(lambda: self.last_step >= step, f"step {step}")

    def wait_for_checkpoint(self) -> None:
        self._wait(lambda: bool(list(self.folder.glob("checkpoints/step-*"))), "a checkpoint")

    def _wait(self, is_there: Callable[[], bool], what: str) -> None:
        assert self.process is not None
        until = time.monotonic() + 180
        while not is_there():
            assert self.process.poll() is None, self.process.communicate()[1]
            assert time.monotonic() < until, f"{what} did not come"
            time.sleep(0.05)

    @property
    def last_step(self) -> int:
        if not (self.folder / "attempt-1").is_dir():
            return 0
        return max((row.step for row in RunReader(self.folder).metrics(["reward/mean"])), default=0)

    def processes(self, *words: str) -> list[psutil.Process]:
        """Those of the run whose command line has all of `words`."""
        found = []
        for process in psutil.process_iter():
            try:
                is_own = process.environ().get("MMRL_TEST_RUN") == str(self.folder)
                if is_own and process.status() != psutil.STATUS_ZOMBIE:
                    line = " ".join(process.cmdline())
                    found += [process] if all(word in line for word in words) else []
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def ended(self) -> tuple[int, str, float]:
        """Exit code, what it said, and how long that took from now."""
        assert self.process is not None
        start = time.monotonic()
        _, said = self.process.communicate(timeout=5 * BOUND_S)
        return self.process.returncode, said, time.monotonic() - start

    def check_nothing_is_left(self) -> None:
        until = time.monotonic() + 15
        while left := self.processes():
            assert time.monotonic() < until, [" ".join(process.cmdline())[:200] for process in left]
            time.sleep(0.2)

    def kill_all(self) -> None:
        """All but the watchdog, which then removes what Ray left on the disk."""
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                if not any("watchdog" in word for word in process.cmdline()):
                    process.kill()


@pytest.fixture
def trainer(home: Path, model: Path, tmp_path: Path) -> Iterator[Trainer]:
    config = run_config(
        model,
        "digits-which",
        steps=STEPS,
        rollout={"prompts_per_step": 4, "max_response_tokens": 8},
        placement=PLACEMENT,
        checkpoint={"every": 2, "keep": 20, "best": None},
    )
    path = tmp_path / "run.yaml"
    path.write_text(dump_yaml(config))
    trainer = Trainer(tmp_path / "run", path)
    yield trainer
    trainer.kill_all()


def check_goes_on(trainer: Trainer) -> None:
    trainer.start()
    code, said, _ = trainer.ended()
    assert code == 0, said
    assert "goes on from the checkpoint of step" in said
    assert trainer.last_step == STEPS
    gaps = [row.values["sync/logprob_gap_max"] for row in RunReader(trainer.folder).metrics() if row.step > 0]
    assert len(gaps) == STEPS
    assert max(gaps) <= 1e-4
    trainer.check_nothing_is_left()


def worker(trainer: Trainer) -> psutil.Process:
    """One of the two processes that train: those of the run with most memory that are not the command itself."""
    assert trainer.process is not None
    workers = [process for process in trainer.processes() if process.pid != trainer.process.pid]
    return sorted(workers, key=lambda process: process.memory_info().rss)[-1]


@pytest.mark.ray
@pytest.mark.slow
def test_j08_a_killed_worker_ends_the_run_with_its_name_and_the_run_goes_on(trainer: Trainer):
    trainer.start()
    trainer.wait_for_step(3)
    victim = worker(trainer)
    victim.kill()
    code, said, seconds = trainer.ended()
    assert code == 6, said
    assert seconds < BOUND_S
    assert "rank" in said
    assert "SIGKILL" in said or "killed" in said
    failures = [event for event in RunReader(trainer.folder).events() if event.kind == "failure"]
    assert "rank" in failures[-1].fields["message"]
    trainer.check_nothing_is_left()
    check_goes_on(trainer)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "num_signals", "told"),
    [
        ("building", 1, "stopped by SIGTERM"),
        ("training", 1, "cancelled on request after step"),
        ("training", 2, "stopped by SIGTERM"),
    ],
)
def test_a_sigterm_cancels_whatever_the_controller_waits_for(
    trainer: Trainer, moment: str, num_signals: int, told: str
):
    """Ray's compiled code makes another exception of one that is raised while it waits."""
    trainer.start()
    assert trainer.process is not None
    assert trainer.process.stderr is not None
    if moment == "building":
        while "building" not in trainer.process.stderr.readline():
            assert trainer.process.poll() is None
        time.sleep(1)
    else:
        trainer.wait_for_step(2)
    for number in range(num_signals):
        time.sleep(0.2 * number)
        trainer.process.send_signal(signal.SIGTERM)
    code, said, seconds = trainer.ended()
    assert code == 7, said
    assert seconds < BOUND_S
    assert told in said
    assert RunReader(trainer.folder).state().state == "cancelled"
    trainer.check_nothing_is_left()


@pytest.mark.ray
@pytest.mark.slow
def test_a_killed_controller_leaves_nothing_behind_and_the_run_goes_on(trainer: Trainer):
    trainer.start()
    trainer.wait_for_checkpoint()
    assert trainer.process is not None
    trainer.process.kill()
    trainer.ended()
    trainer.check_nothing_is_left()
    check_goes_on(trainer)


@pytest.mark.ray
@pytest.mark.slow
def test_a_worker_that_hangs_ends_the_run_with_what_each_was_doing(trainer: Trainer):
    trainer.start()
    trainer.wait_for_step(3)
    worker(trainer).send_signal(signal.SIGSTOP)
    code, said, seconds = trainer.ended()
    assert code == 6, said
    assert seconds < BOUND_S + DEADLINE_S
    assert "rank" in said
    trainer.check_nothing_is_left()
    check_goes_on(trainer)


@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("server", ["gcs_server", "raylet"])
def test_a_stopped_head_ends_the_run_with_its_name(trainer: Trainer, server: str):
    trainer.start()
    trainer.wait_for_step(3)
    servers = [process for process in trainer.processes() if process.name().startswith(server[:15])]
    assert len(servers) == 1, servers
    servers[0].kill()
    code, said, seconds = trainer.ended()
    assert code == 6, said
    assert seconds < BOUND_S
    assert "Ray" in said
    trainer.check_nothing_is_left()
    check_goes_on(trainer)
