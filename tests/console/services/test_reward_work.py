"""What is typed as rewards: read without harm to the console, and run in nobody's name who may not."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from console.services.draft_text import parsed
from console.services.form_fields import FormField, to_value
from console.services.processes import Processes
from console.services.reward_work import RewardWork, parse_rewards
from mmrl.errors import ConfigError, DataError
from mmrl.jobs.errors import ForbiddenError
from mmrl.jobs.records import User
from mmrl.jobs.settings import JobsSettings
from mmrl.runs.config_file import parse_config

BOMB = "".join(f"x{n}: &x{n} [{', '.join([f'*x{n - 1}'] * 9) if n else 'lol'}]\n" for n in range(12))
"""9**11 values, were it written out."""
DEEP = "- " * 2000


def _work(root: Path, **settings: bool) -> RewardWork:
    member = User("u1", "ann", None, "member", datetime(2026, 1, 1, tzinfo=UTC), False, None)
    return RewardWork(Processes(root / "processes"), member, JobsSettings(**settings), root=root / "rewards")


@pytest.mark.parametrize(
    "rewards",
    [
        "- {type: remote, url: 'http://127.0.0.1:9', api_key: 'file:~/.mmrl/console/key'}",
        "- {type: remote, url: 'http://127.0.0.1:9'}",
        "- {type: min, rewards: [{type: math}, {type: judge, model: m}]}",
        "- {type: function, path: mine.py}",
    ],
)
def test_a_members_rewards_reach_no_server_and_no_secret_from_the_consoles_account(
    tmp_path: Path, rewards: str
) -> None:
    work = _work(tmp_path)
    for start in (work.start_people, lambda text, ref: work.start_try(text, ref, 2)):
        with pytest.raises(ForbiddenError, match="reads secrets or asks servers"):
            start(rewards, "shapes@train")
    assert not (tmp_path / "processes").exists(), "no command has begun"


@pytest.mark.parametrize("text", [BOMB, DEEP])
def test_a_text_that_unfolds_without_end_is_refused_at_once(text: str) -> None:
    begin = time.monotonic()
    with pytest.raises(ConfigError, match=r"aliases|too deep"):
        parse_rewards(text)
    assert parsed(text) is None
    assert to_value(FormField("reward", "Reward", "", "yaml"), text) == text
    assert time.monotonic() - begin < 5


def test_a_runs_own_config_that_unfolds_without_end_is_refused_too() -> None:
    with pytest.raises(DataError, match="aliases"):
        parse_config(BOMB)


def test_rewards_are_a_list_of_a_page_at_most() -> None:
    assert parse_rewards("reward:\n- {type: math, weight: 2}\n") == [{"type": "math", "weight": 2}]
    assert parse_rewards("type: math") == [{"type": "math"}]
    for wrong, told in (("- type: [", "not valid YAML"), ("", "must be a list"), ("#" * 100_001, "at most 100,000")):
        with pytest.raises(ConfigError, match=told):
            parse_rewards(wrong)
