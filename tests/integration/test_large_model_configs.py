"""The ready configs for large models, checked without weights and tokenizer: sizes, sharding and placement."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mmrl.cli.app import app
from mmrl.errors import ConfigError

ROOT = Path(__file__).parents[2]
GIB = 2**30
SIZES = {"3b": ("1gpu", 3_754_622_976, 1), "7b": ("8gpu", 8_292_166_656, 8), "32b": ("16gpu", 33_452_718_336, 16)}
"""GPUs, weights as the model cards count them, and ranks."""


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set large enough for a batch, with an image."""
    from PIL import Image

    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    Image.new("RGB", (56, 56), "white").save(tmp_path / "triangle.png")
    lines = [{"problem": f"What is {number} + 1?", "answer": str(number + 1)} for number in range(150)]
    lines[0] |= {"problem": "<image>How many sides?", "answer": "3", "images": ["triangle.png"]}
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


@pytest.fixture
def dry_run(rows: Path) -> Callable[..., Any]:
    def run(size: str, *overrides: str, as_json: bool = True) -> Any:
        config = ROOT / "configs" / f"qwen2.5-vl-{size}-{SIZES[size][0]}.yaml"
        model = ROOT / "tests" / "model_configs" / f"qwen2_5_vl_{size}"
        words = [f"model.path={model}", f"data.train={rows}", "data.eval=null", *overrides]
        result = CliRunner().invoke(app, ["run", str(config), *words, "--dry-run", *(["--json"] if as_json else [])])
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)["preflight"] if as_json else result.stdout

    return run


@pytest.mark.parametrize("size", SIZES)
def test_a_dry_run_of_a_config_alone_tells_what_a_gpu_will_hold(dry_run: Callable[..., Any], size: str) -> None:
    report = dry_run(size)
    _, weights, ranks = SIZES[size]
    assert report["parameters"] == weights
    estimates = {each["name"]: each for each in report["estimates"]}
    assert f"divided among {ranks} ranks" in estimates["sharding"]["reason"]
    assert "token counts are skipped" in report["skipped"]
    assert report["placement"]["actor"].startswith(f"pool main ({ranks} workers of 1 GPU)")
    memory = estimates["memory"]["value"] / GIB
    assert 10 < memory < 80, "a GPU of 80 GB has room for it"


def test_weights_gradients_and_optimiser_of_7b_are_divided_among_eight_ranks(dry_run: Callable[..., Any]) -> None:
    """8,292,166,656 weights, all trained: 4, 4 and 8 bytes each, an eighth on each rank."""
    estimates = {each["name"]: each["value"] for each in dry_run("7b")["estimates"]}
    assert estimates["weights"] == 4 * 8_292_166_656 / 8
    assert estimates["gradients"] == estimates["weights"]
    assert estimates["optimiser"] == 2 * estimates["weights"]
    assert estimates["sharding"] == 32 + 28 + 1, "vision blocks, layers, and the rest as one"


def test_a_frozen_tower_is_whole_on_every_rank_and_offloaded_shards_lie_in_cpu_memory(
    dry_run: Callable[..., Any],
) -> None:
    text = dry_run("3b", as_json=False)
    assert "frozen weights of the vision part are whole on every rank" in text
    assert "CPU memory:" in text
    assert "prompts: token counts are skipped" in text


def test_hybrid_sharding_holds_a_copy_on_each_node(dry_run: Callable[..., Any]) -> None:
    estimates = {each["name"]: each for each in dry_run("32b", "actor.fsdp.shard_size=8")["estimates"]}
    assert "divided among 8 ranks" in estimates["sharding"]["reason"]
    assert "2 copies of the weights" in estimates["sharding"]["reason"]


def test_ranks_that_cannot_be_divided_into_shards_are_refused(rows: Path) -> None:
    model = ROOT / "tests" / "model_configs" / "qwen2_5_vl_3b"
    words = [f"model.path={model}", f"data.train={rows}", "data.eval=null", "actor.fsdp.shard_size=3"]
    config = ROOT / "configs" / "qwen2.5-vl-7b-8gpu.yaml"
    result = CliRunner().invoke(app, ["run", str(config), *words, "--dry-run"])
    assert isinstance(result.exception, ConfigError)
    assert "8 ranks cannot be divided into groups of 3; take one of 1, 2, 4, 8" in str(result.exception)
