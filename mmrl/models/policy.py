"""What engines and the trainer use of models."""

from mmrl.models.freezing import apply_freeze
from mmrl.models.loading import load_policy
from mmrl.models.policy_model import ForwardPath, PolicyModel
from mmrl.models.prefix import Prefix
from mmrl.models.saving import checkpoint_names, companion_files, named_weights, save_policy, save_weights

__all__ = [
    "ForwardPath",
    "PolicyModel",
    "Prefix",
    "apply_freeze",
    "checkpoint_names",
    "companion_files",
    "load_policy",
    "named_weights",
    "save_policy",
    "save_weights",
]
