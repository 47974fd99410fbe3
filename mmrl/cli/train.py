"""`mmrl train`: the bare trainer on a config and a run directory."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from mmrl.cli.arguments import (
    OptionalConfigArgument,
    OptionalRunDirOption,
    OverridesArgument,
    ReplayOption,
    ResumeOption,
)
from mmrl.cli.failures import run_under_way
from mmrl.cli.forking import FromOption, load_fork
from mmrl.cli.logs import VerboseOption
from mmrl.cli.output import JsonOption, note, print_json, print_table
from mmrl.errors import EXIT_RUN_FAILED, ConfigError

if TYPE_CHECKING:
    from mmrl.config import LoadedConfig
    from mmrl.trainer import TrainResult


_RUNS = {
    "noop": ("mmrl.trainer.noop", "run_noop"),
    "evaluate": ("mmrl.trainer.evaluation_run", "run_evaluate"),
    "mark": ("mmrl.trainer.marking", "run_mark"),
    "export": ("mmrl.trainer.export_run", "run_export"),
    "serve": ("mmrl.trainer.serve_run", "run_serve"),
}


def train(
    config: OptionalConfigArgument = None,
    overrides: OverridesArgument = None,
    run_dir: OptionalRunDirOption = None,
    resume: ResumeOption = "auto",
    replay: ReplayOption = None,
    begin: FromOption = None,
    verbose: VerboseOption = 0,
    json: JsonOption = False,
) -> None:
    """Train a config in a run directory that you name; goes on from what is there.

    With --replay FILE, without CONFIG and --run-dir: repeat the update that a run was stopped on by a number that is
    not finite, and tell where the first one arises; ends with exit code 6 if it does so again. KEY=VALUE changes its
    settings.
    """
    if replay is not None:
        replay_and_tell(replay, [word for word in (config, *(overrides or ())) if word is not None], json=json)
        return
    if begin is not None:
        fork_and_tell(begin, config, overrides or [], run_dir, json=json)
        return
    from mmrl.config import load_config
    from mmrl.runs.layout import is_stored_config
    from mmrl.runs.mirror import is_address

    if config is None or run_dir is None:
        missing = "CONFIG" if config is None else "--run-dir DIR"
        raise ConfigError(f"mmrl train: {missing} is missing; give CONFIG --run-dir DIR, or --replay FILE")
    where = run_dir if is_address(run_dir) else Path(run_dir).expanduser()
    loaded = load_config(config, overrides or (), is_stored=is_stored_config(Path(config)))
    train_and_tell(loaded, where, resume=resume, json=json)


def fork_and_tell(begin: str, config: str | None, overrides: list[str], run_dir: str | None, *, json: bool) -> None:
    """Train from another run's checkpoint in a new run directory, and tell what was changed."""
    from mmrl.runs.layout import is_run
    from mmrl.runs.mirror import is_address

    if run_dir is None:
        raise ConfigError("mmrl train --from: --run-dir DIR is missing, which names the folder of the new run")
    fork = load_fork(begin, config, overrides)
    for line in fork.lines:
        note(line)
    where = run_dir if is_address(run_dir) else Path(run_dir).expanduser()
    is_begun = not is_address(run_dir) and is_run(Path(where))
    train_and_tell(fork.loaded, where, resume="auto" if is_begun else str(fork.checkpoint), json=json)


def train_and_tell(loaded: LoadedConfig, run_dir: Path | str, *, resume: str, json: bool) -> None:
    """Train, then print where the run is and the last value of each metric. A noop trains nothing, without torch."""
    changed = dict.fromkeys(leaf.origin.where for leaf in loaded.leaves if leaf.origin.kind == "override")
    note(f"config: {loaded.source}" + (f", changed by {', '.join(changed)}" if changed else ""))
    with run_under_way(run_dir):
        result = _train(loaded, run_dir, resume)
    if json:
        print_json({"run_dir": result.run_dir, "steps": result.steps, "metrics": result.metrics})
        return
    rows = [("run_dir", result.run_dir), ("steps", result.steps), *sorted(result.metrics.items())]
    print_table(rows, ["name", "value"])


def _train(loaded: LoadedConfig, run_dir: Path | str, resume: str) -> TrainResult:
    """Kinds that train nothing have a function of their own, and load no more than that needs."""
    module, name = _RUNS.get(loaded.config.kind, ("mmrl.trainer", "train"))
    result: TrainResult = getattr(import_module(module), name)(loaded.config, run_dir=run_dir, resume=resume)
    return result


def replay_and_tell(path: Path, overrides: list[str], *, json: bool) -> None:
    """Repeat an update that was stopped and print where it goes wrong; exit code 6 where it does."""
    from mmrl.trainer.replay import replay

    result = replay(path.expanduser(), overrides)
    if json:
        print_json(result.to_json())
    else:
        print("\n".join(result.lines))
    if result.is_reproduced:
        raise typer.Exit(EXIT_RUN_FAILED)
