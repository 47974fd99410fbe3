"""`import_config`: a verl or EasyR1 config, or a launch script of verl, as one of ours.

The way: file and overrides -> the peer's settings (`peer_tree`) -> ours, by the peer's table (`verl`, `easyr1`), each
setting marked as read -> RunConfig, which checks it. What was not read, or means something else here, becomes a note.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.config.dump import yaml_text
from mmrl.config.importing import easyr1, verl
from mmrl.config.importing.draft import Draft, Note
from mmrl.config.importing.peer_tree import PeerTree, read_peer
from mmrl.config.loading import build_config
from mmrl.errors import ConfigError

_NOT_IN_A_NAME = re.compile(r"[^\w.-]+")

__all__ = ["ImportedConfig", "Note", "import_config"]


@dataclass(frozen=True)
class ImportedConfig:
    """peer: whose config it was. data: ours as plain data, only what the peer's says, and it loads as a RunConfig.

    notes: settings that have no equal here, mean something else, or are left for the user to set.
    to_set: of these the ones without which the run is not the peer's, a line each.
    """

    peer: str
    data: dict[str, Any]
    notes: tuple[Note, ...]
    to_set: tuple[str, ...] = ()

    def yaml(self) -> str:
        """The config as YAML, headed by comments on what is to be set."""
        return "".join(f"# SET {line}\n" for line in self.to_set) + yaml_text(self.data)


def import_config(
    path: str | Path, overrides: Sequence[str] = (), *, count_rows: Callable[[str], int | None] | None = None
) -> ImportedConfig:
    """The config in a YAML file or shell script, with `key=value` overrides in the peer's own words laid over it.

    count_rows: tells the rows of a data set, or None where it cannot; epochs then become steps.

    Raises NotFoundError if there is no such file, and ConfigError for one of neither peer or one that, told in our
    terms, does not fit together.
    """
    file = Path(path).expanduser()
    tree = read_peer(file, overrides)
    peer, convert = _peer_of(tree, file)
    draft = Draft(tree, count_rows)
    draft.put("name", file.stem)
    convert(draft)
    _put_valid_name(draft)
    draft.note_what_is_left()
    data = draft.data()
    build_config(data, source=f"{file}, told in mmrl's terms")
    return ImportedConfig(peer, data, tuple(draft.notes), tuple(draft.to_set))


def _put_valid_name(draft: Draft) -> None:
    """The name as a run's folder can bear it: of letters, digits, `.`, `-` and `_`."""
    theirs = str(draft.get("name"))
    ours = _NOT_IN_A_NAME.sub("-", theirs).strip("-.") or "run"
    draft.put("name", ours)
    if ours != theirs:
        draft.note("name", theirs, f"not the name of a run; it is {ours}")


def _peer_of(tree: PeerTree, file: Path) -> tuple[str, Any]:
    if tree.has("actor_rollout_ref"):
        return "verl", verl.convert
    if tree.has("worker.actor") or tree.has("worker.rollout"):
        return "EasyR1", easyr1.convert
    raise ConfigError(
        f"{file}: neither a config of verl (no `actor_rollout_ref`) nor one of EasyR1 (no `worker.actor`); "
        f"its groups are {', '.join(tree.groups()) or 'none'}"
    )
