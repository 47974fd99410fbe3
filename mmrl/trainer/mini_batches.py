"""How a step's batch is divided into optimiser steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch

from mmrl.batch import GroupBatch
from mmrl.config.run import TrainConfig


def mini_batches(batch: GroupBatch, train: TrainConfig) -> Iterator[tuple[GroupBatch, bool]]:
    """`epochs` passes over `mini_batches` mini-batches, an optimiser step each, and whether it is the very first."""
    parts = split_prompts(batch, train.mini_batches)
    for epoch in range(train.epochs):
        for index, part in enumerate(parts):
            yield part, epoch == 0 and index == 0


def split_prompts(batch: GroupBatch, parts: int) -> list[GroupBatch]:
    """Whole groups in `parts` parts whose sizes differ by at most one; fewer parts if there are fewer groups."""
    total = len(batch.prompts)
    parts = min(parts, total)
    edges = torch.linspace(0, total, parts + 1).round().long().tolist()
    return [batch.select_prompts(first, last) for first, last in itertools.pairwise(edges)]
