"""transformers' modelling, without two libraries that it imports for what mmrl never calls.

Where they are installed, transformers imports scikit-learn (which brings pandas and pyarrow) for assisted decoding and
scipy for losses of object detection. A process that trains needs neither: they cost it 0.13 GB and over a second.
Whoever imports them otherwise gets them as always.
"""

from __future__ import annotations

import importlib
from typing import Any

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
