"""Grades on disk, by what was asked: a small JSON file each, safe to share between processes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from pathlib import Path

from mmrl.config.base import home
from mmrl.config.reward import JudgeRewardConfig
from mmrl.data.files import write_bytes
from mmrl.rewards.model.judge_prompt import Grade, Question

_FORMAT = 1


class JudgeCache:
    """Grades of one judge. Only grades are kept, never failures, and nothing of the key or the texts."""

    def __init__(self, config: JudgeRewardConfig) -> None:
        self._is_on = config.cache
        self._root = Path(config.cache_dir) if config.cache_dir is not None else home() / "cache" / "judge"
        asked = ("url", "model", "rubric", "scale", "reply", "explain", "temperature", "max_tokens", "extra")
        self._settings = {name: getattr(config, name) for name in asked}

    def key(self, question: Question) -> str:
        """SHA-256 of all that may change the grade."""
        content = [_FORMAT, self._settings, asdict(question)]
        return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()

    def get(self, key: str) -> Grade | None:
        """None also for a file that is damaged."""
        if not self._is_on:
            return None
        try:
            kept = json.loads(self._path(key).read_bytes())
            return Grade(float(kept["value"]), str(kept["explanation"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, key: str, grade: Grade) -> None:
        if self._is_on:
            write_bytes(self._path(key), json.dumps(asdict(grade)).encode())

    def _path(self, key: str) -> Path:
        return self._root / key[:2] / f"{key}.json"
