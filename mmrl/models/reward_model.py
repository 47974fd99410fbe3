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

from mmrl.batch import GroupBatch, PreparedPrompt
from mmrl.config.run import ImageConfig, ModelConfig
from mmrl.data.images import ImageStore
from mmrl.errors import ModelError
from mmrl.models.loading import load_policy
from mmrl.models.lockstep import Lockstep
from mmrl.models.policy_model import ForwardPath, PolicyModel
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

    @property
    def dtype(self) -> torch.dtype:
        """Of its passes."""
        return self.body.dtype

    def checkpoint_gradients(self) -> None:
        """From now on layers and vision blocks keep only their inputs for the backward pass and then run again."""
        self.body.checkpoint_gradients()

    @property
    def lockstep(self) -> Lockstep | None:
        return self.body.lockstep

    def forward(self, batch: GroupBatch, *, path: ForwardPath = "prefix") -> Tensor:
        """(B,) float32, with gradients: the score of each response, which has at least one token.

        The batch is one pass: whoever calls chooses its size.
        """
        with self.body.precision():
            last = self.body.states_of_last_tokens(batch, path=path)
        with torch.autocast(self.device.type, enabled=False):
            scores: Tensor = self.head(last.to(self.head.weight.dtype))[:, 0]
        return scores

    def score(self, prompts: Sequence[PreparedPrompt], responses: Sequence[Sequence[Sequence[int]]]) -> Tensor:
        """`forward` of token ids, end token included (`PromptProcessor.encode_response`); those of `responses[i]`
        answer `prompts[i]`."""
        return self(answers_batch(prompts, responses))


def answers_batch(prompts: Sequence[PreparedPrompt], responses: Sequence[Sequence[Sequence[int]]]) -> GroupBatch:
    """Prompts and the answers to each, at least one token long."""
    rows = [list(ids) for group in responses for ids in group]
    assert all(rows), "a response to score has at least its end token"
    lengths = torch.tensor([len(ids) for ids in rows])
    token_ids = torch.zeros(len(rows), int(lengths.max()), dtype=torch.int64)
    for index, ids in enumerate(rows):
        token_ids[index, : len(ids)] = torch.tensor(ids)
    return GroupBatch(
        prompts=tuple(prompts),
        prompt_of_row=torch.tensor([index for index, group in enumerate(responses) for _ in group]),
        response_ids=token_ids,
        response_mask=(torch.arange(token_ids.shape[1]) < lengths[:, None]).float(),
        response_lengths=lengths,
    )


def is_reward_model(path: str) -> bool:
    """Whether a folder holds a reward model as `save_reward_model` writes it."""
    return (Path(path) / HEAD_FILE).is_file()


def save_reward_model(model: RewardModel, folder: Path, *, dtype: torch.dtype = torch.float32) -> None:
    """dtype: of the body's saved weights; the head is float32."""
    save_policy(model.body, folder, dtype=dtype)
    save_head(model.head.weight, folder)


def save_head(weight: Tensor, folder: Path) -> None:
    """weight: (1, hidden) of the head, whole; makes of a model's folder that of a reward model."""
    save_file({_HEAD_WEIGHT: weight.detach().float().cpu().contiguous()}, folder / HEAD_FILE)


def load_head(head: nn.Linear, folder: Path) -> Tensor:
    """The weight (1, hidden) of a reward model's folder. Raises ModelError where it is no fit for `head`."""
    file = folder / HEAD_FILE
    try:
        weight = load_file(file)[_HEAD_WEIGHT]
    except (KeyError, SafetensorError) as error:
        raise ModelError(f"{file}: no head that can be read: it needs the tensor {_HEAD_WEIGHT} ({error})") from error
    if weight.shape != head.weight.shape:
        expected = tuple(head.weight.shape)
        raise ModelError(f"{file}: {_HEAD_WEIGHT} is {tuple(weight.shape)}, the model beside it needs {expected}")
    return weight


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
        with torch.no_grad():
            model.head.weight.copy_(load_head(model.head, Path(config.path)))
    if not trainable:
        model.requires_grad_(False)
    return model
