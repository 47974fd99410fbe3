"""Rewards at work beside the console: tried on rows, scored anew on a past run, compared with people's pairs.

Whatever is scored runs as a command of its own; code of users never runs in the console's process. What is typed is
kept in files, so that a reload loses nothing:

    <home>/console/rewards/<user>/<what>.yaml       the text of `reward:` as it stands
    <home>/console/rewards/<user>/<what>-run.yaml   what the last command was given
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from console.services.processes import Processes, Task
from mmrl.config.base import home
from mmrl.config.loading import build_config
from mmrl.config.yaml_text import plain_yaml
from mmrl.data.files import write_bytes
from mmrl.errors import ConfigError, DataError
from mmrl.jobs.config_checks import code_keys, refuse_literal_secrets
from mmrl.jobs.configs import config_of
from mmrl.jobs.records import Job, User, local_path
from mmrl.jobs.reward_functions import RewardFunction
from mmrl.jobs.roles import check_allowed
from mmrl.jobs.settings import JobsSettings

What = Literal["try", "rescore", "people"]
TRY_S = 600.0
RESCORE_S = 3600.0
PEOPLE_S = 1800.0
MOST_MOVED = 60
MAX_ROWS = 50
_MAX_TEXT = 100_000


class RewardWork:
    """actor: in whose name, and whose texts."""

    def __init__(self, processes: Processes, actor: User, settings: JobsSettings, *, root: Path | None = None) -> None:
        self._processes, self._actor, self._settings = processes, actor, settings
        self._own = hashlib.sha256(actor.id.encode()).hexdigest()[:16]
        self._root = (root if root is not None else home() / "console" / "rewards") / self._own

    def text(self, what: str) -> str | None:
        """What was typed last; None where nothing was."""
        try:
            return (self._root / f"{what}.yaml").read_text(encoding="utf-8")
        except OSError:
            return None

    def keep(self, what: str, text: str) -> None:
        """Raises ForbiddenError for who may only look."""
        check_allowed(self._actor, "submit", settings=self._settings)
        if len(text) > _MAX_TEXT:
            raise ConfigError(f"the rewards have at most {_MAX_TEXT:,} characters (got {len(text):,})")
        write_bytes(self._root / f"{what}.yaml", text.encode())

    def start_try(self, rewards: str, ref: str, num_rows: int) -> Task:
        """On rows of a data set, each answered rightly, wrongly and in other ways."""
        config = self._config("try", rewards, ref)
        limit = str(min(max(1, num_rows), MAX_ROWS))
        return self._start(
            "try", ["reward", "test", str(config), "--limit", limit, "--json"], TRY_S, rewards, ref, limit
        )

    def start_people(self, rewards: str, ref: str) -> Task:
        """On the pairs of a data set, which people ordered."""
        config = self._config("people", rewards, ref)
        words = ["reward", "agreement", str(config), "--marks", ref, "--json"]
        return self._start("people", words, PEOPLE_S, rewards, ref)

    def start_rescore(self, rewards: str, job: Job, split: str, first: int, last: int) -> Task:
        """On the responses of a run that were kept with their text, of the steps from first to last.

        Raises DataError where the run directory is not on this machine.
        """
        folder = local_path(job.run_dir)
        if folder is None or not folder.is_dir():
            raise DataError(f"the responses of {job.name} are at {job.run_dir}, which is not on this machine")
        changed = parse_rewards(rewards)
        self._check({"reward": changed})
        file = self._root / "rescore-run.yaml"
        write_bytes(file, yaml.safe_dump({"reward": changed}, allow_unicode=True, sort_keys=False).encode())
        words = ["reward", "rescore", str(folder.absolute()), "--config", str(file), "--split", split]
        words += ["--steps", f"{first}:{last + 1}", "--top", str(MOST_MOVED), "--json"]
        return self._start("rescore", words, RESCORE_S, rewards, job.id, split, str(first), str(last))

    def get(self, what: What) -> Task | None:
        return self._processes.get(self._key(what))

    def stop(self, what: What) -> None:
        self._processes.stop(self._key(what))

    def _config(self, what: What, rewards: str, ref: str) -> Path:
        """A config that names the data and the rewards, and a model that nothing loads."""
        config = {
            "name": f"rewards-{what}",
            "model": {"path": "none"},
            "data": {"train": ref},
            "reward": parse_rewards(rewards),
        }
        self._check(config)
        self._check(build_config(config, source="the rewards").config.model_dump(mode="json"))
        file = self._root / f"{what}-run.yaml"
        write_bytes(file, yaml.safe_dump(config, allow_unicode=True, sort_keys=False).encode())
        return file

    def _check(self, config: Mapping[str, Any]) -> None:
        """As for a run with these rewards: code of their own, secrets and servers are for those who may use them."""
        check_allowed(self._actor, "submit", settings=self._settings)
        refuse_literal_secrets(config)
        if code_keys(config):
            check_allowed(self._actor, "code", settings=self._settings)

    def _start(self, what: What, words: list[str], deadline_s: float, *asked: str) -> Task:
        self._processes.stop(self._key(what))  # asked for anew, also where nothing was changed: files may have been
        return self._processes.start(self._key(what), words, deadline_s=deadline_s, stamp=stamp_of(*asked))

    def _key(self, what: What) -> str:
        return f"reward-{what}-{self._own}"


def stamp_of(*asked: str) -> str:
    """Tells what a task was asked about from what stands on the page now."""
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:16]


def parse_rewards(text: str) -> list[Any]:
    """A YAML list of rewards, also under `reward:`. Raises ConfigError."""
    if len(text) > _MAX_TEXT:
        raise ConfigError(f"the rewards have at most {_MAX_TEXT:,} characters (got {len(text):,})")
    found = plain_yaml(text, "the rewards")
    if isinstance(found, Mapping):
        found = found["reward"] if list(found) == ["reward"] else [found]
    if not isinstance(found, list) or not found:
        raise ConfigError("the rewards must be a list, such as `- {type: math}`, one entry a line")
    return found


def rewards_text(job: Job) -> str:
    """The rewards of a run, without what is as by default. Raises ConfigError for a config without any."""
    run = config_of(job).run_config
    if not run.reward:
        raise ConfigError(f"{job.name} has no rewards, so there is nothing to compare with")
    entries = [{"type": each.type, **each.model_dump(mode="json", exclude_defaults=True)} for each in run.reward]
    return "".join(f"- {_flow(entry)}\n" for entry in entries)


def function_text(function: RewardFunction) -> str:
    """A reward function that was brought, as an entry. Settings without a default are to be filled in."""
    missing = {setting.name: None for setting in function.settings if setting.default is None}
    entry = {"type": "function", "path": str(function.path), "name": function.function}
    return f"- {_flow(entry | ({'arguments': missing} if missing else {}))}\n"


def _flow(entry: Mapping[str, Any]) -> str:
    return yaml.safe_dump(
        dict(entry), default_flow_style=True, sort_keys=False, allow_unicode=True, width=10_000
    ).strip()
