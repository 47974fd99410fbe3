"""What is said of pairs that teach nothing, and of held-out rows that were never judged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mmrl.config import RunConfig
from mmrl.data import load_dataset
from mmrl.data.registry import register
from mmrl.errors import DataError
from mmrl.trainer.pair_notes import pair_notes
from mmrl.trainer.run_data import check_data, load_data

PAIR = {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}


def notes(
    folder: Path, train: list[dict[str, str]], held_out: list[dict[str, str]], kind: str = "preference", **more: object
) -> list[str]:
    paths = {name: folder / f"{name}.jsonl" for name in ("train", "eval")}
    for name, rows in (("train", train), ("eval", held_out)):
        paths[name].write_text(
            "".join(json.dumps(row | {"prompt": f"{i}: {row['prompt']}"}) + "\n" for i, row in enumerate(rows))
        )
    plain = {"name": "pairs", "kind": kind, "model": {"path": "m"}, kind: {"batch_size": 2}}
    config = RunConfig.model_validate(plain | {"data": {name: str(path) for name, path in paths.items()}} | more)
    data = load_data(config)
    check_data(config, data)
    return pair_notes(config, data)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))


def test_whole_pairs_are_worth_no_word(tmp_path: Path) -> None:
    assert notes(tmp_path, [PAIR] * 3, [PAIR]) == []


@pytest.mark.parametrize("kind", ["preference", "reward_model"])
def test_a_pair_of_the_same_answer_twice_is_said(tmp_path: Path, kind: str) -> None:
    (note,) = notes(tmp_path, [PAIR, PAIR | {"rejected": "4"}, PAIR], [PAIR], kind)
    assert note.startswith("data.train: 1 of 3 pairs prefer an answer over the same one")
    (note,) = notes(tmp_path, [PAIR] * 2, [PAIR | {"rejected": "4"}], kind)
    assert note.startswith("data.eval: 1 of 1 pairs")
    assert note.endswith(" (eval.jsonl:1)")


def test_a_sample_is_named_by_file_and_row_where_they_are_known(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"first: [0-9a-f]{16} \(train.jsonl:3\)"):
        notes(tmp_path, [PAIR, PAIR, {"prompt": "3 + 3?", "answer": "6"}], [PAIR], "reward_model")
    (again,) = load_dataset(tmp_path / "eval.jsonl").samples
    assert again.place == f"{again.id} (eval.jsonl:1)"
    register("mine", {"train": [again]}, source="here")
    (kept,) = load_dataset("mine").samples
    assert (kept, kept.place) == (again, again.id), "the place is no part of the sample"


def test_held_out_rows_without_a_pair_are_not_left_out_in_silence(tmp_path: Path) -> None:
    (note,) = notes(tmp_path, [PAIR] * 2, [PAIR, {"prompt": "3 + 3?", "answer": "6"}])
    assert "data.eval: 1 of 2 samples were not judged" in note
    assert "left out of evaluation" in note
    assert note.endswith(" (eval.jsonl:2)")
    rewards = {"reward": [{"type": "exact"}]}
    (note,) = notes(tmp_path, [PAIR] * 2, [{"prompt": "3 + 3?", "answer": "6"}], **rewards)
    assert "only answered and graded" in note
