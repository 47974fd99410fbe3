"""Runs of `mmrl train` in one process that sample with vLLM."""

from __future__ import annotations

from pathlib import Path

import pytest
from learning import run, run_config, warm_model

from mmrl.config import RunConfig
from mmrl.errors import ConfigError
from mmrl.runs.progress import make_progress
from mmrl.runs.reader import RunReader
from mmrl.trainer import train
from mmrl.trainer.preflight import preflight

pytestmark = pytest.mark.vllm

STEPS = 4
VLLM = {"engine": "vllm", "kv_cache_gib": 0.1}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("vllm-train")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def model(home: Path) -> Path:
    return warm_model(home / "model", "digits-which", steps=20)


def config(model: Path, *, rollout: dict[str, object] | None = None, **more: object) -> RunConfig:
    settings = {"prompts_per_step": 6, "max_response_tokens": 10, **(rollout or {})}
    return run_config(model, "digits-which", steps=STEPS, rollout=settings, **more)


def values(run_dir: Path, name: str) -> dict[int, float]:
    return {row.step: row.values[name] for row in RunReader(run_dir).metrics() if row.values.get(name) is not None}


def test_a_run_learns_with_vllm_what_it_learns_with_hf_and_goes_on_from_its_middle(home: Path, model: Path) -> None:
    """The same seeds draw the same responses, so even the rewards are the same while rounding has not grown."""
    checkpoints = {"every": 2, "keep": 2}
    with_hf = run(config(model), home / "runs" / "hf")
    with_vllm = run(config(model, rollout=VLLM, checkpoint=checkpoints), home / "runs" / "vllm")
    gaps = values(with_vllm.run_dir, "sync/logprob_gap_max")
    assert len(gaps) == STEPS
    assert max(gaps.values()) <= 1e-4
    rewards = values(with_vllm.run_dir, "reward/mean")
    assert rewards == pytest.approx(values(with_hf.run_dir, "reward/mean"))
    from_middle = with_vllm.run_dir / "checkpoints" / "step-000002"
    settings = config(model, rollout=VLLM, checkpoint=checkpoints)
    again = train(settings, run_dir=home / "runs" / "again", resume=from_middle, progress=make_progress("quiet"))
    assert values(again.run_dir, "reward/mean") == pytest.approx({step: rewards[step] for step in (3, 4)})
    assert max(values(again.run_dir, "sync/logprob_gap_max").values()) <= 1e-4


def test_sft_is_evaluated_under_the_weights_of_its_step(home: Path, model: Path) -> None:
    """Greedy answers of the held-out data, as the engine `hf` gives them from the very weights that are trained."""
    scores = {}
    for name, rollout in (("hf", {}), ("vllm", VLLM)):
        settings = {"kind": "sft", "rollout": {"max_response_tokens": 10, **rollout}}
        data = {"train": "digits-which-noisy", "eval": "digits-which@validation", "max_prompt_tokens": 96}
        sft = run_config(
            model, "digits-which-noisy", steps=2, lr=3e-3, **settings, eval={"every": 1, "max_samples": 16}
        )
        sft = sft.model_copy(update={"data": sft.data.model_validate(data)})
        scores[name] = values(run(sft, home / "runs" / f"sft-{name}").run_dir, "eval/reward")
    assert len(scores["vllm"]) == 3
    assert scores["vllm"] == pytest.approx(scores["hf"])


def test_o16_o17_a_dry_run_tells_of_room_that_is_too_small(home: Path, model: Path) -> None:
    """Before any weight is loaded; the digits take 4 tokens an image and prompts of up to 33."""
    preflight(config(model, rollout={"engine": "vllm"}))
    with pytest.raises(ConfigError, match=r"rollout.max_model_len: the longest prompt has \d+ tokens .*room for 30"):
        preflight(config(model, rollout={"engine": "vllm", "max_model_len": 30}))
    with pytest.raises(ConfigError, match=r"largest image of the data takes 4 tokens, .* would hold 3"):
        preflight(config(model, rollout={"engine": "vllm", "max_batch_tokens": 3, "max_batch_rows": 1}))
