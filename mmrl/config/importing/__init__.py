"""`import_config`: a verl or EasyR1 config, or a launch script of verl, as one of ours.

The way: file and overrides -> the peer's settings (`peer_tree`) -> ours, by the peer's table (`verl`, `easyr1`), each
setting marked as read -> RunConfig, which checks it. What was not read, or means something else here, becomes a note.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mmrl.config.importing import easyr1, verl
from mmrl.config.importing.draft import Draft, Note
from mmrl.config.importing.peer_tree import PeerTree, read_peer
from mmrl.config.loading import build_config
from mmrl.errors import ConfigError

__all__ = ["ImportedConfig", "Note", "import_config"]


@dataclass(frozen=True)
class ImportedConfig:
    """peer: whose config it was. data: ours as plain data, only what the peer's says, and it loads as a RunConfig.

    notes: settings that have no equal here, mean something else, or are left for the user to set.
    """

    peer: str
    data: dict[str, Any]
    notes: tuple[Note, ...]


def import_config(path: str | Path, overrides: Sequence[str] = ()) -> ImportedConfig:
    """The config in a YAML file or shell script, with `key=value` overrides in the peer's own words laid over it.

    Raises NotFoundError if there is no such file, and ConfigError for one of neither peer or one that, told in our
    terms, does not fit together.
    """
    file = Path(path).expanduser()
    tree = read_peer(file, overrides)
    peer, convert = _peer_of(tree, file)
    draft = Draft(tree)
    draft.put("name", file.stem)
    convert(draft)
    draft.note_what_is_left()
    data = draft.data()
    build_config(data, source=f"{file}, told in mmrl's terms")
    return ImportedConfig(peer, data, tuple(draft.notes))


def _peer_of(tree: PeerTree, file: Path) -> tuple[str, Any]:
    if tree.has("actor_rollout_ref"):
        return "verl", verl.convert
    if tree.has("worker.actor") or tree.has("worker.rollout"):
        return "EasyR1", easyr1.convert
    raise ConfigError(
        f"{file}: neither a config of verl (no `actor_rollout_ref`) nor one of EasyR1 (no `worker.actor`); "
        f"its groups are {', '.join(tree.groups()) or 'none'}"
    )
