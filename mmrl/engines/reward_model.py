"""The process in which a reward model lives: loaded once, asked in batches over a connection.

`mmrl.rewards.model.model` starts it. It reads the config, writes None or why the model does not load, and then answers
each batch, a list of (sample, response), with a list of numbers or texts that say why there is none. It ends with its
connection.
"""

from __future__ import annotations

from multiprocessing.connection import Connection

import torch

from mmrl.config.reward import ModelRewardConfig
from mmrl.data.images import ImageStore
from mmrl.errors import MmrlError
from mmrl.models.scorers import Scorer, load_scorer
from mmrl.types import Sample

Batch = list[tuple[Sample, str]]


def serve(fd: int) -> None:
    """The whole life of the process; `fd` is its end of the connection."""
    with Connection(fd) as connection:
        config: ModelRewardConfig = connection.recv()
        try:
            scorer = load_scorer(config, ImageStore())
        except MmrlError as error:
            connection.send(str(error))
            return
        connection.send(None)
        while True:
            try:
                batch: Batch = connection.recv()
            except EOFError:
                return
            connection.send(_score(scorer, batch))


def _score(scorer: Scorer, batch: Batch) -> list[float | str]:
    """A batch that fails is tried one by one, so that a single bad image costs its own response only."""
    try:
        return scorer.score([sample for sample, _ in batch], [text for _, text in batch])
    except (MmrlError, RuntimeError, ValueError) as error:
        if len(batch) == 1:
            return [f"{type(error).__name__}: {error}"]
        if isinstance(error, torch.OutOfMemoryError):
            torch.cuda.empty_cache()
        return [result for one in batch for result in _score(scorer, [one])]
