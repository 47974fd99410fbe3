"""From the words of `mmrl checkpoint evaluate` to an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from mmrl.config import RunConfig, load_config
from mmrl.errors import ConfigError
from mmrl.evaluation.records import Evaluation
from mmrl.runs.checkpoint_refs import ModelRef, resolve_model
from mmrl.runs.layout import CONFIG_FILE


def evaluate_reference(
    checkpoint: str,
    *,
    step: str | None,
    config: Path | None,
    overrides: Sequence[str],
    data: str | None,
    panel: str | None,
    name: str | None,
    limit: int | None,
    say: Callable[[str], None],
) -> Evaluation:
    """panel: the name of one that exists; else `data`, or the config's, is frozen as one under `name`.

    Raises ConfigError where words do not go together, or there is nothing to evaluate on.
    """
    if panel is not None and (data is not None or name is not None or limit is not None):
        raise ConfigError(
            "--panel names prompts and settings that are frozen; leave out --data, --save-panel and --limit"
        )
    ref = resolve_model(checkpoint, step)
    settings = settings_of(ref, config, overrides)
    from mmrl.trainer.evaluate import evaluate_model, make_panel, named_panel

    if panel is not None:
        prompts = named_panel(panel)
    else:
        source = data or settings.data.eval
        if source is None:
            raise ConfigError("no prompts: the config has no data.eval; name some with --data, or a panel with --panel")
        limit = limit if limit is not None else settings.eval.max_samples
        prompts = make_panel(settings, answers=settings.eval, data=source, name=name, limit=limit)
    return evaluate_model(ref, settings, prompts, say=say).evaluation


def settings_of(ref: ModelRef, config: Path | None, overrides: Sequence[str]) -> RunConfig:
    """Of the file, else of the run that the model is of. Raises ConfigError for a model that no run made."""
    if config is None and ref.run_dir is None:
        raise ConfigError(
            f"{ref.model} is of no run whose settings could hold; give --config FILE with reward, rollout and data.eval"
        )
    return load_config(config if config is not None else _folder_with_config(ref), overrides).run_config


def _folder_with_config(ref: ModelRef) -> Path:
    """The run's; of a run in a store the checkpoint may be all that is here, with the config that it was made with."""
    assert ref.run_dir is not None
    if ref.checkpoint is not None and not (ref.run_dir / CONFIG_FILE).is_file():
        return ref.checkpoint
    return ref.run_dir
