"""What an earlier version of mmrl stored and nothing reads today: left out of a stored config, with a note in the log.

A config that a person writes is refused where it sets what nothing reads. That of a run that is there holds every
default of its time, and a run that was accepted once must be read, resumed and compared by later versions too.
"""

from __future__ import annotations

import logging

from pydantic import ValidationError

from mmrl.config.nodes import MapNode, dotted, find, plain
from mmrl.config.nodes import Path as KeyPath
from mmrl.config.schema import path_of

logger = logging.getLogger(__name__)


class UnreadError(ValueError):
    """A setting stands where nothing reads it. keys: dotted, below the model that refuses them."""

    def __init__(self, message: str, *keys: str) -> None:
        super().__init__(message)
        self.keys = keys


def drop_unread(root: MapNode, error: ValidationError, source: str) -> bool:
    """Takes the settings that `error` calls unread out of the tree; False where there are none of them in it."""
    any_dropped = False
    for details in error.errors(include_url=False):
        fault = details.get("ctx", {}).get("error")
        for key in fault.keys if isinstance(fault, UnreadError) else ():
            any_dropped |= _drop(root, (*path_of(details["loc"], root), *key.split(".")), source)
    return any_dropped


def _drop(root: MapNode, path: KeyPath, source: str) -> bool:
    parent = find(root, path[:-1])
    if not isinstance(parent, MapNode) or path[-1] not in parent.items:
        return False
    value = plain(parent.items.pop(str(path[-1])))
    told = "" if isinstance(value, dict) else f" {value!r}"
    logger.warning("%s: %s%s, stored by an earlier version, is left out: nothing reads it", source, dotted(path), told)
    return True
