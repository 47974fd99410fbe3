"""From an algorithm's `type` to its class."""

from __future__ import annotations

from typing import Any

from mmrl.algorithms.base import Algorithm
from mmrl.algorithms.cispo import CispoAlgorithm
from mmrl.algorithms.dr_grpo import DrGrpoAlgorithm
from mmrl.algorithms.gpg import GpgAlgorithm
from mmrl.algorithms.grpo import GrpoAlgorithm
from mmrl.algorithms.gspo import GspoAlgorithm
from mmrl.algorithms.opo import OpoAlgorithm
from mmrl.algorithms.pass_at_k import PassAtKAlgorithm
from mmrl.algorithms.reinforce_plus_plus_baseline import ReinforcePlusPlusBaselineAlgorithm
from mmrl.algorithms.rloo import RlooAlgorithm
from mmrl.algorithms.sapo import SapoAlgorithm
from mmrl.config.algorithm import AlgorithmConfig

ALGORITHMS: dict[str, type[Algorithm[Any]]] = {
    "cispo": CispoAlgorithm,
    "dr_grpo": DrGrpoAlgorithm,
    "gpg": GpgAlgorithm,
    "grpo": GrpoAlgorithm,
    "gspo": GspoAlgorithm,
    "opo": OpoAlgorithm,
    "pass_at_k": PassAtKAlgorithm,
    "reinforce_plus_plus_baseline": ReinforcePlusPlusBaselineAlgorithm,
    "rloo": RlooAlgorithm,
    "sapo": SapoAlgorithm,
}


def build_algorithm(config: AlgorithmConfig) -> Algorithm[Any]:
    """The algorithm that the config describes."""
    return ALGORITHMS[config.type](config)
