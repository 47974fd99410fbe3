"""`--from CHECKPOINT`: the config of a run that begins at the checkpoint of another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from mmrl.errors import ConfigError, ConflictError

if TYPE_CHECKING:
    from mmrl.config import LoadedConfig

FromOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="CHECKPOINT",
        show_default=False,
        help="Begin at this checkpoint (RUN, RUN@STEP, RUN@best or a folder) with weights, optimiser and place in the "
        "data; CONFIG may be left out, and is then that of the checkpoint.",
    ),
]


@dataclass(frozen=True)
class Fork:
    """checkpoint: the folder to begin at. changes: setting -> value there and value here."""

    loaded: LoadedConfig
    checkpoint: Path
    changes: dict[str, tuple[object, object]]

    @property
    def lines(self) -> list[str]:
        """The difference in words."""
        from mmrl.config.dump import value_text

        head = f"fork of {self.checkpoint}: " + ("the same settings" if not self.changes else "changed settings:")
        return [head, *(f"  {key}: {value_text(old)} -> {value_text(new)}" for key, (old, new) in self.changes.items())]


def load_fork(checkpoint: str, config: str | Path | None, overrides: Sequence[str]) -> Fork:
    """The checkpoint's own config, with the top-level keys of `config` in place of its own, and the overrides.

    config: may be the first override, where no file is named.
    Raises NotFoundError for what is no checkpoint, ConfigError for settings that are wrong,
    ConflictError for those that a fork cannot change.
    """
    from mmrl.config.dump import dump_yaml
    from mmrl.config.loading import load_over
    from mmrl.runs.checkpoint_refs import resolve_model
    from mmrl.runs.config_file import changed_settings, parse_config
    from mmrl.runs.forks import fork_conflict
    from mmrl.runs.layout import CONFIG_FILE

    ref = resolve_model(checkpoint)
    if ref.checkpoint is None:
        raise ConfigError(
            f"--from {checkpoint}: a model has weights and no state of a run; to train it set model.path={ref.model}"
        )
    words = list(overrides)
    if config is not None and "=" in str(config) and not Path(config).exists():
        words, config = [str(config), *words], None
    text = (ref.checkpoint / CONFIG_FILE).read_text(encoding="utf-8")
    loaded = load_over(config, parse_config(text), words, source=str(ref.checkpoint / CONFIG_FILE))
    mine = dump_yaml(loaded.run_config)
    conflict = fork_conflict(ref.checkpoint, mine)
    if conflict is not None:
        raise ConflictError(conflict)
    changes = changed_settings(text, mine)
    return Fork(loaded, ref.checkpoint, changes)
