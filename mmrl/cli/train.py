"""`mmrl train`: the bare trainer on a config and a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mmrl.cli.arguments import ConfigArgument, OverridesArgument, ResumeOption, RunDirOption
from mmrl.cli.failures import run_under_way
from mmrl.cli.logs import VerboseOption
from mmrl.cli.output import JsonOption, note, print_json, print_table

if TYPE_CHECKING:
    from mmrl.config import LoadedConfig


def train(
    config: ConfigArgument,
    run_dir: RunDirOption,
    overrides: OverridesArgument = None,
    resume: ResumeOption = "auto",
    verbose: VerboseOption = 0,
    json: JsonOption = False,
) -> None:
    """Train a config in a run directory that you name; goes on from what is there."""
    from mmrl.config import load_config

    train_and_tell(load_config(config, overrides or ()), run_dir.expanduser(), resume=resume, json=json)


def train_and_tell(loaded: LoadedConfig, run_dir: Path, *, resume: str, json: bool) -> None:
    """Train, then print where the run is and the last value of each metric."""
    from mmrl.trainer import train

    changed = dict.fromkeys(leaf.origin.where for leaf in loaded.leaves if leaf.origin.kind == "override")
    note(f"config: {loaded.source}" + (f", changed by {', '.join(changed)}" if changed else ""))
    with run_under_way(run_dir):
        result = train(loaded.config, run_dir=run_dir, resume=resume)
    if json:
        print_json({"run_dir": result.run_dir, "steps": result.steps, "metrics": result.metrics})
        return
    rows = [("run_dir", result.run_dir), ("steps", result.steps), *sorted(result.metrics.items())]
    print_table(rows, ["name", "value"])
