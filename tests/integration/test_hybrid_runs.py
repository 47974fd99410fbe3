"""Whole runs in every layout of the hybrid engine: they learn what a run in one process learns, step for step."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from learning import run, run_config, warm_model

from mmrl.config import RunConfig
from mmrl.runs.reader import RunReader

MAIN = {"executor": "ray", "pools": {"main": {"workers": 2}}, "deadline_s": 300}
SEPARATE = {
    "executor": "ray",
    "pools": {"main": {"workers": 1}, "sampling": {"workers": 1}},
    "roles": {"rollout": "sampling"},
    "deadline_s": 300,
}
BY_BROADCAST = {
    **SEPARATE,
    "pools": {"main": {"workers": 2}, "sampling": {"workers": 1}},
    "weight_transfer": "broadcast",
}
REFERENCE_APART = {
    "executor": "ray",
    "pools": {"main": {"workers": 1}, "fixed": {"workers": 1}},
    "roles": {"reference": "fixed", "actor": "main"},
    "deadline_s": 300,
}
VLLM = {"engine": "vllm", "kv_cache_gib": 0.25}
LAYOUTS = {
    "two-ranks-hf": (MAIN, {}),
    "two-ranks-vllm": (MAIN, VLLM),
    "two-ranks-vllm-tensor-parallel": (MAIN, {**VLLM, "tensor_parallel": 2}),
    "separate-vllm": (SEPARATE, VLLM),
    "separate-hf": (SEPARATE, {}),
    "separate-by-broadcast": (BY_BROADCAST, {}),
}
STEPS = 3


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("hybrid")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def model(home: Path) -> Path:
    return warm_model(home / "model", "digits-which", steps=30)


def config(model: Path, *, placement=None, rollout=None, **more: object) -> RunConfig:
    settings = {"prompts_per_step": 6, "max_response_tokens": 10, **(rollout or {})}
    return run_config(
        model, "digits-which", steps=STEPS, rollout=settings, **({"placement": placement} if placement else {}), **more
    )


@pytest.fixture(scope="module")
def inline(home: Path, model: Path) -> Path:
    return run(config(model), home / "runs" / "inline").run_dir


def values_of(run_dir: Path) -> list[dict[str, float]]:
    return [row.values for row in RunReader(run_dir).metrics() if row.step > 0]


def sampled_ids(run_dir: Path, step: int) -> list[tuple[str, int, tuple[int, ...]]]:
    """Sample, index and ids of each response of a step."""
    rows = [row for path in run_dir.glob("attempt-*/samples/**/*.parquet") for row in pq.read_table(path).to_pylist()]
    keys = ("prompt_id", "sample_idx", "token_ids")
    found = sorted((row[keys[0]], row[keys[1]], tuple(row[keys[2]])) for row in rows if row["step"] == step)
    assert found
    return found


def check_equal(mine: dict[str, float], theirs: dict[str, float], name: str, *, rel: float) -> None:
    """Both have the metric with one value, or neither has it."""
    assert (name in mine) == (name in theirs), name
    if name in mine:
        assert mine[name] == pytest.approx(theirs[name], rel=rel, abs=1e-5), name


def check_is_the_run_in_one_process(run_dir: Path, inline: Path) -> None:
    """The same responses from the same weights, and so the same rewards, gradients and next weights."""
    assert len(values_of(run_dir)) == STEPS
    for step, (mine, theirs) in enumerate(zip(values_of(run_dir), values_of(inline), strict=True), start=1):
        assert mine["sync/logprob_gap_max"] <= 1e-4
        assert sampled_ids(run_dir, step) == sampled_ids(inline, step)
        for name in ("reward/mean", "response/length_mean", "actor/num_tokens"):
            check_equal(mine, theirs, name, rel=1e-6)
        for name in ("actor/loss", "actor/grad_norm", "actor/ratio_max", "actor/entropy"):
            check_equal(mine, theirs, name, rel=1e-3)


def layouts() -> list[object]:
    """Those that sample with hf, which the tests of the others' parts cover, are for `make test-all`."""
    return [pytest.param(name, marks=pytest.mark.slow if name.endswith("-hf") else ()) for name in LAYOUTS]


@pytest.mark.ray
@pytest.mark.parametrize("layout", layouts())
def test_a_run_in_workers_is_the_run_in_one_process(layout: str, home: Path, model: Path, inline: Path):
    placement, rollout = LAYOUTS[layout]
    left_behind = Path("/dev/shm/-tp:0-[0-1]-cpushm_0")  # as vLLM names it, of a run that was killed
    left_behind.touch()
    result = run(config(model, placement=placement, rollout=rollout), home / "runs" / layout)
    left_behind.unlink()
    check_is_the_run_in_one_process(result.run_dir, inline)


@pytest.mark.slow
def test_vllm_in_one_process_is_the_run_with_hf(home: Path, model: Path, inline: Path):
    result = run(config(model, rollout=VLLM), home / "runs" / "vllm")
    check_is_the_run_in_one_process(result.run_dir, inline)


@pytest.mark.ray
def test_a_run_goes_on_with_another_number_of_ranks_and_back(home: Path, model: Path, inline: Path):
    """One step on two ranks, the next in one process, the third on two ranks again: the steps of the unbroken run."""
    folder = home / "runs" / "moved"
    for step, placement in enumerate((MAIN, None, MAIN), start=1):
        moved = config(model, placement=placement, checkpoint={"every": 1, "keep": 9})
        run(moved.model_copy(update={"train": moved.train.model_copy(update={"steps": step})}), folder)
    check_is_the_run_in_one_process(folder, inline)


@pytest.mark.ray
@pytest.mark.parametrize(
    "placement", [MAIN, pytest.param(REFERENCE_APART, marks=pytest.mark.slow)], ids=["together", "apart"]
)
def test_critic_and_reference_are_those_of_one_process(placement: dict, home: Path, model: Path):
    """PPO with a KL term: the critic on the actor's ranks, the reference once with them and once in its own pool."""
    more = {
        "algorithm": {"type": "ppo", "group_size": 2, "kl": {"coef": 0.05}},
        "critic": {"warmup_steps": 1},
        "reward": [{"type": "length", "max_tokens": 16}],
    }
    alone = run(config(model, **more), home / "runs" / "ppo").run_dir
    result = run(config(model, placement=placement, **more), home / "runs" / f"ppo-{len(placement['pools'])}")
    check_is_the_run_in_one_process(result.run_dir, alone)
    for mine, theirs in zip(values_of(result.run_dir), values_of(alone), strict=True):
        for name in ("critic/loss", "critic/grad_norm", "actor/kl"):
            check_equal(mine, theirs, name, rel=2e-3)
        check_equal(mine, theirs, "critic/flops", rel=0.1)


NO_ROOM = """
import resource

from mmrl.cluster import dispatch


class NoRoom:
    \"\"\"At step 2 the workers cannot write files of more than 100 KB, as on a full disk; then they can again.\"\"\"

    def __init__(self, worker):
        pass

    @dispatch("shard")
    def __call__(self, groups, context):
        hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000 if context.step == 2 else hard, hard))
        return groups
"""


@pytest.mark.ray
def test_ranks_that_find_the_disk_full_lose_a_checkpoint_and_no_run(home: Path, model: Path, inline: Path):
    """The run goes on with a warning, as in one process, and the next checkpoint is written."""
    (home / "no_room.py").write_text(NO_ROOM)
    stage = {"after": "reward", "path": str(home / "no_room.py"), "name": "NoRoom", "pool": "main"}
    settings = config(model, placement=MAIN, checkpoint={"every": 1, "keep": 9}, stages=[stage])
    reader = RunReader(run(settings, home / "runs" / "no-room").run_dir)
    assert [point.step for point in reader.checkpoints()] == [1, 3]
    (warning,) = [event.fields["message"] for event in reader.events() if "checkpoint of step 2" in str(event.fields)]
    assert "could not be written" in warning
    assert "the run goes on" in warning
    check_is_the_run_in_one_process(reader.run_dir, inline)
    assert not [path for path in (reader.run_dir / "checkpoints").iterdir() if path.name.startswith(".")]
