"""`RewardModel`: a policy's body with a head that gives one number for a whole response, and its folder.

The number is read from the hidden state of the response's last real token, so padding does not matter. Prompts and
images go in as for the policy, and a prompt that several responses answer is forwarded once, with gradients.

Its folder is that of the body, as `save_policy` writes it (any tool can load it as a plain model), and beside it the
head in `reward_head.safetensors`, under the name `score.weight` that transformers' classifiers have.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mmrl.batch import PreparedPrompt
from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.data.images import ImageStore
from mmrl.errors import ModelError
from mmrl.models.loading import load_policy
from mmrl.models.policy_model import PolicyModel
from mmrl.models.saving import save_policy

HEAD_FILE = "reward_head.safetensors"
_HEAD_WEIGHT = "score.weight"


class RewardModel(nn.Module):
    """body: the model whose hidden states are read; its own head over the vocabulary is neither used nor trained.

    head: the linear map, without bias (a difference of two scores would not see it), from a hidden state to the score,
    in float32. It begins at zero: a new reward model prefers nothing.
    """

    def __init__(self, body: PolicyModel) -> None:
        super().__init__()
        self.body = body
        vocabulary_head = body.family.head(body.hf)
        if vocabulary_head.weight is not body.hf.get_input_embeddings().weight:
            vocabulary_head.requires_grad_(False)
        self.head = nn.Linear(vocabulary_head.in_features, 1, bias=False, device=body.device)
        nn.init.zeros_(self.head.weight)

    @property
    def device(self) -> torch.device:
        return self.body.device

    def train(self, mode: bool = True) -> RewardModel:
        """Stays in evaluation mode, as its body does."""
        return super().train(False)

    def forward(self, prompts: Sequence[PreparedPrompt], responses: Sequence[Sequence[Sequence[int]]]) -> Tensor:
        """(rows,) float32, with gradients: the score of each response, those of `responses[i]` answering `prompts[i]`.

        A response is its token ids, end token included (`PromptProcessor.encode_response`), at least one.
        """
        rows = [list(ids) for group in responses for ids in group]
        prompt_of_row = torch.tensor([index for index, group in enumerate(responses) for _ in group])
        lengths = torch.tensor([len(ids) for ids in rows])
        assert all(rows), "a response to score has at least its end token"
        token_ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int64)
        for index, ids in enumerate(rows):
            token_ids[index, : len(ids)] = torch.tensor(ids)
        with self.body.precision():
            prefix = self.body.prefill(prompts).expand(prompt_of_row.to(self.device))
            hidden, _ = self.body.extend(prefix, token_ids.to(self.device), lengths)
        last = hidden[torch.arange(len(rows), device=self.device), lengths.to(self.device) - 1]
        with torch.autocast(self.device.type, enabled=False):
            return self.head(last.float())[:, 0]


def is_reward_model(path: str) -> bool:
    """Whether a folder holds a reward model as `save_reward_model` writes it."""
    return (Path(path) / HEAD_FILE).is_file()


def save_reward_model(model: RewardModel, folder: Path, *, dtype: torch.dtype = torch.float32) -> None:
    """dtype: of the body's saved weights; the head is float32."""
    save_policy(model.body, folder, dtype=dtype)
    save_file({_HEAD_WEIGHT: model.head.weight.detach().cpu().contiguous()}, folder / HEAD_FILE)


def load_reward_model(
    config: ModelConfig, image: ImageConfig, *, store: ImageStore, trainable: bool = False
) -> RewardModel:
    """The reward model of the folder `config.path`; a folder without a head gives a new one that is trained.

    Raises NotFoundError or ModelError for a folder that is missing, incomplete or does not fit together.
    """
    if not trainable and not is_reward_model(config.path):
        raise ModelError(
            f"model {config.path} has no {HEAD_FILE}: it gives no scores; train a reward model from it, or name one"
        )
    model = RewardModel(load_policy(config, image, store=store, trainable=trainable))
    if is_reward_model(config.path):
        _load_head(model, Path(config.path) / HEAD_FILE)
    if not trainable:
        model.requires_grad_(False)
    return model


def _load_head(model: RewardModel, file: Path) -> None:
    try:
        weight = load_file(file)[_HEAD_WEIGHT]
    except (KeyError, SafetensorError) as error:
        raise ModelError(f"{file}: no head that can be read: it needs the tensor {_HEAD_WEIGHT} ({error})") from error
    if weight.shape != model.head.weight.shape:
        expected = tuple(model.head.weight.shape)
        raise ModelError(f"{file}: {_HEAD_WEIGHT} is {tuple(weight.shape)}, the model beside it needs {expected}")
    with torch.no_grad():
        model.head.weight.copy_(weight)
