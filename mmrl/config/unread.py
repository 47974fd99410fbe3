"""What an earlier version of mmrl stored and nothing reads today: left out of a stored config, with a note in the log.
Where leaving it out would mean something else, what it came to takes its place.

A config that a person writes is refused where it sets what nothing reads. That of a run that is there holds every
default of its time, and a run that was accepted once must be read, resumed and compared by later versions too.
"""

from __future__ import annotations

import logging

from pydantic import ValidationError

from mmrl.config.nodes import MapNode, Scalar, dotted, find, plain
from mmrl.config.nodes import Path as KeyPath
from mmrl.config.schema import path_of

logger = logging.getLogger(__name__)


class UnreadError(ValueError):
    """A setting stands where nothing reads it. keys: dotted, below the model that refuses them.

    instead: what takes their place in a stored config; by default they are left out.
    """

    def __init__(self, message: str, *keys: str, instead: float | None = None) -> None:
        super().__init__(message)
        self.keys = keys
        self.instead = instead


def drop_unread(root: MapNode, error: ValidationError, source: str) -> bool:
    """Takes the settings that `error` calls unread out of the tree; False where there are none of them in it."""
    any_dropped = False
    for details in error.errors(include_url=False):
        fault = details.get("ctx", {}).get("error")
        if not isinstance(fault, UnreadError):
            continue
        for key in fault.keys:
            any_dropped |= _drop(root, (*path_of(details["loc"], root), *key.split(".")), source, fault.instead)
    return any_dropped


def _drop(root: MapNode, path: KeyPath, source: str, instead: float | None) -> bool:
    parent, name = find(root, path[:-1]), str(path[-1])
    if not isinstance(parent, MapNode) or name not in parent.items:
        return False
    node = parent.items.pop(name)
    value, became = plain(node), "left out"
    if instead is not None:
        parent.items[name] = Scalar(instead, None, node.origin)
        became = f"read as {instead:g}"
    told = "" if isinstance(value, dict) else f" {value!r}"
    logger.warning(
        "%s: %s%s, stored by an earlier version, is %s: nothing reads it", source, dotted(path), told, became
    )
    return True
