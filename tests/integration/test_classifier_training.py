"""Text classifiers of transformers, trained as reward models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from learning import run
from marked_digits import answer_turn, marks_config, register_marks
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForSequenceClassification,
)

from mmrl.config import RunConfig
from mmrl.config.reward import ModelRewardConfig
from mmrl.config.run import ModelConfig
from mmrl.data.digits import build_digits
from mmrl.data.images import ImageStore
from mmrl.data.normalise import make_sample
from mmrl.data.registry import register
from mmrl.errors import ConfigError, DataError
from mmrl.models.classifier import load_classifier
from mmrl.models.scorers import load_scorer
from mmrl.models.tiny_tokenizer import train_tokenizer
from mmrl.runs.reader import RunReader
from mmrl.trainer.answers import AnswerBatches
from mmrl.trainer.preflight import preflight
from mmrl.types import Message, TextPart

RANKS = {"executor": "ray", "pools": {"main": {"workers": 2}}}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    return tmp_path


def sums_config(folder: Path, data: str, *, steps: int = 12, **more: Any) -> RunConfig:
    settings = {
        "reward_model": {"batch_size": 6},
        "optim": {"lr": 3e-3},
        "eval": {"every": 0, "at_start": False},
        "checkpoint": {"every": 1, "keep": 20},
    }
    return marks_config(folder, "reward_model", steps=steps, lr=3e-3, data=data, **{**settings, **more})


def last_values(run_dir: Path) -> dict[str, float]:
    return RunReader(run_dir).metrics()[-1].values


@pytest.mark.parametrize("kind", ["causal", "encoder"])
def test_a_text_classifier_becomes_a_reward_model(home: Path, kind: str) -> None:
    """It learns to prefer answers that name a sum, is cut and goes on, and scores as it was trained."""
    folder = classifier_of(kind, home / "classifier")
    rows = []
    for number in range(40):
        turns = (Message("user", (TextPart(f"What is {number} + 1?"),)),)
        marks = {"chosen": answer_turn(f"it is {number + 1}"), "rejected": answer_turn("very bright")}
        rows.append(make_sample(turns, None, marks))
    register("sums", {"train": rows[:30], "validation": rows[30:]}, source="made")
    config = sums_config(folder, "sums")
    assert preflight(config).trainable_parameters > 0
    whole = run(config, home / "whole")
    run(sums_config(folder, "sums", steps=5), home / "cut")
    cut = run(config, home / "cut")
    assert last_values(whole.run_dir)["eval/accuracy"] >= 0.9
    for name in ("reward_model/loss", "eval/margin"):
        assert last_values(cut.run_dir)[name] == pytest.approx(last_values(whole.run_dir)[name], rel=1e-4)
    scorer = load_scorer(ModelRewardConfig(path=str(whole.checkpoint), device="cpu"), ImageStore())
    trained = load_classifier(ModelConfig(path=str(whole.checkpoint), dtype="float32", device="cpu"))
    with torch.no_grad():
        expected = trained(AnswerBatches(trained.prompts).pairs(rows[:4])).tolist()
    answers = [row.meta[each][0]["content"][0]["text"] for row in rows[:4] for each in ("chosen", "rejected")]
    assert scorer.score([row for row in rows[:4] for _ in range(2)], answers) == pytest.approx(expected, abs=1e-5)


def test_what_a_text_classifier_cannot_do_is_refused(home: Path) -> None:
    folder = classifier_of("causal", home / "classifier")
    build_digits()
    register_marks()
    with pytest.raises(DataError, match="is a text classifier; begin from"):
        run(sums_config(folder, "digits-pairs"), home / "image")
    with pytest.raises(ConfigError, match="which is trained in one process"):
        run(sums_config(folder, "digits-pairs", placement=RANKS), home / "ranks")
    config = sums_config(folder, "digits-pairs")
    frozen = config.model_copy(update={"model": config.model.model_copy(update={"freeze": ("language",)})})
    with pytest.raises(ConfigError, match="whose parts are not known"):
        run(frozen, home / "frozen")


def classifier_of(kind: str, folder: Path) -> Path:
    """A tiny classifier with one output: a Qwen2 with its chat template, or a BERT that reads pairs of words."""
    torch.manual_seed(0)
    if kind == "causal":
        tokenizer = train_tokenizer(["What is 12 + 1?", "it is 13", "very bright"])
        tokenizer.save_pretrained(folder)
        sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
        config = Qwen2Config(vocab_size=len(tokenizer), num_key_value_heads=2, num_labels=1, pad_token_id=0, **sizes)
        Qwen2ForSequenceClassification(config).save_pretrained(folder)
        return folder
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "What", "is", "+", "?", "it", "very", "bright", *map(str, range(50))]
    vocabulary = {word: index for index, word in enumerate(words)}
    text = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    text.pre_tokenizer = pre_tokenizers.Whitespace()
    text.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    special = {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]"}
    PreTrainedTokenizerFast(
        tokenizer_object=text, model_input_names=["input_ids", "token_type_ids", "attention_mask"], **special
    ).save_pretrained(folder)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        num_labels=1,
    )
    BertForSequenceClassification(config).save_pretrained(folder)
    return folder
