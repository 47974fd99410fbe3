"""What two evaluations must have alike for their difference to be that of their weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mmrl.config.reward import RewardConfig
from mmrl.config.secrets import redact
from mmrl.data.serialise import canonical

_TOLD = {
    "template": "the chat template",
    "tokenizer": "the tokenizer",
    "processor": "the image processor",
    "prompts": "the prompts as the models read them (token by token, images expanded)",
    "rewards": "the rewards, or code of theirs",
    "mmrl": "the version of mmrl",
}


@dataclass(frozen=True)
class Versions:
    """Each a hash, first 16 digits of a SHA-256, but for `mmrl`.

    prompts: over the token ids of every prompt, images expanded, and the sizes of the images.
    """

    template: str
    tokenizer: str
    processor: str
    prompts: str
    rewards: str
    mmrl: str


def differences(first: Versions, second: Versions) -> list[str]:
    """What differs, in words; a comparison of evaluations shows it."""
    one, other = asdict(first), asdict(second)
    return [f"not the same: {what}" for name, what in _TOLD.items() if one[name] != other[name]]


def rewards_version(rewards: Sequence[RewardConfig]) -> str:
    """Of the settings of all rewards, and of the files that functions are taken from."""
    configs = [redact(reward.model_dump(mode="json")) for reward in rewards]
    files = [_content(path) for path in sorted(_paths(configs))]
    return short_hash({"rewards": configs, "files": files})


def short_hash(value: Any) -> str:
    """Of JSON values."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:16]


def _paths(value: Any) -> set[str]:
    """Every value under a key `path` that is a file."""
    if isinstance(value, Mapping):
        own = value.get("path")
        found = {own} if isinstance(own, str) and Path(own).is_file() else set()
        return found.union(*(_paths(entry) for entry in value.values()))
    if isinstance(value, list | tuple):
        return set().union(*(_paths(entry) for entry in value))
    return set()


def _content(path: str) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
