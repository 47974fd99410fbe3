import re
from pathlib import Path

import pytest

from mmrl.cluster import build_executor, dispatch
from mmrl.cluster.dispatch import marked_methods
from mmrl.config import RunConfig
from mmrl.config.placement import PlacementConfig
from mmrl.config.run import StageConfig
from mmrl.errors import ConfigError, NotFoundError, RunFailedError
from mmrl.trainer.stages import StageContext, UserStages
from mmrl.types import Message, RewardPart, RewardResult, Rollout, RolloutGroup, Sample, ScoredGroup, TextPart
from mmrl.user_stage import StageAnswer, worker_class_of

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


SHARDED = '''
from mmrl.cluster import dispatch


class Stage:
    """Keeps the groups of even length, on all workers of its pool, and counts the calls."""

    def __init__(self, worker, mark="."):
        self.worker, self.mark, self.calls = worker, mark, 0

    @dispatch("shard")
    def __call__(self, groups, context):
        self.calls += 1
        context.metrics["stage/seen"] = float(len(groups))
        context.metrics["stage/pool_size"] = float(self.worker.num_workers)
        return groups

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]
'''


def test_a_stage_of_a_pool_is_a_worker_group_with_its_own_dispatch_metrics_and_state(tmp_path: Path):
    config = StageConfig(after="reward", path=str(stage_file(tmp_path, SHARDED)), name="Stage", pool="main")
    with build_executor(PlacementConfig(), log_dir=None) as executor:
        placed = UserStages([config], executor=executor)
        context = StageContext(CONFIG, 1)
        groups = [scored_group("a"), scored_group("b")]

        assert placed("reward", groups, context) == groups
        assert placed("filter", groups, context) == groups

        assert context.metrics == {"stage/seen": 2.0, "stage/pool_size": 1.0}
        state = placed.state_dict()
        assert state == {"reward/0/Stage": {"workers": [{"calls": 1}]}}
        placed.load_state_dict({"reward/0/Stage": {"workers": [{"calls": 7}]}})
        assert placed.state_dict() == {"reward/0/Stage": {"workers": [{"calls": 7}]}}


def test_a_stage_of_a_pool_without_a_dispatch_runs_on_rank_zero_and_fails_as_elsewhere(tmp_path: Path):
    path = stage_file(tmp_path, "class Stage:\n    def __call__(self, data, context):\n        return 1 / 0\n")
    config = StageConfig(after="reward", path=str(path), name="Stage", pool="main")
    with build_executor(PlacementConfig(), log_dir=None) as executor:
        placed = UserStages([config], executor=executor)
        with pytest.raises(RunFailedError, match=r"stage 'Stage' \(after reward\) raised ZeroDivisionError at step 7"):
            placed("reward", [], StageContext(CONFIG, 7))
    assert placed.state_dict() == {}


def test_a_stage_of_a_pool_is_checked_without_being_built_where_there_is_no_executor(tmp_path: Path):
    source = "class Stage:\n    def __init__(self, words):\n        raise SystemExit\n    def __call__(self, d, c): ..."
    path = stage_file(tmp_path, source)
    config = StageConfig(after="reward", path=str(path), name="Stage", pool="main", arguments={"words": []})

    UserStages([config])
    with pytest.raises(ConfigError, match="Stage does not take these arguments"):
        UserStages([config.model_copy(update={"arguments": {}})])
    with pytest.raises(ConfigError, match="has no class 'Other'"):
        UserStages([config.model_copy(update={"name": "Other"})])


def test_metrics_of_workers_that_divided_the_data_are_added_up_and_else_taken_from_the_first():
    class Sharded:
        @dispatch("shard")
        def __call__(self, groups, context): ...

    class Everywhere:
        @dispatch("broadcast_rank_zero")
        def __call__(self, groups, context): ...

    answers = [StageAnswer([rank], {"seen": rank + 1.0}) for rank in range(3)]
    expected = {Sharded: StageAnswer([0, 1, 2], {"seen": 6.0}), Everywhere: StageAnswer([0], {"seen": 1.0})}
    for stage_class, answer in expected.items():
        mark = marked_methods(worker_class_of(stage_class))["__call__"]
        plan = mark.dispatch.plan(3, ([10, 20, 30], StageContext(CONFIG, 1)), {})
        assert plan.join(answers) == answer
