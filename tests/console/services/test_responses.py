"""Groups of a run's samples: which fit a filter, and what is told of each token."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from homes import Home

from console.components.all_steps import shown_of
from console.services.group_filter import GroupFilter, disagreements
from console.services.responses import Responses
from console.services.token_words import cells, quantities_of, tokenizer_of
from mmrl.errors import DataError, NotFoundError
from mmrl.jobs.database import Database
from mmrl.jobs.jobs import Jobs
from mmrl.jobs.records import Job
from mmrl.models.tiny_tokenizer import train_tokenizer
from mmrl.runs.records import GroupRecord, ResponseRecord, TokenRecord
from mmrl.types import Message, RewardPart, TextPart

Homes = Callable[[str], Home]


def _job(home: Home, name: str) -> Job:
    with home.active(), Database.open() as database:
        return Jobs(database).get(home.jobs[name])


def _response(*values: float | None, text: str = "an answer", finish: str = "stop") -> ResponseRecord:
    parts = tuple(RewardPart(name, value, 1.0) for name, value in zip("ab", values, strict=False))
    reward = None if None in values else sum(value for value in values if value is not None)
    return ResponseRecord(0, 0, 0, reward, parts, None, 3, finish, 1, text=text)  # type: ignore[arg-type]


def _group(*responses: ResponseRecord) -> GroupRecord:
    prompt = (Message("user", (TextPart("Which colour?"),)),)
    return GroupRecord(1, "train", 10, 0, "p", None, None, "all", 1.0, responses, prompt=prompt, answer="red")


@pytest.mark.parametrize(
    ("only", "fitting", "other"),
    [
        ("truncated", _group(_response(1.0, finish="length")), _group(_response(1.0))),
        ("no-spread", _group(_response(1.0), _response(1.0)), _group(_response(1.0), _response(0.0))),
        ("failed", _group(_response(None)), _group(_response(0.0))),
        ("mixed", _group(_response(1.0), _response(0.0)), _group(_response(1.0), _response(1.0))),
        (
            "disagree",
            _group(_response(1.0, 0.0), _response(0.0, 1.0)),
            _group(_response(1.0, 0.0), _response(0.0, 0.0)),
        ),
    ],
)
def test_groups_are_asked_for_by_what_is_odd_about_them(only: str, fitting: GroupRecord, other: GroupRecord) -> None:
    assert GroupFilter(only=only).fits(fitting)
    assert not GroupFilter(only=only).fits(other)


def test_a_card_of_all_steps_shows_the_response_that_was_asked_for() -> None:
    best, cut, found = _response(1.0), _response(0.0, finish="length"), _response(0.5, text="it is RED")
    group = _group(*(replace(each, sample_idx=idx) for idx, each in enumerate((best, _response(0.7), cut, found))))

    def shown(wanted: GroupFilter) -> list[int]:
        return [each.sample_idx for each in shown_of(group, wanted)]

    assert shown(GroupFilter()) == [0, 1]
    assert shown(GroupFilter(only="truncated")) == [2, 0]
    assert shown(GroupFilter(find="red", only="truncated")) == [3, 2]


def test_parts_disagree_where_each_likes_best_what_the_other_does_not() -> None:
    assert disagreements(_group(_response(1.0, 0.2), _response(0.5, 0.4))) == [("a", "b")]
    assert disagreements(_group(_response(1.0, 0.2), _response(1.0, 0.4), _response(None, 0.0))) == []


def test_responses_are_ordered_by_number_with_missing_rewards_last() -> None:
    group = _group(
        *(replace(_response(reward), sample_idx=index) for index, reward in enumerate((9.0, None, 10.0, -1.0)))
    )
    assert [response.reward for response in group.by_reward] == [10.0, 9.0, -1.0, None]


def test_text_is_found_in_prompt_answer_and_responses_whatever_its_case() -> None:
    group = _group(_response(1.0, text="It is GREEN"))
    assert [GroupFilter(find=text).fits(group) for text in ("green", "COLOUR", "Red", "blue")] == [
        True,
        True,
        True,
        False,
    ]


def test_a_range_is_asked_of_one_part_or_of_the_whole_reward() -> None:
    group = _group(_response(0.2, 0.9), _response(0.4, 0.1))
    assert GroupFilter(part="a", low=0.3, high=0.5).fits(group)
    assert not GroupFilter(part="a", low=0.5).fits(group)
    assert GroupFilter(part="total", low=1.1).fits(group)
    assert not GroupFilter(part="c", low=0.0).fits(group), "a part that nobody has"


def test_a_filter_survives_the_address_and_nonsense_in_it_does_no_harm() -> None:
    wanted = GroupFilter(find="red", only="truncated", part="a", low=0.0, high=0.5)
    assert GroupFilter.of_address(wanted.address()) == wanted
    for low in ("much", "nan", "-inf", "1e999"):
        assert GroupFilter.of_address({"only": "everything", "low": low}) == GroupFilter()


def test_steps_groups_and_images_come_from_the_run_directory(shared_home: Homes) -> None:
    job = _job(shared_home("small"), "running")
    responses = Responses(job)
    steps = responses.steps()
    assert next(iter(steps)) == "train"
    assert steps["train"] == [10, 20, 30, 40, 50, 60]
    found = responses.groups("train", 60, GroupFilter())
    assert (found.num_all, found.parts) == (2, ("exact", "format"))
    group = responses.group("train", 60, 0)
    assert group is not None
    assert responses.image(group.images[0].sha256) is not None
    assert [each.step for each in responses.history("train", group.prompt_id)] == steps["train"]
    assert responses.group("train", 60, 99) is None
    with pytest.raises(NotFoundError, match="step 7"):
        responses.groups("train", 7, GroupFilter())


def test_a_damaged_shard_and_a_run_that_lies_elsewhere_are_told(fresh_home: Homes) -> None:
    job = _job(fresh_home("small"), "running")
    for shard in Path(job.run_dir).rglob("*.parquet"):
        shard.write_bytes(shard.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"train-000060\.parquet cannot be read"):
        Responses(job).groups("train", 60, GroupFilter())
    with pytest.raises(DataError, match="not on this machine"):
        Responses(replace(job, run_dir="s3://bucket/run"))


def test_what_was_not_computed_of_a_token_is_absent_and_never_zero() -> None:
    bare = replace(_response(1.0), token_ids=(5, 6), response_mask=(1, 0))
    assert quantities_of(bare) == []
    assert [(cell.text, cell.value, cell.is_sampled) for cell in cells(bare, "entropy", None)] == [
        ("[5]", None, True),
        ("[6]", None, False),
    ]


def test_ratio_and_kl_are_those_of_trainer_sampler_and_reference() -> None:
    """By hand: exp(−0.5 + 0.7) and −0.5 + 1.5; without the trainer's, the sampler's stands for them."""
    tokens = TokenRecord(actor_logprobs=(-0.5,), reference_logprobs=(-1.5,))
    full = replace(_response(1.0), token_ids=(5,), response_mask=(1,), logprobs=(-0.7,), tokens=tokens)
    assert quantities_of(full) == ["logprob", "ratio", "kl"]
    assert cells(full, "ratio", None)[0].value == pytest.approx(math.exp(0.2))
    assert cells(full, "kl", None)[0].value == pytest.approx(1.0)
    assert cells(full, "kl", None)[0].shade == pytest.approx(0.5)
    sampled = replace(full, tokens=replace(tokens, actor_logprobs=None))
    assert cells(sampled, "kl", None)[0].value == pytest.approx(0.8)
    assert "ratio" not in quantities_of(sampled)


def test_tokens_are_spelt_by_the_runs_own_tokenizer(fresh_home: Homes, tmp_path: Path) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    job = _job(fresh_home("small"), "running")
    assert tokenizer_of(replace(job, config={"model": {"path": str(tmp_path)}})) is None
    model = Path(job.run_dir) / "checkpoints" / "step-000060" / "model"
    model.mkdir(parents=True, exist_ok=True)
    Tokenizer(WordLevel({"red": 5, "blue": 6, "?": 0}, unk_token="?")).save(str(model / "tokenizer.json"))
    spelt = cells(replace(_response(1.0), token_ids=(6, 5)), "logprob", tokenizer_of(job))
    assert [cell.text for cell in spelt] == ["blue", "red"]


@pytest.mark.parametrize("text", ["答え is 水, مرحبا", "👩‍🔬🎉ok", "plain \n text"])
def test_a_character_that_takes_several_tokens_is_spelt_whole(text: str) -> None:
    tokenizer = train_tokenizer().backend_tokenizer
    ids = tuple(tokenizer.encode(text).ids)
    logprobs = tuple(-float(place) for place in range(len(ids)))
    found = cells(replace(_response(1.0), token_ids=ids, response_mask=None, logprobs=logprobs), "logprob", tokenizer)
    assert "".join(cell.text for cell in found) == text
    assert not any("\ufffd" in cell.text for cell in found)
    assert sum(cell.num_tokens for cell in found) == len(ids)
    assert sum((cell.value or 0.0) * cell.num_tokens for cell in found) == pytest.approx(sum(logprobs))


def test_bytes_that_never_become_a_character_take_no_other_token_with_them() -> None:
    tokenizer = train_tokenizer().backend_tokenizer
    first, *_ = tokenizer.encode("水").ids
    ids = (first, *tokenizer.encode("a").ids, first)
    found = cells(
        replace(_response(1.0), token_ids=ids, response_mask=None, logprobs=(-1.0,) * 3), "logprob", tokenizer
    )
    assert [(cell.text, cell.num_tokens) for cell in found] == [("\ufffd", 1), ("a", 1), ("\ufffd", 1)]
    ids, mask = tuple(tokenizer.encode("水").ids), (1, 0, 0)
    found = cells(
        replace(_response(1.0), token_ids=ids, response_mask=mask, logprobs=(-1.0,) * 3), "logprob", tokenizer
    )
    assert [(cell.is_sampled, cell.num_tokens) for cell in found] == [(True, 1), (False, 2)]
