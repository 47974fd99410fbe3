"""Algorithms: pure tensor functions in small files, one small file an algorithm, and a registry. No engines here."""

from mmrl.algorithms.base import Algorithm
from mmrl.algorithms.registry import ALGORITHMS, build_algorithm
from mmrl.algorithms.selection import Selection, SelectionStats
from mmrl.algorithms.sft import SftObjective

__all__ = ["ALGORITHMS", "Algorithm", "Selection", "SelectionStats", "SftObjective", "build_algorithm"]
