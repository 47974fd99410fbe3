"""The example in docs/rewards.md, as a reader would use it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from mmrl.config.reward import FunctionRewardConfig
from mmrl.config.run import RewardRunnerConfig
from mmrl.rewards import RewardRunner
from mmrl.types import Message, Sample, TextPart

DOCS = (Path(__file__).parents[2] / "docs" / "rewards.md").read_text()


def test_the_function_of_the_manual_scores(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(# my_reward\.py\n.*?)```", DOCS, re.DOTALL)
    (settings,) = re.findall(r"```yaml\n(reward: \[\{type: function.*?)```", DOCS, re.DOTALL)
    assert len(code.splitlines()) <= 10
    (tmp_path / "my_reward.py").write_text(code)
    (options,) = YAML(typ="safe").load(settings)["reward"]
    config = FunctionRewardConfig(**options | {"path": str(tmp_path / "my_reward.py")})
    sample = Sample("s", (Message("user", (TextPart("Name it."),)),), "red square")
    texts = ["A red square", "a square " + "that is red " * 20, "a red circle", ""]
    with RewardRunner([config], RewardRunnerConfig(workers=1)) as runner:
        results = runner.score_texts([(sample, text) for text in texts])
    assert [result.total for result in results] == [pytest.approx(1.1), 1.0, 0.0, 0.0]
    assert [result.parts[0].explanation for result in results[2:]] == ["missing: square", "missing: red, square"]
    assert results[0].parts[0].extras == {"short": 1.0}
