"""transformers' modelling, without four libraries that are imported for what mmrl never calls.

Where they are installed, transformers imports scikit-learn (which brings pandas and pyarrow) for assisted decoding and
scipy for losses of object detection; accelerate imports boto3 for a dialogue about SageMaker; torch's compiler, which
comes with torchvision, imports Triton to find out whether it is there. A process that trains needs none of them, and
Triton only with a GPU: they cost it 0.21 GB and two seconds. Whoever imports them otherwise gets them as always, but
torch itself keeps to its finding that there is no Triton.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _triton


@contextmanager
def _hidden(*names: str) -> Iterator[None]:
    """Within the block those of these libraries that nobody has imported yet are not there."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


if not torch.cuda.is_available():
    with _hidden("triton"):
        _triton.has_triton_package()  # which keeps its answer
with _hidden("boto3"):
    import accelerate  # noqa: F401
    from transformers import utils

_ASKED_BY = {
    "is_sklearn_available": "transformers.generation.candidate_generator",
    "is_scipy_available": "transformers.loss.loss_utils",
}
"""What tells whether a library is there, and the module through which it is asked; modules keep the answer they got."""


def _import_without_asked_for() -> Any:
    answers = {name: getattr(utils, name) for name in _ASKED_BY}
    try:
        for name in answers:
            setattr(utils, name, lambda: False)
        for module in _ASKED_BY.values():
            importlib.import_module(module)
        return importlib.import_module("transformers.modeling_utils")
    finally:
        for name, answer in answers.items():
            setattr(utils, name, answer)


modeling_utils = _import_without_asked_for()
