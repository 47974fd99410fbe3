"""C05: an embedding of other rows than the vocabulary is refused before it is loaded, with both numbers."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.errors import ModelError
from mmrl.models.loading import load_policy, load_prompts


@pytest.fixture
def folder(tiny_model: Callable[..., Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_model("qwen2"), tmp_path / "model"))


def set_vocabulary(folder: Path, rows: int) -> int:
    """Returns the rows of before."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    before = config["vocab_size"]
    path.write_text(json.dumps({**config, "vocab_size": rows}))
    return int(before)


def test_c05_an_embedding_of_more_rows_than_config_json_says_is_refused(folder: Path, image_store) -> None:
    before = set_vocabulary(folder, 515)
    with pytest.raises(ModelError, match=f"has {before} rows in the weights and vocab_size 515 in config.json"):
        load_policy(ModelConfig(path=str(folder), device="cpu"), ImageConfig(), store=image_store)


def test_c05_a_tokenizer_with_more_tokens_than_rows_is_refused(folder: Path, image_store) -> None:
    for weights in folder.glob("*.safetensors"):
        weights.rename(weights.with_suffix(".bin"))
    before = set_vocabulary(folder, 300)
    with pytest.raises(ModelError, match=f"its tokenizer has {before} tokens and its embedding 300 rows"):
        load_prompts(str(folder), ImageConfig(), store=image_store)
