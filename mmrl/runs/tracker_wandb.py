"""Weights & Biases. Online with a key, else offline: `wandb sync` sends an offline run later."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import wandb

from mmrl.runs.disk import write_whole
from mmrl.runs.layout import attempt_dir, attempts
from mmrl.runs.records import StateName
from mmrl.runs.tracker_base import SampleRow, Segment

Mode = Literal["online", "offline", "disabled", "shared"]


class WandbTracker:
    """Attempts of a run share one wandb run, whose id is kept in `<run-dir>/wandb-id`; each has its own folder.

    `WANDB_PROJECT` (default mmrl), `WANDB_ENTITY` and `WANDB_MODE` hold as usual. The command line, the git remote and
    the console are not sent: they may hold secrets.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._segment = Segment.of(run_dir)
        self._run: Any = None

    def start(self, config: Mapping[str, Any]) -> None:
        mode = choose_mode()
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "mmrl"),
            name=str(config.get("name", self._run_dir.name)),
            id=self._run_id(),
            dir=attempt_dir(self._run_dir, max(attempts(self._run_dir))),
            config=dict(config),
            mode=mode,
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(
                silent=True, console="off", disable_git=True, disable_code=True, x_disable_meta=True
            ),
        )
        # A resumed run goes back to an earlier step, which wandb's own step counter would refuse.
        self._run.define_metric("step", hidden=True)
        self._run.define_metric("*", step_metric="step")
        self._run.summary["segments"] = self._segment.number

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log({"step": step, "segment": self._segment.number, **self._segment.named(step, metrics)})

    def samples(self, rows: Sequence[SampleRow]) -> None:
        """A table of the step, its images beside the texts."""
        first = rows[0]
        parts = sorted({name for row in rows for name in row.parts})
        columns = ["step", "prompt", "image", "answer", "response", "reward", *(f"reward/{name}" for name in parts)]
        table = wandb.Table(columns=columns)
        for row in rows:
            image = wandb.Image(str(row.images[0])) if row.images else None
            scores = [row.parts.get(name) for name in parts]
            table.add_data(row.step, row.prompt, image, row.answer, row.response, row.reward, *scores)
        media: dict[str, Any] = {f"samples/{first.split}": table}
        # A table's images lie in wandb's own folder until it is synced; these lie with the run.
        images = [wandb.Image(str(row.images[0]), caption=row.response) for row in rows if row.images]
        if images:
            media[f"samples/{first.split}/images"] = images
        self._run.log({"step": first.step, "segment": self._segment.number, **media})

    def finish(self, state: StateName) -> None:
        self._run.summary["state"] = state
        self._run.finish(exit_code=0 if state == "succeeded" else 1)

    def _run_id(self) -> str:
        path = self._run_dir / "wandb-id"
        if not path.exists():
            write_whole(path, secrets.token_hex(8).encode())
        return path.read_text()


def choose_mode() -> Mode:
    """`WANDB_MODE` where it is set; else online with a key (in the environment or netrc) and offline without."""
    mode = os.environ.get("WANDB_MODE")
    if mode is None:
        return "online" if has_key() else "offline"
    if mode not in ("online", "offline", "disabled", "shared"):
        raise ValueError(f"WANDB_MODE is {mode!r}; allowed: online, offline, disabled, shared")
    return mode  # type: ignore[return-value]


def has_key() -> bool:
    return bool(os.environ.get("WANDB_API_KEY")) or wandb.login(prompt=False)
