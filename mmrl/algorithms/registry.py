"""From an algorithm's `type` to its class."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from mmrl.algorithms.base import Algorithm
from mmrl.algorithms.cispo import CispoAlgorithm
from mmrl.algorithms.dapo import DapoAlgorithm
from mmrl.algorithms.dr_grpo import DrGrpoAlgorithm
from mmrl.algorithms.gdpo import GdpoAlgorithm
from mmrl.algorithms.gpg import GpgAlgorithm
from mmrl.algorithms.grpo import GrpoAlgorithm
from mmrl.algorithms.gspo import GspoAlgorithm
from mmrl.algorithms.online_dpo import OnlineDpoAlgorithm
from mmrl.algorithms.opo import OpoAlgorithm
from mmrl.algorithms.pass_at_k import PassAtKAlgorithm
from mmrl.algorithms.ppo import PpoAlgorithm
from mmrl.algorithms.reinforce_plus_plus import ReinforcePlusPlusAlgorithm
from mmrl.algorithms.reinforce_plus_plus_baseline import ReinforcePlusPlusBaselineAlgorithm
from mmrl.algorithms.remax import RemaxAlgorithm
from mmrl.algorithms.rloo import RlooAlgorithm
from mmrl.algorithms.sapo import SapoAlgorithm
from mmrl.algorithms.sppo import SppoAlgorithm
from mmrl.algorithms.user_advantages import UserAdvantages
from mmrl.algorithms.vapo import VapoAlgorithm
from mmrl.config.algorithm import AlgorithmConfig, advantage_config

ALGORITHMS: dict[str, type[Algorithm[Any]]] = {
    "cispo": CispoAlgorithm,
    "dapo": DapoAlgorithm,
    "dr_grpo": DrGrpoAlgorithm,
    "gdpo": GdpoAlgorithm,
    "gpg": GpgAlgorithm,
    "grpo": GrpoAlgorithm,
    "gspo": GspoAlgorithm,
    "online_dpo": OnlineDpoAlgorithm,
    "opo": OpoAlgorithm,
    "pass_at_k": PassAtKAlgorithm,
    "ppo": PpoAlgorithm,
    "reinforce_plus_plus": ReinforcePlusPlusAlgorithm,
    "reinforce_plus_plus_baseline": ReinforcePlusPlusBaselineAlgorithm,
    "remax": RemaxAlgorithm,
    "rloo": RlooAlgorithm,
    "sapo": SapoAlgorithm,
    "sppo": SppoAlgorithm,
    "vapo": VapoAlgorithm,
}


def build_algorithm(
    config: AlgorithmConfig, *, response_limit: int | None = None, shaping_parts: Collection[str] = ()
) -> Algorithm[Any]:
    """The algorithm that the config describes, with the advantages of another or of a user's function where it says so.

    response_limit: the longest response that is sampled, in tokens.
    shaping_parts: names of the parts of the reward that only shape; see `outcome_gate`.
    Raises ConfigError if the user's function does not load.
    """
    settings: dict[str, Any] = {"response_limit": response_limit, "shaping_parts": shaping_parts}
    algorithm = ALGORITHMS[config.type](config, **settings)
    if config.advantage.path is not None:
        algorithm.user_advantages = UserAdvantages(config.advantage)
    elif config.advantage.type is not None:
        other = ALGORITHMS[config.advantage.type](advantage_config(config), **settings)
        other.kl_weight = algorithm.kl_weight
        algorithm.advantage_source = other
    return algorithm
