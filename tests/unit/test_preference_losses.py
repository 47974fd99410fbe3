"""Losses on preferences, on numbers worked by hand, against their plain version, and however an update is divided."""

from __future__ import annotations

import math
from typing import Any

import preference_oracle as oracle
import pytest
import torch
from pydantic import TypeAdapter

from mmrl.algorithms.preferences import PREFERENCES, build_preference
from mmrl.algorithms.preferences.kto import baseline
from mmrl.batch import LossOutput, TokenStats
from mmrl.config.preference import PreferenceConfig

# Two pairs; ratios to the reference are 1 and -1, then 0 and 0.5. The first answer has a tool's turn in its middle,
# the second is padded.
WORKED: oracle.Groups = [
    oracle.pair([-1.0, None, -2.0], [-1.5, None, -2.5], [-3.0], [-2.0]),
    oracle.pair([-2.0, -1.0], [-2.0, -1.0], [-1.0, -1.0, -1.0], [-1.5, -1.0, -1.0]),
]
# With beta 0.5: rewards c = 0.5 and j = -0.5, so Delta = 1; then c = 0, j = 0.25, so Delta = -0.25.
# log sigma: (1) -0.3132617 (-1) -1.3132617 (0.25) -0.5759394 (-0.25) -0.8259394 (0.5) -0.4740770 (-0.5) -0.9740770
# orpo: log odds of mean logprobs -1.5, -3 and -1 are -1.2475, -2.9489 and -0.5413; exo: KL of (sigma, 1 - sigma) to
# (0.75, 0.25).
BY_HAND: dict[str, tuple[dict[str, Any], float, float]] = {
    "dpo": ({"beta": 0.5}, 0.3132617, 0.8259394),
    "cdpo": ({"beta": 0.5, "label_smoothing": 0.1}, 0.4132617, 0.8009394),
    "robust": ({"beta": 0.5, "label_smoothing": 0.1}, 0.1882617, 0.8571894),
    "ipo": ({"beta": 0.5}, 1.0, 2.25),
    "hinge": ({"beta": 0.5}, 0.0, 1.25),
    "apo_zero": ({"beta": 0.5}, 0.7550813, 1.0621765),
    "apo_down": ({"beta": 0.5}, 0.8914007, 1.0621765),
    "nca": ({"beta": 0.5}, 1.1981540, 1.4526901),
    "exo": ({"beta": 0.5, "label_smoothing": 0.25}, 0.0009413, 0.2199008),
    "simpo": ({"beta": 2.0, "gamma": 1.0}, 0.1269280, 2.1269280),
    "orpo": ({"odds_weight": 0.5}, 1.5 + 0.5 * 0.1675679, 1.5 + 0.5 * 1.1073282),
    "mpo": ({"beta": 0.5}, 0.8 * 0.3132617 + 0.2 * 0.9481540 + 1.5, 0.8 * 0.8259394 + 0.2 * 1.5190866 + 1.5),
}


def config_of(type_: str, settings: dict[str, Any]) -> Any:
    return TypeAdapter(PreferenceConfig).validate_python({"type": type_, **settings})


def run(config: Any, groups: oracle.Groups, *, z: float | None = None) -> tuple[LossOutput, torch.Tensor]:
    batch, stats = oracle.batch_of(groups, z=z), oracle.stats_of(groups)
    output = build_preference(config).objective(batch)(batch, stats)
    output.loss.backward()
    assert stats.logprobs.grad is not None
    return output, stats.logprobs.grad


@pytest.mark.parametrize("name", sorted(BY_HAND))
def test_the_loss_is_the_mean_of_those_worked_by_hand(name: str) -> None:
    settings, first, second = BY_HAND[name]
    output, gradient = run(config_of(name, settings), WORKED)
    assert output.loss.item() == pytest.approx((first + second) / 2, abs=1e-6)
    assert gradient[0, 1] == 0  # the tool's turn
    assert gradient[1, 1:].tolist() == [0, 0]  # padding
    total, count = output.sums["preference/loss"]
    assert (total / count, count) == (pytest.approx((first + second) / 2, abs=1e-6), 2)


def test_dpo_has_the_slope_worked_by_hand_at_every_sampled_token() -> None:
    """d loss / d logprob = -beta sigma(-Delta) / pairs for the chosen answer, and its negative for the other."""
    _, gradient = run(config_of("dpo", {"beta": 0.5}), WORKED)
    first, second = 0.5 * 0.2689414 / 2, 0.5 * 0.5621765 / 2
    expected = [[-first, 0, -first], [first, 0, 0], [-second, -second, 0], [second, second, second]]
    torch.testing.assert_close(gradient, torch.tensor(expected, dtype=torch.float64), atol=1e-7, rtol=0)


def test_metrics_are_rewards_margins_accuracies_and_logprobs() -> None:
    output, _ = run(config_of("dpo", {"beta": 0.5}), WORKED)
    means = {name: total / count for name, (total, count) in output.sums.items()}
    assert means["rewards/chosen"] == pytest.approx(0.25)
    assert means["rewards/rejected"] == pytest.approx(-0.125)
    assert means["rewards/margins"] == pytest.approx(0.375)
    assert means["rewards/accuracies"] == 0.5
    assert means["logps/chosen"] == pytest.approx(-3.0)
    assert means["logps/rejected"] == pytest.approx(-3.0)
    # Tokens of the first chosen answer have d = 0.5: exp(-0.5) + 0.5 - 1 each; those of the second d = 0.
    assert means["kl/chosen"] == pytest.approx((2 * (math.exp(-0.5) - 0.5)) / 2)


def test_ipo_takes_mean_ratios_where_it_is_told_to() -> None:
    output, _ = run(config_of("ipo", {"beta": 0.5, "length_average": True}), WORKED)
    # Mean ratios: 1/2 and -1, then 0 and 0.5/3.
    assert output.loss.item() == pytest.approx(((1.5 - 1) ** 2 + (-1 / 6 - 1) ** 2) / 2)


def test_kto_weighs_good_and_bad_answers_against_the_baseline() -> None:
    groups = [WORKED[0], [WORKED[1][1]]]
    config = config_of("kto", {"beta": 0.5, "desirable_weight": 2.0, "undesirable_weight": 0.5})
    output, gradient = run(config, groups, z=0.2)
    # Good: ratio 1; bad: ratios -1 and 0.5. sigma of 0.4, 0.6 and -0.15.
    losses = [2.0 * (1 - 0.5986877), 0.5 * (1 - 0.6456563), 0.5 * (1 - 0.4625702)]
    assert output.loss.item() == pytest.approx(sum(losses) / 3, abs=1e-6)
    slope = -2.0 * 0.5 * 0.5986877 * (1 - 0.5986877) / 3
    assert gradient[0].tolist() == pytest.approx([slope, 0.0, slope], abs=1e-7)
    assert output.sums["rewards/chosen"] == (pytest.approx(0.5), 1)
    assert output.sums["rewards/rejected"] == (pytest.approx(-0.5 + 0.25), 2)


def test_ktos_baseline_is_a_mean_that_is_never_below_zero() -> None:
    assert baseline(torch.tensor([1.0, -0.5])) == 0.25
    assert baseline(torch.tensor([1.0, -2.0])) == 0.0


def test_mpos_delta_is_the_mean_of_all_rewards_of_earlier_updates_and_survives() -> None:
    config = config_of("mpo", {"beta": 0.5})
    preference = build_preference(config)
    assert preference.observe({"rewards/chosen": 0.5, "rewards/rejected": -0.1}, num_answers=4) == {
        "preference/delta": 0.0
    }
    assert preference.observe({"rewards/chosen": 1.0, "rewards/rejected": 0.6}, num_answers=12) == {
        "preference/delta": pytest.approx(0.2)
    }
    delta = (0.2 * 4 + 0.8 * 12) / 16
    again = build_preference(config)
    again.load_state_dict(preference.state_dict())  # type: ignore[attr-defined]
    batch, stats = oracle.batch_of(WORKED), oracle.stats_of(WORKED)
    expected = oracle.update_loss(config, WORKED, delta=delta)
    assert again.objective(batch)(batch, stats).loss.item() == pytest.approx(expected)


SETTINGS: dict[str, list[dict[str, Any]]] = {
    "cdpo": [{"label_smoothing": 0.2}],
    "ipo": [{}, {"length_average": True}],
    "kto": [{}, {"desirable_weight": 1.5, "undesirable_weight": 0.7}],
    "mpo": [{}, {"preference_weight": 0.5, "quality_weight": 0.4, "generation_weight": 0.1}],
    "orpo": [{}, {"odds_weight": 1.0}],
    "robust": [{"label_smoothing": 0.3}],
    "simpo": [{}, {"beta": 2.5, "gamma": 0.3}],
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(PREFERENCES))
def test_loss_and_gradient_of_200_random_updates_are_those_of_the_plain_version(name: str) -> None:
    for seed in range(200):
        choices = SETTINGS.get(name, [{}])
        settings = dict(choices[seed % len(choices)])
        if name not in ("simpo", "orpo"):
            settings["beta"] = [0.05, 0.3, 1.0][seed % 3]
        config = config_of(name, settings)
        z = 0.1 * (seed % 4) if name == "kto" else None
        groups = oracle.random_judged(seed) if name == "kto" else oracle.random_pairs(seed)
        output, gradient = run(config, groups, z=z)
        assert output.loss.item() == pytest.approx(oracle.update_loss(config, groups, z=z or 0.0), rel=1e-9, abs=1e-12)
        expected = oracle.gradient(config, groups, z=z or 0.0)
        width = gradient.shape[1]
        plain = torch.tensor([[*row, *[0.0] * (width - len(row))] for row in expected], dtype=torch.float64)
        torch.testing.assert_close(gradient, plain, rtol=1e-6, atol=2e-8)


@pytest.mark.parametrize("name", sorted(PREFERENCES))
def test_loss_gradient_and_metrics_do_not_depend_on_micro_batches_and_padding(name: str) -> None:
    groups = oracle.random_judged(7) if name == "kto" else oracle.random_pairs(7) + oracle.random_pairs(8)
    config, z = config_of(name, {}), 0.1 if name == "kto" else None
    whole, gradient = run(config, groups, z=z)
    batch, logprobs = oracle.batch_of(groups, z=z), oracle.stats_of(groups).logprobs.detach()
    objective = build_preference(config).objective(batch)
    for size, padding in ((1, 0), (2, 3), (len(groups), 2)):
        loss, sums, regained = 0.0, {}, torch.zeros_like(gradient)
        for start in range(0, len(groups), size):
            rows = torch.nonzero((batch.prompt_of_row >= start) & (batch.prompt_of_row < start + size)).flatten()
            part = batch.select_rows(rows)
            width = part.response_ids.shape[1]
            wider = {
                field: torch.nn.functional.pad(getattr(part, field), (0, padding))
                for field in ("response_ids", "response_mask", "reference_logprobs")
            }
            own = torch.nn.functional.pad(logprobs[rows, :width], (0, padding)).requires_grad_()
            output = objective(part.with_(**wider), TokenStats(own))
            output.loss.backward()
            loss += output.loss.item()
            regained[rows, :width] = own.grad[:, :width]
            for key, (total, count) in output.sums.items():
                before = sums.get(key, (0.0, 0.0))
                sums[key] = (before[0] + total, before[1] + count)
        assert loss == pytest.approx(whole.loss.item(), rel=1e-9)
        torch.testing.assert_close(regained, gradient, rtol=1e-9, atol=1e-12)
        assert sums == {key: pytest.approx(value, rel=1e-9, abs=1e-12) for key, value in whole.sums.items()}


def test_a_likelihood_of_one_leaves_orpo_finite() -> None:
    groups = [oracle.pair([-1e-9], [-1.0], [-2.0], [-1.0])]
    batch, stats = oracle.batch_of(groups), oracle.stats_of(groups)
    low = TokenStats(stats.logprobs.detach().float().requires_grad_())
    output = build_preference(config_of("orpo", {})).objective(batch)(batch, low)
    output.loss.backward()
    assert low.logprobs.grad is not None
    assert output.loss.isfinite()
    assert low.logprobs.grad.isfinite().all()
