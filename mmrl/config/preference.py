"""Config of the losses on preferences: one class each, told apart by `type`. The defaults are those of the papers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from mmrl.config.offline import OfflineFields


class PreferenceBase(OfflineFields):
    """What every loss on preferences has."""

    needs_reference: ClassVar[bool] = True
    """Whether answers are compared with what the model of the run's begin made of them."""


class BetaConfig(PreferenceBase):
    beta: float = Field(0.1, gt=0)
    """How strongly the policy is held to the reference: a reward is beta times the log ratio to it."""


class DpoConfig(BetaConfig):
    """Direct preference optimisation (arXiv 2305.18290)."""

    type: Literal["dpo"] = "dpo"
    """Which loss this is."""


class CdpoConfig(BetaConfig):
    """DPO on labels of which a share is wrong, by smoothing (Mitchell, 'A note on DPO with noisy preferences')."""

    type: Literal["cdpo"] = "cdpo"
    """Which loss this is."""
    label_smoothing: float = Field(0.1, ge=0, lt=0.5)
    """Share of the pairs that are taken to be the wrong way round."""


class RobustConfig(BetaConfig):
    """Provably robust DPO (arXiv 2403.00409): in expectation over wrong labels the loss of the right ones."""

    type: Literal["robust"] = "robust"
    """Which loss this is."""
    label_smoothing: float = Field(0.1, ge=0, lt=0.5)
    """Share of the pairs that are the wrong way round."""


class IpoConfig(BetaConfig):
    """Identity preference optimisation (arXiv 2310.12036): a bounded target for the difference of log ratios."""

    type: Literal["ipo"] = "ipo"
    """Which loss this is."""
    length_average: bool = False
    """Take the mean log ratio over the tokens of an answer in place of their sum; a common departure."""


class HingeConfig(BetaConfig):
    """The hinge loss of RSO and SLiC (arXiv 2309.06657)."""

    type: Literal["hinge"] = "hinge"
    """Which loss this is."""


class ApoZeroConfig(BetaConfig):
    """Anchored preference optimisation (arXiv 2408.06266): chosen up, rejected down."""

    type: Literal["apo_zero"] = "apo_zero"
    """Which loss this is."""


class ApoDownConfig(BetaConfig):
    """Anchored preference optimisation (arXiv 2408.06266) for a policy that is better than the chosen answers: both
    down, rejected further."""

    type: Literal["apo_down"] = "apo_down"
    """Which loss this is."""


class NcaConfig(BetaConfig):
    """Noise contrastive alignment (arXiv 2402.05369): absolute likelihoods, not only their difference."""

    type: Literal["nca"] = "nca"
    """Which loss this is."""
    beta: float = Field(0.01, gt=0)
    """How strongly the policy is held to the reference: a reward is beta times the log ratio to it."""


class ExoConfig(BetaConfig):
    """Efficient exact optimisation (arXiv 2402.00856): the reverse KL to a smoothed preference."""

    type: Literal["exo"] = "exo"
    """Which loss this is."""
    label_smoothing: float = Field(1e-3, gt=0, lt=0.5)
    """Probability that the rejected answer is preferred; more than 0, since its logarithm is taken."""


class SimpoConfig(PreferenceBase):
    """Simple preference optimisation (arXiv 2405.14734): mean log-probabilities, without a reference."""

    needs_reference: ClassVar[bool] = False
    type: Literal["simpo"] = "simpo"
    """Which loss this is."""
    beta: float = Field(2.0, gt=0)
    """Scale of the mean log-probability of an answer's tokens, which is its reward."""
    gamma: float = Field(1.0, ge=0)
    """The margin by which the chosen answer's reward is to be larger."""


class OrpoConfig(PreferenceBase):
    """Odds ratio preference optimisation (arXiv 2403.07691): SFT on the chosen answer and its odds, in one."""

    needs_reference: ClassVar[bool] = False
    type: Literal["orpo"] = "orpo"
    """Which loss this is."""
    odds_weight: float = Field(0.1, ge=0)
    """Weight of the odds ratio beside the likelihood of the chosen answer (the paper's lambda)."""


class KtoConfig(BetaConfig):
    """Kahneman-Tversky optimisation (arXiv 2402.01306): answers judged good or bad, without pairs."""

    type: Literal["kto"] = "kto"
    """Which loss this is."""
    desirable_weight: float = Field(1.0, ge=0)
    """Weight of answers that were judged good."""
    undesirable_weight: float = Field(1.0, ge=0)
    """Weight of answers that were judged bad. Where one kind is rarer, raise its weight until both weigh alike."""


class MpoConfig(BetaConfig):
    """Mixed preference optimisation (arXiv 2411.10442): which answer is better, how good each is, and how to write."""

    type: Literal["mpo"] = "mpo"
    """Which loss this is."""
    preference_weight: float = Field(0.8, ge=0)
    """Weight of DPO's loss."""
    quality_weight: float = Field(0.2, ge=0)
    """Weight of the loss on each answer by itself (BCO, arXiv 2404.04656)."""
    generation_weight: float = Field(1.0, ge=0)
    """Weight of the likelihood of the chosen answer."""


PreferenceConfig = Annotated[
    ApoDownConfig
    | ApoZeroConfig
    | CdpoConfig
    | DpoConfig
    | ExoConfig
    | HingeConfig
    | IpoConfig
    | KtoConfig
    | MpoConfig
    | NcaConfig
    | OrpoConfig
    | RobustConfig
    | SimpoConfig,
    Field(discriminator="type"),
]
