"""A byte-level BPE tokenizer with Qwen's special tokens, trained on a handful of sentences, and a chat template.

It cuts text where Qwen's own tokenizers do (each digit by itself), knows every byte, and is the same on every machine.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, trainers
from tokenizers.models import BPE
from transformers import Qwen2TokenizerFast
from transformers.models.qwen2.tokenization_qwen2 import PRETOKENIZE_REGEX

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)

SENTENCES = (
    "Which digit is shown in the image? Answer with the digit in \\boxed{}.",
    "Is the digit in the image odd or even? Answer with odd or even in \\boxed{}.",
    "What is the sum of the two digits in the images? Answer with the number in \\boxed{}.",
    "What is 12 + 34? What is 9 - 5? What is 3 * 8? Answer with the number in \\boxed{}.",
    "The answer is \\boxed{7}. The digit is \\boxed{0}. The digit is odd, so the answer is \\boxed{odd}.",
    "The digits are 4 and 9, and their sum is 13. So the answer is \\boxed{13}.",
    "system user assistant tool\nYou are a helpful assistant. Describe the image. Compare the two images.",
    "Let me think step by step. First, look at the image. Then write the final answer.",
    "What colour is the square? Is the left circle larger than the right circle? How many triangles are there?",
)

CHAT_TEMPLATE = """\
{%- for message in messages -%}
{{ '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['content'] is string -%}
{{ message['content'] }}
{%- else -%}
{%- for part in message['content'] -%}
{%- if part['type'] == 'image' -%}
{{ '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif part['type'] == 'video' -%}
{{ '<|vision_start|><|video_pad|><|vision_end|>' }}
{%- elif part['type'] == 'text' -%}
{{ part['text'] }}
{%- endif -%}
{%- endfor -%}
{%- endif -%}
{{ '<|im_end|>\\n' }}
{%- endfor -%}
{%- if add_generation_prompt -%}
{{ '<|im_start|>assistant\\n' }}
{%- endif -%}
"""


def train_tokenizer(sentences: Sequence[str] = SENTENCES, *, vocab_size: int = 512) -> Qwen2TokenizerFast:
    """At most `vocab_size` tokens: 256 bytes, merges learned from `sentences`, then the special tokens."""
    bpe = Tokenizer(BPE())
    bpe.normalizer = normalizers.NFC()
    bpe.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(PRETOKENIZE_REGEX), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS),
        min_frequency=1,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(sentences, trainer)
    trained = json.loads(bpe.to_str())["model"]
    vocab = dict(sorted(trained["vocab"].items(), key=lambda item: item[1]))
    for token in SPECIAL_TOKENS:
        vocab[token] = len(vocab)
    return Qwen2TokenizerFast(
        vocab=vocab,
        merges=[tuple(pair) for pair in trained["merges"]],
        unk_token=None,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        extra_special_tokens=list(SPECIAL_TOKENS[1:]),
        chat_template=CHAT_TEMPLATE,
        model_max_length=32768,
    )
