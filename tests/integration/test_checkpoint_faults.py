"""A disk that fills up, files that are spoilt, a model that changes: the last good checkpoint is found and said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from killing import FULL_DISK, small_config
from safetensors.torch import load_file, save_file

from mmrl.cli.app import main
from mmrl.config import dump_yaml
from mmrl.errors import ConflictError, DataError, ModelError, NotFoundError, RunFailedError
from mmrl.runs.progress import make_progress
from mmrl.runs.reader import RunReader
from mmrl.trainer import train
from mmrl.trainer.checkpoint_folder import find_fault
from mmrl.trainer.resume import newest_whole_checkpoint, settle


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("faults")
    (folder / "full.py").write_text(FULL_DISK)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        yield folder


@pytest.fixture(scope="module")
def finished(home: Path) -> Path:
    """Six steps with checkpoints of 2, 4 and 6; not to be changed."""
    return run(home, "finished", steps=6)


@pytest.fixture
def copied(finished: Path, tmp_path: Path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def run(
    home: Path, name: str, *, steps: int, run_dir: Path | None = None, resume: str = "auto", **more: object
) -> Path:
    config = small_config(home, steps=steps, **{"checkpoint": {"every": 2, "keep": 3}, **more})
    return train(config, run_dir=run_dir or home / name, resume=resume, progress=make_progress("quiet")).run_dir


def full_disk(home: Path, first: int, last: int) -> dict[str, object]:
    limits = {"first": first, "last": last}
    return {"stages": [{"after": "rollout", "path": str(home / "full.py"), "name": "FullDisk", "arguments": limits}]}


def messages(run_dir: Path, kind: str) -> list[str]:
    return [event.fields.get("message", "") for event in RunReader(run_dir).events() if event.kind == kind]


def test_a_disk_that_is_full_while_saving_stops_nothing_and_the_next_checkpoint_is_whole(home: Path) -> None:
    run_dir = run(home, "full", steps=6, **full_disk(home, 4, 5))

    names = sorted(path.name for path in (run_dir / "checkpoints").iterdir())
    assert names == ["step-000002", "step-000006"], "nothing half-written stays, nothing good goes"
    (warning,) = (text for text in messages(run_dir, "warning") if not text.startswith("preflight"))
    assert warning.startswith("the checkpoint of step 4 could not be written: ")
    assert "large" in warning
    assert "the run goes on" in warning
    rows = {row.step: row.values for row in RunReader(run_dir).metrics()}
    assert rows[4]["checkpoint/num_failed"] == 1.0
    assert "checkpoint/num_failed" not in rows[6]


def test_a_disk_that_is_full_at_the_end_fails_the_run_and_names_the_last_good_checkpoint(home: Path) -> None:
    expected = r"last checkpoint could not be written: .*the last good one is step-000002"
    with pytest.raises(RunFailedError, match=expected):
        run(home, "full-at-end", steps=4, **full_disk(home, 4, 4))
    state = RunReader(home / "full-at-end").state()
    assert (state.state, "step-000002" in (state.failure or "")) == ("failed", True)

    run(home, "full-at-end", steps=4, **full_disk(home, 9, 9))
    assert find_fault(home / "full-at-end" / "checkpoints" / "step-000004") is None


def truncate(folder: Path) -> None:
    shard = folder / "model" / "model.safetensors"
    shard.write_bytes(shard.read_bytes()[:-100])


def flip(folder: Path) -> None:
    shard = folder / "trainer.pt"
    content = bytearray(shard.read_bytes())
    content[len(content) // 2] ^= 1
    shard.write_bytes(bytes(content))


SPOILERS: dict[str, Callable[[Path], object]] = {
    "a truncated shard": truncate,
    "a zero-byte shard": lambda folder: (folder / "model" / "model.safetensors").write_bytes(b""),
    "a removed manifest": lambda folder: (folder / "manifest.json").unlink(),
    "a flipped byte": flip,
    "a removed file": lambda folder: (folder / "state.json").unlink(),
    "a leftover": lambda folder: folder.rename(folder.with_name(".step-000006.1.tmp")),
}


@pytest.mark.parametrize("spoiler", SPOILERS)
def test_c02_a_spoilt_newest_checkpoint_is_said_and_the_last_good_one_found(copied: Path, spoiler: str) -> None:
    root, said = copied / "checkpoints", []
    SPOILERS[spoiler](root / "step-000006")

    point = newest_whole_checkpoint(copied, say=said.append)
    settle(copied, point, attempt=2, say=lambda text: None)

    assert point is not None
    assert point.step == 4
    if spoiler != "a leftover":
        assert [text.partition(":")[0] for text in said] == ["checkpoint step-000006 is passed over"]
        assert (root / ".left-by-attempt-2-step-000006").is_dir(), "what is damaged is kept aside"
    assert {path.name for path in root.glob("step-*")} == {"step-000002", "step-000004"}
    assert not list(root.glob(".step-*.tmp"))


def test_c02_a_run_with_a_truncated_shard_goes_on_from_the_checkpoint_before(home: Path, copied: Path) -> None:
    truncate(copied / "checkpoints" / "step-000006")

    run(home, "", steps=6, run_dir=copied)

    warning = next(text for text in messages(copied, "warning") if "passed over" in text)
    assert warning.startswith("checkpoint step-000006 is passed over: model/model.safetensors has ")
    assert any("goes on from the checkpoint of step 4 as attempt 2" in text for text in messages(copied, "progress"))
    assert find_fault(copied / "checkpoints" / "step-000006") is None
    assert [(row.step, row.attempt) for row in RunReader(copied).metrics()][3:] == [(4, 1), (5, 2), (6, 2)]


def test_c10_resume_with_nothing_saved_starts_fresh_and_says_so(home: Path) -> None:
    run_dir, stage = home / "nothing-saved", home / "boom.py"
    stage.write_text("class Boom:\n    def __call__(self, groups, context):\n        raise ValueError('boom')\n")
    with pytest.raises(RunFailedError, match="boom"):
        run(home, "nothing-saved", steps=2, stages=[{"after": "reward", "path": str(stage), "name": "Boom"}])
    run(home, "nothing-saved", steps=2)
    first, second = (m for m in messages(run_dir, "progress") if "starts fresh" in m)
    assert first.endswith("(attempt 1)")
    assert second.endswith("no whole checkpoint is there (attempt 2)")
    assert [row.step for row in RunReader(run_dir).metrics()] == [1, 2]


def test_c06_a_state_saved_at_the_end_of_an_epoch_does_not_swallow_the_next_one(home: Path) -> None:
    """22 samples, 11 a step: saved after every epoch, resumed once; each epoch has each prompt once."""
    rollout = {"prompts_per_step": 11, "max_response_tokens": 4}
    settings = {"rollout": rollout, "algorithm": {"type": "grpo", "group_size": 2}}
    run(home, "epochs", steps=4, train={"steps": 4}, **settings)
    run_dir = run(home, "epochs", steps=8, train={"steps": 8}, **settings)
    reader = RunReader(run_dir)
    prompts = [g.prompt_id for step in reader.steps("train") for g in reader.sample_groups(step, "train")]
    epochs = [prompts[first : first + 22] for first in range(0, 88, 22)]
    assert len(prompts) == 88
    assert all(len(set(epoch)) == 22 for epoch in epochs)


def test_a_run_goes_on_from_a_named_checkpoint_and_keeps_the_later_ones_aside(home: Path, copied: Path) -> None:
    root = copied / "checkpoints"
    run(home, "", steps=6, run_dir=copied, resume=str(root / "step-000002"))
    assert {path.name for path in root.iterdir()} == {
        *(f"step-{step:06d}" for step in (2, 4, 6)),
        *(f".left-by-attempt-2-step-{step:06d}" for step in (4, 6)),
    }
    rows = RunReader(copied).metrics()
    assert [(row.step, row.attempt) for row in rows] == [(1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 2)]


def test_a_new_run_may_begin_at_the_checkpoint_of_another(home: Path, finished: Path) -> None:
    point = finished / "checkpoints" / "step-000004"
    fork = run(home, "fork", steps=6, resume=str(point))
    assert [row.step for row in RunReader(fork).metrics()] == [5, 6]
    ours, theirs = (load_file(f / "checkpoints/step-000006/model/model.safetensors") for f in (fork, finished))
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name], rtol=1e-12, atol=1e-12)
    with pytest.raises(ConflictError, match="checkpoint of another run"):
        run(home, "fork", steps=6, resume=str(point))


def test_a_checkpoint_that_cannot_be_resumed_from_is_refused(
    home: Path, copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truncate(copied / "checkpoints" / "step-000006")
    with pytest.raises(DataError, match=r"model.safetensors has \d+ bytes .*newest whole one is .*step-000004"):
        run(home, "", steps=6, run_dir=copied, resume=str(copied / "checkpoints" / "step-000006"))
    with pytest.raises(NotFoundError, match=r"those of step 2, 4, 6"):
        run(home, "", steps=6, run_dir=copied, resume="newest")
    config = home / "refused.yaml"
    config.write_text(dump_yaml(small_config(home, steps=6)))
    assert main(["train", str(config), "--run-dir", str(copied), "--resume", "never"]) == 5
    assert "holds a run already" in capsys.readouterr().err
    assert len(RunReader(copied).attempts()) == 1, "a refused start is no attempt"


def test_c05_a_model_that_changed_behind_its_path_is_refused(home: Path, tmp_path: Path) -> None:
    small_config(home, steps=1)
    model = shutil.copytree(home / "model", tmp_path / "model")
    settings = {"model": {"path": str(model), "dtype": "float32"}}
    run_dir = run(home, "", steps=2, run_dir=tmp_path / "run", **settings)

    def refused(reason: str) -> None:
        with pytest.raises(ModelError, match=f"is not the model that this run began with: it{reason}"):
            run(home, "", steps=4, run_dir=run_dir, **settings)

    weights = load_file(model / "model.safetensors")
    weights["lm_head.weight"][0, 0] += 1
    save_file(weights, model / "model.safetensors", metadata={"format": "pt"})
    refused(" has other content in model.safetensors")
    config = json.loads((model / "config.json").read_text())
    config["text_config"]["vocab_size"] += 8
    (model / "config.json").write_text(json.dumps(config))
    refused(r"s vocabulary has \d+ rows and had \d+")
    assert [row.step for row in RunReader(run_dir).metrics()] == [1, 2], "a refused attempt takes no one's place"


def test_samples_hold_the_logprobs_of_actor_and_reference_where_these_were_computed(finished: Path) -> None:
    """Two mini-batches and a KL term: both passes run. The sampler's own logprobs are the actor's."""
    (group, *_) = RunReader(finished).sample_groups(3, "train")
    for response in group.responses:
        assert response.logprobs == pytest.approx(response.tokens.actor_logprobs, abs=1e-5)
        assert response.tokens.reference_logprobs is not None
        assert len(response.tokens.reference_logprobs) == response.length
        assert response.tokens.reference_logprobs != response.tokens.actor_logprobs
        assert response.tokens.entropy is None
