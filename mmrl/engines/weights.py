"""The weights of a model as a saved checkpoint names them, which may differ from the names in the module tree."""

from __future__ import annotations

from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from mmrl.engines.base import NamedWeights


def checkpoint_weights(model: PreTrainedModel) -> NamedWeights:
    """Name and tensor of each weight, as `save_pretrained` writes them; of tied weights only the one that it keeps.

    The tensors are detached and share memory with the parameters where the family's checkpoint has the same layout:
    whoever keeps one beyond the next update must copy it.
    """
    tied = set(model.all_tied_weights_keys)
    kept = {name: tensor for name, tensor in model.state_dict().items() if name not in tied}
    yield from revert_weight_conversion(model, kept).items()
