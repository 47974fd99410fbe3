import pytest
from models_builders import VISION_FAMILIES, mixed_samples, sample, turn, user
from transformers import AutoConfig, AutoProcessor, AutoTokenizer

from mmrl.config.run import ImageConfig
from mmrl.errors import ModelError
from mmrl.models.processing import PromptProcessor
from mmrl.types import TextPart


@pytest.fixture
def prompts(tiny_model, image_store):
    def build(family="qwen2_5_vl", **image):
        folder = tiny_model(family)
        auto = AutoTokenizer if family == "qwen2" else AutoProcessor
        return PromptProcessor(
            auto.from_pretrained(folder),
            config=AutoConfig.from_pretrained(folder),
            store=image_store,
            image=ImageConfig(**image),
        )

    return build


def conversation(messages, store):
    """Messages as Hugging Face processors take them, the images resized by nobody."""

    def part(content):
        if isinstance(content, TextPart):
            return {"type": "text", "text": content.text}
        return {"type": "image", "image": store.open(content.image)}

    return [{"role": message.role, "content": [part(content) for content in message.content]} for message in messages]


@pytest.mark.parametrize("family", VISION_FAMILIES)
def test_prompt_ids_and_grids_equal_those_of_the_hf_processor(prompts, family, pictures, image_store):
    own = prompts(family)
    long = sample(
        turn("system", "Answer with one word."),
        user(pictures[0], "\n\nWhich  digit? naïve 日本"),
        turn("assistant", "7"),
        user("sure? ", pictures[1], pictures[2], "compare"),
    )
    for one in [*mixed_samples(pictures), long]:
        prepared = own.prepare(one)
        expected = own.processor.apply_chat_template(
            conversation(one.messages, image_store),
            tokenize=True,
            add_generation_prompt=True,
            return_dict=True,
            return_tensors="pt",
        )
        assert list(prepared.token_ids) == expected["input_ids"][0].tolist()
        assert own.num_tokens(one) == len(prepared)
        if one.images:
            assert [image.grid_thw for image in prepared.images] == [
                tuple(grid) for grid in expected["image_grid_thw"].tolist()
            ]


def test_prompt_ids_of_a_text_model_equal_its_chat_template(prompts):
    own = prompts("qwen2")
    one = sample(turn("system", ""), user("12 + 34?"), turn("assistant", "46"), user("sure?"))
    turns = [{"role": message.role, "content": message.text} for message in one.messages]
    expected = own.tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=True)
    assert list(own.prepare(one).token_ids) == expected["input_ids"]


@pytest.mark.parametrize(
    "text", ["convert this to an <image> tag", "<|image_pad|> and <|vision_start|>", "<|im_end|>\n"]
)
def test_placeholder_words_in_text_stay_text(prompts, pictures, text):
    own = prompts()
    prepared = own.prepare(sample(user(pictures[0], text)))
    assert prepared.token_ids.count(own.image_token_id) == prepared.images[0].num_tokens
    special = {"<|im_start|>": 2, "<|im_end|>": 1, "<|vision_start|>": 1}
    for token, count in special.items():
        assert prepared.token_ids.count(own.tokenizer.convert_tokens_to_ids(token)) == count
    assert text in own.decode(prepared.token_ids)


def test_a_literal_changes_no_id_of_the_rest_of_the_prompt(prompts, pictures):
    own = prompts()
    plain = own.prepare(sample(user(pictures[0], "\n\nis it odd?"), turn("assistant", "yes"), user("x"))).token_ids
    literal = own.prepare(
        sample(user(pictures[0], "\n\nis it odd?"), turn("assistant", "yes"), user("x<|im_end|>"))
    ).token_ids
    common = next(index for index, pair in enumerate(zip(plain, literal, strict=False)) if pair[0] != pair[1])
    assert plain[common:] == literal[len(literal) - len(plain) + common :]


def test_private_use_characters_of_the_user_survive_beside_a_literal(prompts):
    own = prompts()
    text = "\ue0000\ue000 <|image_pad|> \ue001"
    assert text in own.decode(own.prepare(sample(user(text))).token_ids)


def test_an_image_twice_is_prepared_once(prompts, pictures):
    own = prompts()
    prepared = own.prepare(sample(user(pictures[0], "and", pictures[0])))
    assert prepared.images[0] is prepared.images[1]
    assert prepared.token_ids.count(own.image_token_id) == 2 * prepared.images[0].num_tokens


def test_counting_tokens_opens_no_image(prompts, pictures):
    own = prompts()
    own.images._store = None
    assert own.num_tokens(sample(user(pictures[2], "x"))) == own.num_tokens(sample(user("x"))) + 2 + 45


def test_a_response_ends_as_the_template_ends_the_assistants_turn(prompts):
    own = prompts()
    ids = own.encode_response("\\boxed{7}")
    assert ids[-1] == own.tokenizer.convert_tokens_to_ids("<|im_end|>")
    asked = sample(user("Which digit?"))
    answered = own.tokenizer.apply_chat_template(
        [{"role": "user", "content": "Which digit?"}, {"role": "assistant", "content": "\\boxed{7}"}],
        tokenize=True,
        return_dict=True,
    )["input_ids"]
    assert [*own.prepare(asked).token_ids, *ids] == answered[:-1]
    assert own.decode(ids) == "\\boxed{7}"


def test_a_response_may_name_special_tokens(prompts):
    own = prompts()
    ids = own.encode_response("<|image_pad|>")
    assert own.image_token_id not in ids
    assert own.decode(ids) == "<|image_pad|>"


def test_all_control_ids_are_banned_but_the_end_tokens(prompts):
    own = prompts()
    ids = own.tokenizer.convert_tokens_to_ids
    assert own.end_token_ids == {ids("<|im_end|>"), ids("<|endoftext|>")}
    names = ["<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"]
    assert own.banned_token_ids == tuple(sorted(ids(names)))
    assert own.pad_token_id == ids("<|endoftext|>")


def test_ids_without_a_token_are_banned_and_thinking_tags_are_not(tiny_model, image_store):
    folder = tiny_model("qwen2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["<think>", "<|fim_pad|>"])
    config = AutoConfig.from_pretrained(folder)
    known = len(tokenizer)
    config.vocab_size = known + 2
    own = PromptProcessor(tokenizer, config=config, store=image_store, image=ImageConfig())
    assert {known, known + 1, tokenizer.convert_tokens_to_ids("<|fim_pad|>")} <= set(own.banned_token_ids)
    assert tokenizer.convert_tokens_to_ids("<think>") not in own.banned_token_ids


def test_fit_shrinks_images_as_little_as_it_must_and_the_bound_travels_with_the_sample(prompts, pictures):
    own = prompts()
    one = sample(user(pictures[2], "Which digit?", pictures[0]))
    length = own.num_tokens(one)
    assert own.fit(one, length) is one
    fitted = own.fit(one, length - 1)
    assert length - 20 < own.num_tokens(fitted) < length
    assert len(own.prepare(fitted)) == own.num_tokens(fitted)
    assert own.prepare(fitted).images[1].num_tokens == own.prepare(one).images[1].num_tokens
    text = own.num_tokens(sample(user("Which digit?"))) + 4
    assert own.num_tokens(own.fit(one, text + 2)) == text + 2
    assert own.fit(one, text + 1) is None
    assert own.fit(sample(user("Which digit?")), 3) is None


def test_a_text_model_refuses_an_image(prompts, pictures):
    own = prompts("qwen2")
    for ask in (own.prepare, own.num_tokens):
        with pytest.raises(ModelError, match="reads text only"):
            ask(sample(user(pictures[0], "x")))


def test_a_template_that_drops_images_is_refused(prompts, pictures):
    own = prompts()
    own._chat._template = "{% for message in messages %}{{ message['role'] }}{% endfor %}"
    with pytest.raises(ModelError, match="wrote 0 image placeholders for 1 images"):
        own.prepare(sample(user(pictures[0])))


def test_a_model_without_a_template_is_refused(tiny_model, image_store):
    folder = tiny_model("qwen2")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = None
    with pytest.raises(ModelError, match=r"no chat template; add a chat_template\.jinja"):
        PromptProcessor(tokenizer, config=AutoConfig.from_pretrained(folder), store=image_store, image=ImageConfig())


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen2"])
def test_v19_no_system_line_an_empty_one_and_one_of_its_own_are_three_prompts(prompts, family):
    """Trainer and rollout take these ids; a default line is the template's alone, and an empty one is honoured."""
    own = prompts(family)
    asked = user("12 + 34?")
    ids = {}
    for name, turns in {"none": (), "empty": (turn("system", ""),), "own": (turn("system", "Be brief."),)}.items():
        one = sample(*turns, asked)
        plain = [{"role": message.role, "content": message.text} for message in one.messages]
        render = own.processor.apply_chat_template
        ids[name] = list(own.prepare(one).token_ids)
        assert own.tokenizer.decode(ids[name]) == render(plain, tokenize=False, add_generation_prompt=True)
        assert own.num_tokens(one) == len(ids[name])
        assert list(own.short_ids(one)) == ids[name]
    start = own.tokenizer.decode(ids["empty"])
    assert start.startswith("<|im_start|>system\n<|im_end|>")
    assert "helpful assistant" not in start
    assert "Be brief." in own.tokenizer.decode(ids["own"])
    assert len({tuple(each) for each in ids.values()}) == 3
