import re
from pathlib import Path

import pytest

from mmrl.config import RunConfig
from mmrl.config.run import StageConfig
from mmrl.errors import ConfigError, NotFoundError, RunFailedError
from mmrl.trainer.stages import StageContext, UserStages
from mmrl.types import Message, RewardPart, RewardResult, Rollout, RolloutGroup, Sample, ScoredGroup, TextPart

CONFIG = RunConfig.model_validate(
    {"name": "x", "model": {"path": "m"}, "data": {"train": "d"}, "reward": [{"type": "exact"}]}
)
DOCS = Path(__file__).parents[2] / "docs" / "stages.md"


def rollout(text: str, index: int) -> Rollout:
    return Rollout("s", index, (1,), (1,), (-0.5,), "stop", text, 0, 0)


def scored_group(*texts: str) -> ScoredGroup:
    sample = Sample("s", (Message("user", (TextPart("?"),)),), "1")
    rollouts = tuple(rollout(text, index) for index, text in enumerate(texts))
    rewards = tuple(RewardResult(1.0, (RewardPart("exact", 1.0, 1.0),)) for _ in texts)
    return ScoredGroup(RolloutGroup(sample, rollouts), rewards)


def stage_file(folder: Path, source: str) -> Path:
    path = folder / "my_stage.py"
    path.write_text(source)
    return path


def stages(path: Path, name: str = "Stage", **arguments: object) -> UserStages:
    return UserStages([StageConfig(after="reward", path=str(path), name=name, arguments=arguments)])


def test_the_safety_filter_of_the_docs_makes_blocked_rewards_missing_and_counts_them(tmp_path: Path):
    source = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert source is not None
    filter_stage = stages(stage_file(tmp_path, source[1]), "SafetyFilter", words=["Forbidden"])
    context = StageContext(CONFIG, 1)

    (group,) = filter_stage("reward", [scored_group("fine", "a forbidden word")], context)

    assert [reward.total for reward in group.rewards] == [1.0, None]
    assert context.metrics == {"safety/blocked": 1.0}


def test_a_stage_runs_only_after_the_stage_that_it_names(tmp_path: Path):
    path = stage_file(tmp_path, "class Stage:\n    def __call__(self, data, context):\n        return data[:1]\n")
    groups = [scored_group("a"), scored_group("b")]

    assert stages(path)("reward", groups, StageContext(CONFIG, 1)) == groups[:1]
    assert stages(path)("filter", groups, StageContext(CONFIG, 1)) == groups


def test_a_stage_that_raises_ends_the_run_with_its_name_and_step(tmp_path: Path):
    path = stage_file(tmp_path, "class Stage:\n    def __call__(self, data, context):\n        return 1 / 0\n")

    with pytest.raises(RunFailedError, match=r"stage 'Stage' \(after reward\) raised ZeroDivisionError at step 7"):
        stages(path)("reward", [], StageContext(CONFIG, 7))


def test_a_stage_that_returns_another_type_ends_the_run(tmp_path: Path):
    path = stage_file(tmp_path, "class Stage:\n    def __call__(self, data, context):\n        return None\n")

    with pytest.raises(RunFailedError, match="returned NoneType at step 2; it must return what it was given, a list"):
        stages(path)("reward", [], StageContext(CONFIG, 2))


def test_a_missing_file_class_or_argument_is_named_before_the_run(tmp_path: Path):
    path = stage_file(tmp_path, "class Other:\n    pass\n")

    with pytest.raises(NotFoundError, match=r"nowhere\.py does not exist"):
        stages(tmp_path / "nowhere.py")
    with pytest.raises(ConfigError, match="has no class 'Stage'; it has Other"):
        stages(path)
    with pytest.raises(ConfigError, match="Other does not take these arguments"):
        stages(path, "Other", words=1)


def test_a_file_that_cannot_be_loaded_is_named_with_its_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot be loaded: NameError"):
        stages(stage_file(tmp_path, "undefined_name\n"))


def test_a_stage_that_calls_exit_does_not_end_the_run_as_a_success(tmp_path: Path):
    path = stage_file(tmp_path, "class Stage:\n    def __call__(self, data, context):\n        raise SystemExit(0)\n")

    with pytest.raises(RunFailedError, match="raised SystemExit"):
        stages(path)("reward", [], StageContext(CONFIG, 1))


def test_a_stage_that_returns_other_elements_is_named(tmp_path: Path):
    path = stage_file(tmp_path, "class Stage:\n    def __call__(self, data, context):\n        return [1, 2]\n")

    with pytest.raises(RunFailedError, match="returned a list with a int; each element must be a ScoredGroup"):
        stages(path)("reward", [scored_group("a")], StageContext(CONFIG, 1))


def test_a_reward_cannot_go_missing_after_the_filter(tmp_path: Path):
    source = re.search(r"```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    assert source is not None
    config = StageConfig(
        after="filter",
        path=str(stage_file(tmp_path, source[1])),
        name="SafetyFilter",
        arguments={"words": ["forbidden"]},
    )

    with pytest.raises(RunFailedError, match="let the stage follow `reward`"):
        UserStages([config])("filter", [scored_group("forbidden")], StageContext(CONFIG, 1))
