"""Mixed rows, several data sets and changed data, through preflight and training."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from data_rows import encoded, picture
from learning import run

from mmrl.batch import build_group_batch
from mmrl.cli.app import main
from mmrl.config import RunConfig, dump_yaml
from mmrl.config.rollout import RolloutConfig
from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.data import load_dataset
from mmrl.data.images import ImageStore
from mmrl.engines.base import SamplingParams
from mmrl.engines.rollout_hf import HfRollout
from mmrl.errors import DataError
from mmrl.models.policy import load_policy
from mmrl.runs.reader import RunReader
from mmrl.trainer.preflight import preflight

COUNTS: tuple[Any, ...] = (1, [], None, "absent", 3, 4, 5, 2)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def write_rows(path: Path, counts: Sequence[Any], *, answer: str = "1") -> Path:
    """A row for each entry: so many images, or no images written as an empty list, as null, or left out."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = random.Random(3)
    lines = []
    for number, count in enumerate(counts):
        num_images = count if isinstance(count, int) else 0
        names = [f"{path.stem}-{number}-{place}.png" for place in range(num_images)]
        for name in names:
            (path.parent / name).write_bytes(encoded(picture(draw, "RGB", draw.choice(((56, 56), (84, 30), (20, 60))))))
        row: dict[str, Any] = {"prompt": "<image>" * num_images + f"Question {number}?", "answer": answer}
        if count != "absent":
            row["images"] = names if num_images else count
        lines.append(json.dumps(row))
    path.write_text("\n".join(lines))
    return path


def run_config(model: Path, data_sets: Any, **changes: Any) -> RunConfig:
    plain: dict[str, Any] = {
        "name": "mixed",
        "model": {"path": str(model), "dtype": "float32", "device": "cpu"},
        "data": {"train": data_sets, "max_prompt_tokens": 200, **changes.pop("data", {})},
        "reward": [{"type": "exact"}],
        "algorithm": {"group_size": 2},
        "rollout": {"prompts_per_step": 4, "max_response_tokens": 4},
        "train": {"steps": 2},
        "eval": {"every": 0, "at_start": False},
        "checkpoint": {"every": 1, "keep": 2},
        **changes,
    }
    return RunConfig.model_validate(plain)


def test_d07_d24_v10_v15_mixed_rows_roll_out_and_both_paths_agree(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    samples = load_dataset(write_rows(tmp_path / "d" / "a.jsonl", COUNTS))
    assert [len(sample.images) for sample in samples] == [1, 0, 0, 0, 3, 4, 5, 2]
    policy = load_policy(
        ModelConfig(path=str(tiny_model()), dtype="float32", device="cpu"), ImageConfig(), store=ImageStore()
    )
    rollout = HfRollout(policy, RolloutConfig())
    groups = rollout.generate(list(samples), SamplingParams(max_response_tokens=5), num_responses=2, seed=1, step=1)
    prompts = [policy.prompts.prepare(sample) for sample in samples]
    assert rollout.last_stats is not None
    assert rollout.last_stats.prompt_tokens == sum(policy.prompts.num_tokens(sample) for sample in samples)
    batch = build_group_batch(prompts, [group.rollouts for group in groups])
    with torch.no_grad():
        prefix = policy(batch, path="prefix").logprobs
        plain = policy(batch, path="plain").logprobs
        alone = [
            policy(build_group_batch([prompt], [group.rollouts])).logprobs
            for prompt, group in zip(prompts, groups, strict=True)
        ]
    assert torch.allclose(prefix, plain, atol=2e-5)
    assert torch.allclose(prefix, batch.sampler_logprobs, atol=2e-5)
    for index, own in enumerate(alone):
        assert torch.allclose(prefix[2 * index : 2 * index + 2, : own.shape[1]], own, atol=2e-5)


def test_mixed_rows_of_two_sets_train_and_the_mixture_is_logged(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    first = write_rows(tmp_path / "d" / "a.jsonl", COUNTS)
    second = write_rows(tmp_path / "d" / "b.jsonl", [1, None, 1, None])
    config = run_config(tiny_model(), [{"name": str(first), "weight": 3}, {"name": str(second)}])
    run(config, tmp_path / "run")
    rows = {row.step: row.values for row in RunReader(tmp_path / "run").metrics()}
    assert rows[1]["data/mix/a.jsonl"] == 0.75
    assert rows[2]["data/mix/b.jsonl"] == 0.25
    assert rows[2]["data/epoch/a.jsonl"] == 0.75
    messages = [event.fields.get("message", "") for event in RunReader(tmp_path / "run").events()]
    assert any("preflight: data: 12 training samples, 0 held out; drawn from a.jsonl 75%" in text for text in messages)
    assert any("preflight: placement: actor on this process" in text for text in messages)


def test_a_run_whose_data_has_changed_does_not_go_on(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    path = write_rows(tmp_path / "d" / "a.jsonl", COUNTS)
    run(run_config(tiny_model(), str(path), train={"steps": 1}), tmp_path / "run")
    write_rows(path, COUNTS, answer="2")
    with pytest.raises(DataError, match=r"cannot go on: a\.jsonl: its content was \w{16} and is now \w{16}"):
        run(run_config(tiny_model(), str(path)), tmp_path / "run")
    write_rows(path, COUNTS)
    run(run_config(tiny_model(), str(path)), tmp_path / "run")
    assert RunReader(tmp_path / "run").state().state == "succeeded"


def test_d30_images_are_found_wherever_the_run_is_started(
    tiny_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_rows(tmp_path / "d" / "x" / "a.jsonl", [1, 2, 1, 1])
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert preflight(run_config(tiny_model(), "../d/x/a.jsonl")).train_samples == 4
    path.with_name("a-1-1.png").unlink()
    with pytest.raises(DataError, match=r"a\.jsonl:2: images\[1\]: no file 'a-1-1\.png' in the data set's folder"):
        preflight(run_config(tiny_model(), "../d/x/a.jsonl"))


def test_a_dry_run_tells_what_comes_and_writes_nothing(
    tiny_model: Callable[..., Path], tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_rows(tmp_path / "d" / "a.jsonl", COUNTS)
    config = run_config(
        tiny_model(), str(path), data={"max_prompt_tokens": 60, "on_overlong": "resize", "max_images": 5}
    )
    (tmp_path / "run.yaml").write_text(dump_yaml(config))
    before = sorted(home.rglob("*"))
    assert main(["run", str(tmp_path / "run.yaml"), "--dry-run", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)["preflight"]
    assert sorted(home.rglob("*")) == before
    lengths = [report["prompt_tokens_min"], report["prompt_tokens_max"]]
    assert lengths[0] < 60 < lengths[1]
    assert report["num_over_limit"] == report["num_resized"] + report["num_dropped"] > 0
    assert report["train_samples"] == 8 - report["num_dropped"]
    assert (report["samples_per_step"], report["responses_per_step"], report["optimiser_steps"]) == (4, 8, 2)
    estimates = {each["name"]: each for each in report["estimates"]}
    parameters = report["parameters"]
    assert estimates["weights"]["value"] == 4 * parameters
    assert estimates["optimiser"]["value"] == 8 * report["trainable_parameters"]
    parts = ("weights", "gradients", "optimiser", "sampling cache", "activations")
    assert estimates["memory"]["value"] == sum(estimates[name]["value"] for name in parts)
    assert estimates["data"]["value"] == 2 * 4 / report["train_samples"]
    assert all(each["reason"] for each in report["estimates"])
    assert {row["probe"]: row["mean"] for row in report["rewards"]}["reference in a box"] == 1.0
    assert report["placement"]["rewards"] == "2 processes beside it"


def test_a_dry_run_refuses_what_the_run_would_refuse(tiny_model: Callable[..., Path], tmp_path: Path) -> None:
    path = write_rows(tmp_path / "d" / "a.jsonl", COUNTS)
    with pytest.raises(DataError, match=r"prompts are longer than data.max_prompt_tokens 40 with their images"):
        preflight(run_config(tiny_model(), str(path), data={"max_prompt_tokens": 40, "on_overlong": "error"}))
    with pytest.raises(DataError, match=r"more images than data\.max_images 4 allows"):
        preflight(run_config(tiny_model(), str(path), data={"max_images": 4}))
    with pytest.raises(DataError, match="has 8 samples, fewer than one batch of 16"):
        preflight(run_config(tiny_model(), str(path), rollout={"prompts_per_step": 16, "max_response_tokens": 4}))
