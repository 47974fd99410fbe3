"""Commands that read a run take its address in a store, on a machine that never had it."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from runs_builders import CONFIG, begin_run, group, sample, store_image

from mmrl.cli.app import main
from mmrl.cli.evaluating import settings_of
from mmrl.data.images import ImageStore
from mmrl.runs.checkpoint_refs import resolve_model
from mmrl.runs.layout import checkpoint_dir
from mmrl.runs.mirror import Mirror, local_folder
from mmrl.trainer.checkpoint_folder import seal


@pytest.fixture(params=["file", "memory"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Of a run of two steps with an evaluation and two checkpoints; this process is another machine."""
    address = f"file://{tmp_path}/bucket/digits" if request.param == "file" else f"memory://{uuid.uuid4()}/digits"
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "first"))
    writer = begin_run(local_folder(address), config=CONFIG + "reward: [{type: exact}]\n")
    store = ImageStore(tmp_path / "images")
    prompt = sample(images=[store_image(store)])
    for step in (1, 2):
        writer.metrics(step, {"reward/mean": step / 2})
        writer.samples(step, "eval", [group([("7", 2.0), ("1", 0.0)], prompt=prompt)], store_path=store.path)
        folder = checkpoint_dir(writer.run_dir, step)
        (folder / "model").mkdir(parents=True)
        (folder / "model" / "config.json").write_text("{}")
        (folder / "config.yaml").write_bytes(writer.config_yaml)
        seal(folder, step=step, metrics={"eval/reward": 1.0 / step})
    Mirror(writer.run_dir, address).push()
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "second"))
    return address


def out_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    code = main(list(words))
    told = capsys.readouterr()
    assert code == 0, told.err
    return told.out


def test_samples_of_a_run_in_a_store_are_read_without_its_checkpoints_and_owner(
    capsys: pytest.CaptureFixture[str], address: str
) -> None:
    rows = json.loads(out_of(capsys, "sample", "list", address, "--json"))
    assert [(row["step"], row["split"], row["num_responses"]) for row in rows] == [(1, "eval", 2), (2, "eval", 2)]
    shown = json.loads(out_of(capsys, "sample", "show", address, "--step", "2", "--json"))
    [image] = shown["groups"][0]["images"]
    assert (local_folder(address) / image["path"]).is_file()
    compared = out_of(capsys, "sample", "compare", address, "--steps", "best,last", "--json")
    assert json.loads(compared)["steps"] == [1, 2]
    here = {path.relative_to(local_folder(address)).parts[0] for path in local_folder(address).rglob("*")}
    assert here == {"config.yaml", "attempt-1", "images"}


def test_checkpoints_of_a_run_in_a_store_are_listed_by_addresses_that_commands_take(
    capsys: pytest.CaptureFixture[str], address: str
) -> None:
    rows = json.loads(out_of(capsys, "checkpoint", "list", address, "--json"))
    assert [row["path"] for row in rows] == [f"{address}/checkpoints/step-00000{step}" for step in (1, 2)]
    assert not local_folder(address).exists(), "nothing is fetched"
    assert "step-000002" in out_of(capsys, "checkpoint", "list", address)
    assert main(["checkpoint", "pin", address, "--step", "1"]) == 2
    assert "what is kept there is decided where it trains" in capsys.readouterr().err


def test_the_config_of_a_run_in_a_store_is_shown_and_compared(
    capsys: pytest.CaptureFixture[str], address: str, tmp_path: Path
) -> None:
    values = json.loads(out_of(capsys, "config", "show", address, "seed=3", "--json"))["values"]
    assert {each["key"]: each["value"] for each in values}["seed"] == 3
    other = tmp_path / "other.yaml"
    other.write_text((CONFIG + "reward: [{type: exact}]\n").replace("steps: 4", "steps: 9"))
    assert "train.steps" in out_of(capsys, "config", "diff", address, str(other))


def test_a_checkpoint_in_a_store_is_evaluated_with_the_settings_of_its_run(address: str) -> None:
    settings = settings_of(resolve_model(f"{address}@2"), None, ["seed=4"])
    assert (settings.name, settings.seed, settings.reward[0].type) == ("digits", 4, "exact")


def test_rewards_are_scored_anew_on_a_run_in_a_store(capsys: pytest.CaptureFixture[str], address: str) -> None:
    changed = out_of(capsys, "reward", "rescore", address, "--split", "eval", "--steps", "1", "--json")
    assert json.loads(changed)["steps"] == [1]


@pytest.mark.parametrize("words", [("sample", "list"), ("sample", "show"), ("checkpoint", "list"), ("config", "show")])
def test_an_address_without_a_run_is_told_as_such(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main([*words, f"file://{tmp_path}/nothing"]) == 3
    assert f"{tmp_path}/nothing" in capsys.readouterr().err
