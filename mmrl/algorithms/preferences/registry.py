"""From a preference's `type` to its class."""

from __future__ import annotations

from typing import Any

from mmrl.algorithms.preferences.apo import ApoDownPreference, ApoZeroPreference
from mmrl.algorithms.preferences.base import Preference
from mmrl.algorithms.preferences.cdpo import CdpoPreference
from mmrl.algorithms.preferences.dpo import DpoPreference
from mmrl.algorithms.preferences.exo import ExoPreference
from mmrl.algorithms.preferences.hinge import HingePreference
from mmrl.algorithms.preferences.ipo import IpoPreference
from mmrl.algorithms.preferences.kto import KtoPreference
from mmrl.algorithms.preferences.mpo import MpoPreference
from mmrl.algorithms.preferences.nca import NcaPreference
from mmrl.algorithms.preferences.orpo import OrpoPreference
from mmrl.algorithms.preferences.robust import RobustPreference
from mmrl.algorithms.preferences.simpo import SimpoPreference
from mmrl.config.preference import PreferenceConfig

PREFERENCES: dict[str, type[Preference[Any]]] = {
    "apo_down": ApoDownPreference,
    "apo_zero": ApoZeroPreference,
    "cdpo": CdpoPreference,
    "dpo": DpoPreference,
    "exo": ExoPreference,
    "hinge": HingePreference,
    "ipo": IpoPreference,
    "kto": KtoPreference,
    "mpo": MpoPreference,
    "nca": NcaPreference,
    "orpo": OrpoPreference,
    "robust": RobustPreference,
    "simpo": SimpoPreference,
}


def build_preference(config: PreferenceConfig) -> Preference[Any]:
    return PREFERENCES[config.type](config)
