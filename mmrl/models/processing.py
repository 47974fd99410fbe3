"""`PromptProcessor`: a sample becomes token ids and image patches, the same for every engine.

The chat template is rendered once a prompt, each image's placeholder is repeated for the tokens that the image takes,
and images come resized from `mmrl.models.images`. Token ids are kept by content; pixels have a bounded cache of their
own, so that a prompt that is kept holds none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from mmrl.batch import PreparedImage, PreparedPrompt
from mmrl.config.run import ImageConfig
from mmrl.data.images import ImageStore
from mmrl.errors import ModelError
from mmrl.models.chat import ChatEncoder
from mmrl.models.images import ImageLimits, ImagePreparer, limits_of
from mmrl.models.token_ids import banned_token_ids, find_end_token_ids
from mmrl.types import ImagePart, Message, Sample

MAX_PIXELS_KEY = "mmrl:prompt_max_pixels"
"""Key of `Sample.meta`: a bound on the pixels of each of the sample's images, below the config's."""

CACHED_PROMPTS = 4096


@dataclass(frozen=True)
class EncodedTurns:
    """ids, and for each 1 where it is learned, else 0; the images in it without pixels, in order of appearance."""

    ids: list[int]
    mask: list[int]
    images: tuple[PreparedImage, ...]


class PromptProcessor:
    """tokenizer: the model's; processor: its image and text processor, or the tokenizer again for a text-only model.

    pad_token_id: what fills rows up; never a real token of a response, whose end is known by its length.
    end_token_ids: ids that end a response. banned_token_ids: ids that no response may contain, sorted.
    """

    def __init__(
        self,
        processor: Any,
        *,
        config: Any,
        generation_config: Any | None = None,
        store: ImageStore,
        image: ImageConfig,
        cached_prompts: int = CACHED_PROMPTS,
    ) -> None:
        """config: the model's configuration, whose vision ids and vocabulary count."""
        self.processor = processor
        self.tokenizer = getattr(processor, "tokenizer", processor)
        image_processor = getattr(processor, "image_processor", None)
        self.image_token_id: int | None = getattr(config, "image_token_id", None) if image_processor else None
        self.end_token_ids = find_end_token_ids(self.tokenizer, generation_config)
        self.banned_token_ids = banned_token_ids(self.tokenizer, config, self.end_token_ids)
        pad = self.tokenizer.pad_token_id
        self.pad_token_id: int = pad if pad is not None else min(self.end_token_ids)
        self.images: ImagePreparer | None = None
        if image_processor is not None:
            self.images = ImagePreparer(image_processor, store, limits_of(image_processor, image))
        self._chat = ChatEncoder(self.tokenizer, chat_template_of(processor), sees_images=self.images is not None)
        self._end_of_turn = self._chat.end_of_turn(self.end_token_ids)
        self._prompts: OrderedDict[tuple[Message, ...], tuple[int, ...]] = OrderedDict()
        self._cached_prompts = cached_prompts
        self._lengths: dict[tuple[Message, ...], int] = {}

    def prepare(self, sample: Sample) -> PreparedPrompt:
        """Ids with the header of the answer and every image expanded, and the images' patches.

        Raises DataError for an image that cannot be taken, ModelError for one that the model or its template drops.
        """
        return self.fill(self.sketch(sample))

    def sketch(self, sample: Sample) -> PreparedPrompt:
        """The prompt without the pixels of its images: what whoever only passes it on needs. Opens no image."""
        template_ids = self._template_ids(sample)
        if not sample.images:
            return PreparedPrompt(template_ids, ())
        limits = self._limits(sample)
        images = tuple(self._preparer.sketch(image, limits) for image in sample.images)
        return PreparedPrompt(
            _expand(template_ids, self.image_token_id, [image.num_tokens for image in images]), images
        )

    def short_ids(self, sample: Sample) -> tuple[int, ...]:
        """Ids of the prompt with one placeholder for each image, for engines that expand them by themselves."""
        return self._template_ids(sample)

    def fill(self, prompt: PreparedPrompt) -> PreparedPrompt:
        """The prompt with the pixels of its images, from the store or from those kept of late."""
        if not prompt.images:
            return prompt
        return replace(prompt, images=tuple(self._preparer.fill(image) for image in prompt.images))

    def num_tokens(self, sample: Sample) -> int:
        """Exact length of the prompt with its images expanded; opens no image. Each prompt is rendered once."""
        length = self._lengths.get(sample.messages)
        if length is None:
            length = self._lengths[sample.messages] = len(self._template_ids(sample))
        if not sample.images:
            return length
        limits = self._limits(sample)
        return length + sum(limits.num_tokens(image) - 1 for image in sample.images)

    def fit(self, sample: Sample, max_tokens: int) -> Sample | None:
        """The sample with its images bounded so that the prompt has at most `max_tokens`, as it is if it fits already.

        The bound (the largest that fits) travels in the sample's meta, so every engine shrinks alike. None where even
        images of a single token leave the prompt too long.
        """
        if self.num_tokens(sample) <= max_tokens:
            return sample
        if not sample.images or self.images is None:
            return None
        area = self.images.limits.factor**2
        low, high = 0, self.images.limits.max_pixels // area
        while high - low > 1:
            middle = (low + high) // 2
            fits = self.num_tokens(_bounded(sample, middle * area)) <= max_tokens
            low, high = (middle, high) if fits else (low, middle)
        return _bounded(sample, low * area) if low else None

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text without special tokens."""
        return self.tokenizer.decode(list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)

    def encode_response(self, text: str) -> list[int]:
        """Ids of an assistant's answer and the end token, as the template ends its turn."""
        end = self._end_of_turn if self._end_of_turn is not None else min(self.end_token_ids)
        return [*self._chat.encode_text(text), end]

    def encode_turns(self, prompt: Sample, turns: Sequence[Message], is_learned: Sequence[bool]) -> EncodedTurns:
        """What follows a prompt: assistant turns, each with its end token, and what lies between them.

        turns: the first and the last are the assistant's. is_learned: for each of the assistant's turns whether its
        words and end token are learned.
        Raises ModelError for an image in a turn of a model that reads text only.
        """
        ids: list[int] = []
        mask: list[int] = []
        images: list[PreparedImage] = []
        places = [index for index, turn in enumerate(turns) if turn.role == "assistant"]
        for place, following, learned in zip(places, [*places[1:], None], is_learned, strict=True):
            answer = self.encode_response(turns[place].text)
            ids += answer
            mask += [int(learned)] * len(answer)
            if following is None:
                continue
            history = replace(prompt, messages=(*prompt.messages, *turns[:place]))
            between = self._between(history, turns[place + 1 : following], end=answer[-1])
            ids += between.ids
            mask += between.mask
            images += between.images
        return EncodedTurns(ids, mask, tuple(images))

    def ready_images(self, images: Sequence[PreparedImage]) -> tuple[PreparedImage, ...]:
        """The images as prompts have them: with their pixels."""
        return tuple(self._preparer.fill(image) for image in images) if images else ()

    def _between(self, history: Sample, turns: Sequence[Message], *, end: int) -> EncodedTurns:
        """The turns between two of the assistant: from behind the first one's end token to the second one's header."""
        ids = self._chat.encode_after(history.messages, turns)
        ids = ids[1:] if ids[:1] == [end] else ids
        refs = [part.image for turn in turns for part in turn.content if isinstance(part, ImagePart)]
        if refs:
            limits = self._limits(history)
            images = tuple(self._preparer.sketch(ref, limits) for ref in refs)
            ids = list(_expand(ids, self.image_token_id, [image.num_tokens for image in images]))
            return EncodedTurns(ids, [0] * len(ids), images)
        return EncodedTurns(ids, [0] * len(ids), ())

    @property
    def _preparer(self) -> ImagePreparer:
        if self.images is None:
            raise ModelError("the model reads text only and the prompt has an image; use a vision-language model")
        return self.images

    def _limits(self, sample: Sample) -> ImageLimits:
        bound = sample.meta.get(MAX_PIXELS_KEY)
        limits = self._preparer.limits
        return limits if bound is None else limits.below(int(bound))

    def _template_ids(self, sample: Sample) -> tuple[int, ...]:
        """Ids of the prompt with one placeholder for each image."""
        if sample.messages in self._prompts:
            self._prompts.move_to_end(sample.messages)
            return self._prompts[sample.messages]
        token_ids = tuple(self._chat.encode(sample.messages))
        slots = token_ids.count(self.image_token_id) if self.image_token_id is not None else 0
        if slots != len(sample.images):
            raise ModelError(
                f"the chat template wrote {slots} image placeholders for {len(sample.images)} images; "
                "use a template that writes one for each image part"
            )
        self._prompts[sample.messages] = token_ids
        if len(self._prompts) > self._cached_prompts:
            self._prompts.popitem(last=False)
        return token_ids


def _expand(template_ids: Sequence[int], image_token_id: int | None, counts: Sequence[int]) -> tuple[int, ...]:
    """The n-th placeholder repeated `counts[n]` times."""
    remaining = iter(counts)
    expanded: list[int] = []
    for token_id in template_ids:
        expanded.extend([token_id] * next(remaining) if token_id == image_token_id else [token_id])
    return tuple(expanded)


def _bounded(sample: Sample, max_pixels: int) -> Sample:
    return replace(sample, meta={**sample.meta, MAX_PIXELS_KEY: max_pixels})


def chat_template_of(processor: Any) -> str:
    """The processor's template, else its tokenizer's. Raises ModelError where there is none."""
    template = processor.chat_template or getattr(processor, "tokenizer", processor).chat_template
    if isinstance(template, dict):
        template = template.get("default")
    if not template:
        raise ModelError(
            "the model has no chat template; add a chat_template.jinja to its folder "
            "(instruction-tuned models bring one)"
        )
    return template
