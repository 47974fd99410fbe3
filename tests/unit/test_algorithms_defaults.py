"""The defaults of every algorithm, beside the paper that they are from."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import TypeAdapter

from mmrl.algorithms import ALGORITHMS
from mmrl.config.algorithm import AlgorithmConfig, KlConfig, PolicyGradientConfig
from mmrl.config.correction import CorrectionConfig
from mmrl.config.critic import CriticConfig

CLIP = {"clip_low": 0.2, "clip_high": 0.2, "dual_clip": None}  # arXiv 1707.06347, table 3: epsilon 0.2
CLIP_HIGHER = {**CLIP, "clip_high": 0.28}  # arXiv 2503.14476, section 4.1
IN_REWARD = {"estimator": "k1", "where": "reward"}
WHOLE = "sequence_mean_token_sum"
PAPERS: dict[str, dict[str, Any]] = {
    # 2402.03300: the mean over responses of means over tokens. Its KL of 0.04 is a departure, see docs/decisions.md.
    "grpo": {**CLIP, "loss_aggregation": "sequence_mean_token_mean"},
    # 2503.20783: neither std nor length divides.
    "dr_grpo": {**CLIP, "loss_aggregation": "constant"},
    # 2402.14740: a response is one action.
    "rloo": {**CLIP, "loss_aggregation": WHOLE},
    # 2505.23585: the gradient of a whole response.
    "opo": {**CLIP, "loss_aggregation": WHOLE},
    # 2503.19595: the gradient of a whole response.
    "pass_at_k": {**CLIP, "loss_aggregation": WHOLE},
    # 2501.03262: token-level, the mean over the batch.
    "reinforce_plus_plus_baseline": {**CLIP, "loss_aggregation": "token_mean"},
    # 2501.03262: k1 of each token in its reward, no discount.
    "reinforce_plus_plus": {
        **CLIP,
        "group_size": 1,
        "gamma": 1.0,
        "loss_aggregation": "token_mean",
        "kl": {"coef": 0.01, **IN_REWARD},
    },
    # 2507.18071: 3e-4 and 4e-4, of a ratio that is a mean over tokens.
    "gspo": {
        "clip_low": 3e-4,
        "clip_high": 4e-4,
        "dual_clip": None,
        "loss_aggregation": "sequence_mean_token_mean",
    },
    # 2506.13585: the mean over all tokens; the bound is of the ratio itself.
    "cispo": {"cap": 5.0, "loss_aggregation": "token_mean"},
    # 2511.20347: tau 1.0 for positive and 1.05 for negative tokens.
    "sapo": {
        "temperature_positive": 1.0,
        "temperature_negative": 1.05,
        "loss_aggregation": "sequence_mean_token_mean",
    },
    # 2504.02546: the mean over all tokens.
    "gpg": {"loss_aggregation": "token_mean"},
    # 2503.14476, section 4.1: 16 responses; a buffer of 4096 in 20480 tokens, and at most 1 for it.
    "dapo": {
        **CLIP_HIGHER,
        "group_size": 16,
        "loss_aggregation": "token_mean",
        "drop_groups_without_spread": True,
        "sampling_rounds": 10,
        "overlong_buffer": 4096 / 20480,
        "overlong_penalty": 1.0,
    },
    # 2601.05242: GRPO's loss.
    "gdpo": {**CLIP, "loss_aggregation": "sequence_mean_token_mean"},
    # 2310.10505: one response beside the greedy one.
    "remax": {**CLIP, "group_size": 1, "loss_aggregation": WHOLE},
    # 1707.06347, table 3: lambda 0.95; 1912.09729: c = 3.
    "ppo": {
        **CLIP,
        "dual_clip": 3.0,
        "group_size": 1,
        "gamma": 1.0,
        "lam": 0.95,
        "whiten": True,
        "loss_aggregation": "token_mean",
        "kl": {"coef": 0.0, **IN_REWARD},
    },
    # 2504.05118: 16 responses, alpha 0.05, lambda 1 of the critic, mu 0.1, clip-higher.
    "vapo": {
        **CLIP_HIGHER,
        "group_size": 16,
        "gamma": 1.0,
        "critic_lam": 1.0,
        "length_alpha": 0.05,
        "policy_lam": 0.95,
        "whiten": True,
        "imitation_coef": 0.1,
        "loss_aggregation": "token_mean",
        "kl": {"coef": 0.0, **IN_REWARD},
    },
    # 2405.00675: eta 1000, five responses.
    "sppo": {"group_size": 5, "eta": 1000.0, "comparison": "sign", "loss_aggregation": WHOLE},
    # 2402.04792: beta 0.1, pairs.
    "online_dpo": {
        "group_size": 2,
        "beta": 0.1,
        "loss": "dpo",
        "loss_aggregation": WHOLE,
        "drop_groups_without_spread": True,
    },
}
COMMON: dict[str, Any] = {
    "group_size": 8,
    "kl": {"coef": 0.0, "estimator": "k3", "where": "loss"},
    "entropy_coef": 0.0,
    "entropy_target": None,
    "entropy_top_share": None,
    "drop_groups_without_spread": False,
    "sampling_rounds": 1,
    "mask_truncated": False,
    "outcome_gate": None,
    "policy_loss": None,
}


@pytest.mark.parametrize("name", PAPERS)
def test_the_defaults_are_those_of_the_paper(name: str) -> None:
    config: Any = TypeAdapter(AlgorithmConfig).validate_python({"type": name})
    expected = {**COMMON, **PAPERS[name]}
    kl = expected.pop("kl")
    assert {field: getattr(config, field) for field in expected} == expected
    assert {field: getattr(config.kl, field) for field in kl} == kl
    of_its_own = type(config).model_fields.keys() - PolicyGradientConfig.model_fields.keys()
    assert of_its_own <= expected.keys(), "a default that nothing pins"


def test_no_paper_is_left_out() -> None:
    assert {"ppo", "vapo", "grpo", "dapo", "gspo", "cispo", "sapo"} < PAPERS.keys() <= ALGORITHMS.keys()


def test_defaults_of_the_parts() -> None:
    """Steered KL: 1909.08593; critic: PPO's value clip as OpenAI's baselines have it, of 0.5; TIS with C = 2; IcePop's
    bounds 0.5 and 5."""
    kl, critic, correction = KlConfig(), CriticConfig(), CorrectionConfig()
    assert (kl.coef, kl.target, kl.horizon) == (0.0, None, 10_000)
    assert (critic.value_clip, critic.warmup_steps, critic.optim.lr) == (0.5, None, 1e-5)
    assert (correction.weight, correction.cap, correction.sequence_mask) == (None, 2.0, None)
    assert (correction.level, correction.low, correction.high) == ("token", 0.5, 5.0)
    warmups = {name: _config_class(name).critic_warmup_steps for name in PAPERS}
    assert {name: steps for name, steps in warmups.items() if steps} == {"vapo": 50}


def _config_class(name: str) -> type[PolicyGradientConfig]:
    return type(TypeAdapter(AlgorithmConfig).validate_python({"type": name}))
