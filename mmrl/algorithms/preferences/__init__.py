"""Losses on preferences, one small file each: `build_preference` makes the one that a config names."""

from mmrl.algorithms.preferences.base import Preference
from mmrl.algorithms.preferences.registry import PREFERENCES, build_preference

__all__ = ["PREFERENCES", "Preference", "build_preference"]
