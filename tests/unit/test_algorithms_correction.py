"""The correction between sampler and trainer and the filter by entropy, on numbers worked by hand."""

from __future__ import annotations

import math
from typing import Any

import algorithms_oracle as oracle
import pytest
import torch

from mmrl.algorithms import build_algorithm
from mmrl.algorithms.correction import correct, highest_entropy
from mmrl.batch import GroupBatch
from mmrl.config.algorithm import GrpoConfig
from mmrl.config.correction import CorrectionConfig

LOG2 = math.log(2)
# Ratios of trainer to sampler: 4, (a tool's answer), 1/4 | 1/8, 2 and padding. Products 1 and 1/4.
MASK = torch.tensor([[1.0, 0.0, 1.0], [1.0, 1.0, 0.0]])
OLD = torch.tensor([[2 * LOG2, 9.0, -2 * LOG2], [-3 * LOG2, LOG2, 9.0]], dtype=torch.float64)
SAMPLER = torch.zeros(2, 3, dtype=torch.float64)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"weight": "tis"}, [[2, 0, 1 / 4], [1 / 8, 2, 0]]),
        ({"weight": "tis", "cap": 3.0}, [[3, 0, 1 / 4], [1 / 8, 2, 0]]),
        ({"weight": "tis", "level": "sequence", "cap": 0.5}, [[1 / 2, 0, 1 / 2], [1 / 4, 1 / 4, 0]]),
        ({"weight": "icepop"}, [[4, 0, 0], [0, 2, 0]]),
        ({"weight": "icepop", "low": 0.1, "high": 2.0}, [[0, 0, 1 / 4], [1 / 8, 2, 0]]),
        ({"weight": "icepop", "level": "sequence"}, [[1, 0, 1], [0, 0, 0]]),
        ({"sequence_mask": 3.0}, [[1, 0, 1], [0, 0, 0]]),
        ({"sequence_mask": 4.1}, [[1, 0, 1], [1, 1, 0]]),
        ({"weight": "tis", "sequence_mask": 3.0}, [[2, 0, 1 / 4], [0, 0, 0]]),
    ],
)
def test_weights_of_each_form(settings: dict[str, Any], expected: list[list[float]]) -> None:
    correction = correct(OLD, SAMPLER, MASK, CorrectionConfig(**settings))
    torch.testing.assert_close(correction.weights, torch.tensor(expected, dtype=torch.float64))


def test_a_response_above_the_bound_is_left_out_as_one_below_its_inverse_is() -> None:
    config = CorrectionConfig(sequence_mask=3.0)
    for old in (OLD, -OLD):
        assert correct(old, SAMPLER, MASK, config).kept.tolist() == [True, False]


def test_metrics_are_of_the_tokens_that_are_kept() -> None:
    # Weights 2, 1/4, 1/8, 2: sum 4.375, squares 4 + 1/16 + 1/64 + 4.
    metrics = correct(OLD, SAMPLER, MASK, CorrectionConfig(weight="tis")).metrics
    assert metrics["correction/effective_sample_size"] == pytest.approx(4.375**2 / (4 * 8.078125))
    assert metrics["correction/weight_mean"] == pytest.approx(4.375 / 4)
    assert metrics["correction/bounded_share"] == 0.25
    assert metrics["correction/dropped_responses"] == 0
    masked = correct(OLD, SAMPLER, MASK, CorrectionConfig(weight="tis", sequence_mask=3.0)).metrics
    assert masked["correction/effective_sample_size"] == pytest.approx(2.25**2 / (2 * 4.0625))
    assert masked["correction/dropped_responses"] == 1


def test_extreme_ratios_stay_finite_and_empty_responses_are_kept() -> None:
    mask = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    old = torch.tensor([[900.0, -900.0], [0.0, 0.0]])
    for level in ("token", "sequence"):
        config = CorrectionConfig.model_validate({"weight": "tis", "level": level, "cap": 1e9, "sequence_mask": 2.0})
        correction = correct(old, torch.zeros(2, 2), mask, config)
        assert correction.weights.isfinite().all()
        assert correction.kept.tolist() == [True, True]
    nothing = correct(old, torch.zeros(2, 2), torch.zeros(2, 2), CorrectionConfig(weight="icepop"))
    assert nothing.metrics["correction/effective_sample_size"] == 0


def prepared(**settings: Any) -> tuple[GroupBatch, dict[str, float]]:
    """Two groups whose second response the sampler found twice as likely at each of its two tokens."""
    groups = [
        [oracle.response(1.0, [1.0, None, 1.0]), oracle.response(0.0, [1.0, 1.0])],
        [oracle.response(1.0, [1.0]), oracle.response(0.0, [1.0, 1.0])],
    ]
    algorithm = build_algorithm(GrpoConfig.model_validate({"advantage": "dr_grpo", **settings}))
    scored = oracle.scored_groups(groups)
    batch = oracle.group_batch(scored, groups)
    sampler = batch.old_logprobs
    assert sampler is not None
    sampler = sampler.clone()
    sampler[1, :2] += LOG2
    entropy = torch.tensor([[0.1, 9.0, 0.2], [0.3, 0.4, 0.0], [0.5, 0.0, 0.0], [0.6, 0.7, 0.0]])
    batch = batch.with_(sampler_logprobs=sampler, old_entropy=entropy)
    return algorithm.prepare_update(algorithm.complete(scored, batch))


def test_advantages_are_weighed_and_counts_stay() -> None:
    batch, _ = prepared(correction={"weight": "tis"})
    assert batch.advantages is not None
    assert batch.advantages.tolist() == [[0.5, 0, 0.5], [-0.25, -0.25, 0], [0.5, 0, 0], [-0.5, -0.5, 0]]
    assert (batch.num_sampled_tokens, batch.num_sequences) == (7, 4)


def test_a_response_that_is_left_out_counts_in_no_mean() -> None:
    batch, metrics = prepared(correction={"sequence_mask": 3.0})
    assert batch.advantages is not None
    assert batch.advantages.tolist() == [[0.5, 0, 0.5], [0, 0, 0], [0.5, 0, 0], [-0.5, -0.5, 0]]
    assert (batch.num_sampled_tokens, batch.num_sequences) == (5, 3)
    assert metrics == {"correction/dropped_responses": 1.0}


def test_only_the_tokens_of_the_highest_entropy_learn_and_all_are_counted() -> None:
    batch, metrics = prepared(entropy_top_share=0.4)
    assert batch.advantages is not None
    # 0.4 of 7 tokens are 3: the tool's answer with its 9.0 is none of them.
    assert batch.advantages.tolist() == [[0, 0, 0], [0, 0, 0], [0.5, 0, 0], [-0.5, -0.5, 0]]
    assert batch.num_sampled_tokens == 7
    assert metrics == {"update/learning_share": pytest.approx(3 / 7)}


def test_equal_entropies_are_kept_together_and_nothing_is_none() -> None:
    entropy = torch.tensor([[0.5, 0.5, 0.5, 0.1]])
    assert highest_entropy(entropy, torch.ones(1, 4), 0.25).tolist() == [[True, True, True, False]]
    assert highest_entropy(entropy, torch.zeros(1, 4), 0.25).tolist() == [[False] * 4]


def test_the_old_pass_runs_where_a_part_needs_it() -> None:
    def needs(**settings: Any) -> tuple[bool, bool]:
        algorithm = build_algorithm(GrpoConfig.model_validate(settings))
        return algorithm.needs_old_logprobs(mini_batches=1, epochs=1), algorithm.needs_old_entropy

    assert needs() == (False, False)
    assert needs(correction={"weight": "tis"}) == (True, False)
    assert needs(correction={"sequence_mask": 2.0}) == (True, False)
    assert needs(entropy_top_share=0.2) == (True, True)


def test_a_step_of_which_every_response_is_left_out_has_no_token() -> None:
    """T13's kind: nothing is left to learn from, and nothing is divided by zero."""
    groups = [[oracle.response(score, [1.0, None, 1.5]) for score in (0.0, 1.0)] for _ in range(2)]
    for group in groups:
        for row in group:
            row.sampler = [old + LOG2 * bit for old, bit in zip(row.old, row.mask, strict=True)]
    scored = oracle.scored_groups(groups)
    for settings in ({"sequence_mask": 3.0}, {"weight": "icepop", "sequence_mask": 3.0}):
        algorithm = build_algorithm(GrpoConfig.model_validate({"kl": {"coef": 0.1}, "correction": settings}))
        completed = algorithm.complete(scored, oracle.group_batch(scored, groups))
        batch, metrics = algorithm.prepare_update(completed)
        assert metrics["correction/dropped_responses"] == 4
        assert (batch.num_sampled_tokens, batch.num_sequences) == (0, 0)
        assert completed.num_sampled_tokens == 8
        stats = oracle.token_stats(groups, 3)
        output = algorithm.objective(batch, response_limit=4, first_update=False)(batch, stats)
        output.loss.backward()
        assert output.loss.item() == 0.0
        assert stats.logprobs.grad is not None
        assert not stats.logprobs.grad.any()
        assert output.maxima == {}
