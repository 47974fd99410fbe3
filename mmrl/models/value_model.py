"""`ValueModel`: a critic, which is a policy's body with a head that says how much reward is still to come.

The value of a response token is read from the hidden state before it, the same state that the token is predicted from,
so prefix and plain path, images and masks are those of `PolicyModel`, and a group's prompt is forwarded once.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from mmrl.batch import GroupBatch
from mmrl.models.lockstep import Lockstep
from mmrl.models.policy_model import ForwardPath, PolicyModel


class ValueModel(nn.Module):
    """body: the model whose hidden states are read; its own head over the vocabulary is not used, nor trained.

    head: the linear map from a hidden state to a value, in float32. It begins at zero, so that a new critic expects
    nothing and the first advantages are the returns themselves, on every machine.
    """

    def __init__(self, body: PolicyModel) -> None:
        super().__init__()
        self.body = body
        vocabulary_head = body.family.head(body.hf)
        if vocabulary_head.weight is not body.hf.get_input_embeddings().weight:
            vocabulary_head.requires_grad_(False)
        self.head = nn.Linear(vocabulary_head.in_features, 1, device=body.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    @property
    def device(self) -> torch.device:
        return self.body.device

    @property
    def lockstep(self) -> Lockstep | None:
        return self.body.lockstep

    def train(self, mode: bool = True) -> ValueModel:
        """Stays in evaluation mode, as its body does."""
        return super().train(False)

    def forward(self, batch: GroupBatch, *, path: ForwardPath = "prefix") -> Tensor:
        """The value before every sampled token, with gradients: (B, T) float32, zero where response_mask is 0.

        The batch is one pass: whoever calls chooses its size.
        """
        shape = batch.response_ids.shape
        if self.lockstep is None and batch.num_sampled_tokens == 0:
            return torch.zeros(shape, device=self.device)
        with self.body.precision():
            states = self.body.states_before_tokens(batch, path=path)
        with torch.autocast(self.device.type, enabled=False):
            values = self.head(states.predictions.hidden.float())[:, 0]
        return states.spread(values[states.predictions.rows], shape)
