"""Losses on preferences against TRL's, for the same pairs on a tiny model: where both mean the same, to 1e-4."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from pydantic import TypeAdapter
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, AutoProcessor, AutoTokenizer
from trl import DPOConfig, DPOTrainer, KTOConfig, KTOTrainer
from trl.experimental.cpo import CPOTrainer
from trl.experimental.orpo import ORPOTrainer

from datasets import Dataset
from mmrl.algorithms.preferences import build_preference
from mmrl.algorithms.preferences.kto import baseline
from mmrl.algorithms.preferences.pairs import answers_of, pairs_of
from mmrl.batch import GroupBatch, PreparedPrompt, TokenStats, build_group_batch
from mmrl.config.preference import PreferenceConfig
from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.data.images import ImageStore
from mmrl.models.policy import PolicyModel, load_policy
from mmrl.types import Rollout

CLOSE = 1e-4
QUIET: dict[str, Any] = {
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "report_to": [],
    "max_length": None,
}


def config_of(type_: str, **settings: Any) -> Any:
    return TypeAdapter(PreferenceConfig).validate_python({"type": type_, **settings})


def moved(model: torch.nn.Module) -> dict[str, Tensor]:
    """The model's weights, changed so that it is another policy than it began as."""
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.03 * torch.randn(weight.shape, generator=draw)
    return {name: weight.detach().clone() for name, weight in model.state_dict().items()}


def policies(folder: Path, weights: dict[str, Tensor], store: ImageStore) -> tuple[PolicyModel, PolicyModel]:
    """Policy and reference, without bans: TRL gives every token a probability."""
    config = ModelConfig(path=str(folder), dtype="float32", device="cpu")
    policy, reference = (load_policy(config, ImageConfig(), store=store) for _ in range(2))
    policy.hf.load_state_dict(weights)
    for one in (policy, reference):
        one.banned_token_ids = torch.zeros(0, dtype=torch.int64)
    return policy, reference


def split_rows(ids: Tensor, attention: Tensor, completion: Tensor) -> list[tuple[list[int], list[int]]]:
    """Prompt and answer of each of TRL's rows."""
    found = []
    for row in range(len(ids)):
        real, answer = attention[row].bool(), completion[row].bool()
        found.append((ids[row][real & ~answer].tolist(), ids[row][answer].tolist()))
    return found


def batch_of(
    prompts: Sequence[PreparedPrompt], answers: Sequence[Sequence[list[int]]], good: list[float]
) -> GroupBatch:
    rows = [
        [Rollout("s", 0, tuple(ids), (1,) * len(ids), (0.0,) * len(ids), "stop", "", 0, 0) for ids in own]
        for own in answers
    ]
    return build_group_batch(prompts, rows).with_(preferred=torch.tensor(good), whole_groups=True)


@pytest.fixture(scope="module")
def pairs(tiny_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Any:
    """TRL's trainer on three image prompts, its batch, and the same batch and passes of mmrl."""
    folder = tiny_model("qwen2_5_vl")
    draw = np.random.default_rng(0)
    images = [Image.fromarray(draw.integers(0, 256, (side, 56, 3), dtype=np.uint8)) for side in (56, 84, 112)]
    texts = [("\\boxed{7}", "no"), ("\\boxed{3}", "I think it is a three"), ("\\boxed{0}", "a circle, so zero")]
    rows = [
        {
            "prompt": [{"role": "user", "content": f"Which digit is this? {index}"}],
            "chosen": [{"role": "assistant", "content": chosen}],
            "rejected": [{"role": "assistant", "content": rejected}],
            "images": [images[index]],
        }
        for index, (chosen, rejected) in enumerate(texts)
    ]
    out = tmp_path_factory.mktemp("trl")
    trainer = DPOTrainer(
        model=AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32),
        ref_model=AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32),
        args=DPOConfig(output_dir=str(out), **QUIET),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoProcessor.from_pretrained(folder),
    )
    inputs = trainer.data_collator([dict(row) for row in rows])
    weights = moved(trainer.model)
    store = ImageStore(tmp_path_factory.mktemp("images"))
    policy, reference = policies(folder, weights, store)
    parts = split_rows(inputs["input_ids"], inputs["attention_mask"], inputs["completion_mask"])
    count = len(rows)
    prepared = [
        PreparedPrompt(tuple(parts[index][0]), (policy.prompts.images.prepare(store.add(images[index])),))
        for index in range(count)
    ]
    answers = [[parts[index][1], parts[index + count][1]] for index in range(count)]
    batch = batch_of(prepared, answers, [1.0, 0.0] * count)
    with torch.no_grad():
        batch = batch.with_(reference_logprobs=reference(batch).logprobs)
        stats = policy(batch)
    return SimpleNamespace(trainer=trainer, inputs=inputs, batch=batch, stats=stats)


@pytest.mark.parametrize(
    ("type_", "settings", "theirs", "smoothing"),
    [
        ("dpo", {"beta": 0.3}, {"sigmoid": 1.0}, 0.0),
        ("hinge", {"beta": 0.3}, {"hinge": 1.0}, 0.0),
        ("ipo", {"beta": 0.3, "length_average": True}, {"ipo": 1.0}, 0.0),
        ("exo", {"beta": 0.3, "label_smoothing": 0.01}, {"exo_pair": 1.0}, 0.01),
        ("nca", {"beta": 0.3}, {"nca_pair": 1.0}, 0.0),
        ("robust", {"beta": 0.3, "label_smoothing": 0.2}, {"robust": 1.0}, 0.2),
        ("apo_zero", {"beta": 0.3}, {"apo_zero": 1.0}, 0.0),
        ("apo_down", {"beta": 0.3}, {"apo_down": 1.0}, 0.0),
        # Chosen answers are of one length, where the mean over tokens is the mean over answers; delta begins at 0.
        ("mpo", {"beta": 0.3}, {"sigmoid": 0.8, "bco_pair": 0.2, "sft": 1.0}, 0.0),
    ],
)
def test_losses_on_pairs_are_those_of_trls_trainer(
    pairs: Any, type_: str, settings: dict[str, Any], theirs: dict[str, float], smoothing: float
) -> None:
    trainer = pairs.trainer
    trainer.loss_types, trainer.loss_weights = list(theirs), list(theirs.values())
    trainer.beta, trainer.label_smoothing = settings["beta"], smoothing
    with torch.no_grad():
        expected = float(trainer.compute_loss(trainer.model, dict(pairs.inputs)))
    objective = build_preference(config_of(type_, **settings)).objective(pairs.batch)
    output = objective(pairs.batch, pairs.stats)
    assert output.loss.item() == pytest.approx(expected, abs=CLOSE)
    assert abs(output.sums["rewards/margins"][0]) > 0.01


def test_simpo_and_orpo_are_those_of_trls_functions(pairs: Any) -> None:
    answers = pairs_of(pairs.batch, answers_of(pairs.batch, pairs.stats))
    chosen, rejected = answers.chosen.mean_logprobs, answers.rejected.mean_logprobs
    device = SimpleNamespace(device=torch.device("cpu"))
    cpo = SimpleNamespace(
        alpha=0.0, loss_type="simpo", simpo_gamma=1.0, beta=2.0, label_smoothing=0.0, accelerator=device
    )
    expected = CPOTrainer.cpo_loss(cpo, chosen, rejected)[0].mean()
    simpo = build_preference(config_of("simpo", beta=2.0, gamma=1.0)).objective(pairs.batch)(pairs.batch, pairs.stats)
    assert simpo.loss.item() == pytest.approx(float(expected), abs=CLOSE)
    theirs = ORPOTrainer.odds_ratio_loss(SimpleNamespace(beta=0.5, accelerator=device), chosen, rejected)[0]
    expected = (-chosen - theirs).mean()
    orpo = build_preference(config_of("orpo", odds_weight=0.5)).objective(pairs.batch)(pairs.batch, pairs.stats)
    assert orpo.loss.item() == pytest.approx(float(expected), abs=CLOSE)


def test_kto_is_that_of_trls_trainer_with_its_mismatched_answers(
    tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    folder = tiny_model("qwen2")
    texts = [("12 + 7?", "It is 19.", True), ("3 + 4?", "8", False), ("9 - 8?", "1, I think", True), ("5?", "6", False)]
    rows = [
        {
            "prompt": [{"role": "user", "content": prompt}],
            "completion": [{"role": "assistant", "content": answer}],
            "label": label,
        }
        for prompt, answer, label in texts
    ]
    trainer = KTOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        ref_model=AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
        args=KTOConfig(
            output_dir=str(tmp_path), per_device_train_batch_size=4, beta=0.3, desirable_weight=1.3, **QUIET
        ),
        train_dataset=Dataset.from_list(rows),
        processing_class=AutoTokenizer.from_pretrained(folder),
    )
    inputs = trainer.data_collator([trainer.train_dataset[index] for index in range(len(rows))])
    policy, reference = policies(folder, moved(trainer.model), ImageStore(tmp_path / "images"))
    with torch.no_grad():
        expected = float(trainer.compute_loss(trainer.model, inputs))

    def made(prefix: str) -> tuple[GroupBatch, TokenStats]:
        parts = split_rows(*(inputs[f"{prefix}{name}"] for name in ("input_ids", "attention_mask", "completion_mask")))
        prompts = [PreparedPrompt(tuple(prompt), ()) for prompt, _ in parts]
        batch = batch_of(prompts, [[answer] for _, answer in parts], [float(bool(x)) for x in inputs["label"]])
        with torch.no_grad():
            return batch.with_(reference_logprobs=reference(batch).logprobs), policy(batch)

    other, stats = made("KL_")
    z = baseline((stats.logprobs - other.reference_logprobs).sum(-1))
    batch, stats = made("")
    batch = batch.with_(baselines=torch.full((len(rows),), z))
    preference = build_preference(config_of("kto", beta=0.3, desirable_weight=1.3))
    assert preference.objective(batch)(batch, stats).loss.item() == pytest.approx(expected, abs=CLOSE)
    theirs = [kl for mode in trainer._metrics.values() for kl in mode["kl"]]
    assert theirs == [pytest.approx(z, abs=CLOSE)]
