"""`mmrl sample list|show`: JSON shapes, order, narrow terminals, inert text, errors."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runs_builders import begin_run, group, sample, store_image

from mmrl.cli.app import main
from mmrl.data.images import ImageStore
from mmrl.types import ImageRef

EVIL = "\x1b]0;owned\x07\x1b[2J [red]not markup[/red] :smile: \u202ereversed \x9b2J 数字"


@pytest.fixture
def image(tmp_path: Path) -> ImageRef:
    return store_image(ImageStore(tmp_path / "store"))


@pytest.fixture
def run_dir(tmp_path: Path, image: ImageRef) -> Path:
    """Steps 0 (eval) and 2 (train, of seven groups; the first has an image, evil text and a failed reward)."""
    folder = tmp_path / "run"
    store = ImageStore(tmp_path / "store")
    writer = begin_run(folder)
    writer.samples(0, "eval", [group([("It is 7.", 1.0)])], store_path=store.path)
    first = group(
        [("a wrong one", 0.0), (EVIL, 2.0), ("failed", None)],
        prompt=sample("Which digit is shown in this image, which is rather small?", images=[image]),
        advantages=(-0.7071, 0.7071, None),
    )
    others = [group([("x", float(number)), ("y", 0.0)], prompt=sample(f"p{number}")) for number in range(1, 7)]
    writer.samples(2, "train", [first, *others], store_path=store.path)
    return folder


def call(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["sample", *words])
    output = capsys.readouterr()
    return code, output.out, output.err


def call_json(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    code, out, err = call(capsys, *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


def in_terminal(*words: str, columns: int) -> str:
    """What the command writes to a terminal of that width."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": str(columns), "LINES": "40", "TERM": "xterm-256color"}
    environment.pop("NO_COLOR", None)
    script = "import sys; from mmrl.cli.app import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "sample", *words], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    output = b""
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            break
        if not piece:
            break
        output += piece
    os.close(ours)
    assert process.wait() == 0, output
    return output.decode()


def test_list_gives_a_row_for_each_split_and_step(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    rows = call_json(capsys, "list", str(run_dir))
    assert [(row["split"], row["step"], row["num_groups"], row["num_responses"]) for row in rows] == [
        ("eval", 0, 1, 1),
        ("train", 2, 7, 15),
    ]
    assert set(rows[1]) == {
        "split",
        "step",
        "attempt",
        "num_groups",
        "num_responses",
        "num_full",
        "num_missing",
        "num_truncated",
        "reward_mean",
        "reward_std",
        "length_mean",
    }
    assert rows[1]["num_missing"] == 1
    assert rows[1]["reward_mean"] == pytest.approx(23 / 14)
    assert [row["split"] for row in call_json(capsys, "list", str(run_dir), "--split", "eval")] == ["eval"]


def test_list_of_a_step_gives_its_groups(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    rows = call_json(capsys, "list", str(run_dir), "--step", "2")
    assert [row["group_id"] for row in rows] == list(range(7))
    assert rows[0]["rewards"] == [2.0, 0.0, None]
    assert (rows[3]["reward_mean"], rows[3]["num_responses"], rows[3]["kept_because"]) == (1.5, 2, "all")
    code, out, _ = call(capsys, "list", str(run_dir), "--step", "2")
    assert code == 0
    assert len(out.splitlines()) == 8


def test_show_as_json_holds_prompt_images_and_responses_by_reward(
    capsys: pytest.CaptureFixture[str], run_dir: Path, image: ImageRef
) -> None:
    shown = call_json(capsys, "show", str(run_dir), "--step", "2")
    assert {key: shown[key] for key in ("split", "step", "attempt", "num_groups")} == {
        "split": "train",
        "step": 2,
        "attempt": 1,
        "num_groups": 7,
    }
    assert len(shown["groups"]) == 7
    first = shown["groups"][0]
    assert first["images"] == [
        {
            "sha256": image.sha256,
            "width": 12,
            "height": 8,
            "path": f"images/{image.sha256[:2]}/{image.sha256}.png",
        }
    ]
    assert (Path(shown["run_dir"]) / first["images"][0]["path"]).is_file()
    assert [part["type"] for part in first["prompt"][0]["content"]] == ["image", "text"]
    assert (first["answer"], first["reward_mean"]) == ("7", 1.0)
    assert [(row["sample_idx"], row["reward"], row["advantage"]) for row in first["responses"]] == [
        (1, 2.0, 0.7071),
        (0, 0.0, -0.7071),
        (2, None, None),
    ]
    best = first["responses"][0]
    assert best["text"] == EVIL
    assert best["parts"][0]["extracted"] == EVIL
    assert (best["finish_reason"], best["length"]) == ("stop", 3)
    assert first["responses"][2]["parts"][0]["error"] == "no answer found"
    assert "token_ids" not in best


def test_json_escapes_what_a_terminal_might_obey(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    _, out, _ = call(capsys, "show", str(run_dir), "--step", "2", "--group", "0", "--json")
    assert all(character.isprintable() or character == "\n" for character in out)
    assert r":smile: \u202ereversed \u009b2J 数字" in out


def test_tokens_come_when_asked_for(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    shown = call_json(capsys, "show", str(run_dir), "--step", "2", "--group", "1", "--tokens")
    (only,) = shown["groups"]
    assert only["group_id"] == 1
    assert only["responses"][0]["token_ids"] == [10, 11, 12]
    assert only["responses"][0]["logprobs"] == [0.0, -0.5, -1.0]
    assert only["responses"][0]["entropy"] is None


def test_show_as_text_puts_the_best_response_first(
    capsys: pytest.CaptureFixture[str], run_dir: Path, image: ImageRef
) -> None:
    code, out, err = call(capsys, "show", str(run_dir), "--step", "2", "--group", "0")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "step 2, train, attempt 1, 7 groups"
    assert "group 0: mean reward 1.000, std 1.414" in lines
    assert f"image {image.sha256[:12]}, 12x8" in lines
    assert f"  images/{image.sha256[:2]}/{image.sha256}.png" in lines
    assert "answer: 7" in lines
    heads = [line for line in lines if line.startswith("  #")]
    assert heads == [
        "  #1  reward 2.000, advantage +0.707, 3 tokens, stop",
        "  #0  reward 0.000, advantage -0.707, 3 tokens, stop",
        "  #2  reward missing, 3 tokens, stop",
    ]
    assert "    exact 0.000 (weight 2), read as 'a wrong one': equal" in lines
    assert "    exact missing (weight 2), failed: no answer found" in lines


def test_text_of_the_model_is_printed_inert(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    """X06, in a terminal."""
    _, out, _ = call(capsys, "show", str(run_dir), "--step", "2", "--group", "0")
    assert r"    \x1b]0;owned\x07\x1b[2J [red]not markup[/red] :smile: \u202ereversed \x9b2J 数字" in out.splitlines()
    assert "\x1b" not in out, "no colour where stdout is no terminal"


def test_show_stops_after_a_few_groups_and_says_how_many_there_are(
    capsys: pytest.CaptureFixture[str], run_dir: Path
) -> None:
    _, out, err = call(capsys, "show", str(run_dir), "--step", "2")
    assert out.count("mean reward") == 5
    assert "5 of 7 groups" in err
    _, out, err = call(capsys, "show", str(run_dir), "--step", "2", "--limit", "7")
    assert (out.count("mean reward"), err) == (7, "")
    assert len(call_json(capsys, "show", str(run_dir), "--step", "2", "--limit", "2")["groups"]) == 2


def test_show_without_a_step_takes_the_last_one(capsys: pytest.CaptureFixture[str], run_dir: Path) -> None:
    assert call_json(capsys, "show", str(run_dir))["step"] == 2
    assert call_json(capsys, "show", str(run_dir), "--split", "eval")["step"] == 0
    assert call_json(capsys, "show", str(run_dir), "--step", "0")["split"] == "eval"


def test_show_fits_a_narrow_terminal_and_is_coloured_there(run_dir: Path, image: ImageRef) -> None:
    output = in_terminal("show", str(run_dir), "--step", "2", "--group", "0", columns=60)
    assert "\x1b[" in output
    for code in ("\x1b]0;", "\x1b[2J", "\u202e"):
        assert code not in output, "only our own colours reach the terminal"
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in output.replace("\r", "").split("\n")]
    assert all(len(line) <= 60 for line in lines if "images/" not in line), lines
    assert f"  images/{image.sha256[:2]}/{image.sha256}.png" in lines, "a path is never broken"
    assert "  #1  reward 2.000, advantage +0.707, 3 tokens, stop" in lines


def test_list_fits_a_narrow_terminal(run_dir: Path) -> None:
    lines = in_terminal("list", str(run_dir), "--step", "2", columns=60).replace("\r", "").split("\n")
    assert all(len(line) <= 60 for line in lines), lines


def test_a_run_is_named_by_its_folder_under_home(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    begin_run(tmp_path / "runs" / "digits")
    assert call_json(capsys, "list", "digits") == []
    code, out, err = call(capsys, "list", "digits")
    assert (code, out) == (0, "")
    assert "no samples were kept yet" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["show", "{run}", "--step", "9"], "no samples of step 9; nearest: 0, 2"),
        (["show", "{run}", "--step", "2", "--split", "eval"], "no eval samples of step 2, but train samples of it"),
        (["show", "{run}", "--step", "2", "--group", "7"], "step 2 has no group 7; its train groups are 0 to 6"),
        (["list", "{run}-x"], "neither as a path nor under"),
        (["show", "{run}/checkpoints"], "is not a run: it holds no attempt-1 folder"),
    ],
)
def test_what_is_not_there_is_one_message_and_exit_code_3(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str], run_dir: Path
) -> None:
    code, out, err = call(capsys, *(word.format(run=run_dir) for word in words))
    assert (code, out) == (3, "")
    assert message in err.replace("\n", " ")
    assert "Traceback" not in err
