"""A run's checkpoints from training on: kept by rule, evaluated, compared, exported, forked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from learning import run_config
from safetensors.torch import load_file, save_file
from transformers import AutoModelForImageTextToText, AutoProcessor

from mmrl.cli.app import main
from mmrl.config import RunConfig
from mmrl.config.evaluate import EvaluateConfig
from mmrl.config.export import ExportConfig
from mmrl.data.digits import digit_texts
from mmrl.errors import ConfigError, ConflictError, ModelError, NotFoundError
from mmrl.evaluation.comparison import compare_evaluations
from mmrl.evaluation.finding import comparable
from mmrl.models.tiny import build_tiny_qwen2_5_vl
from mmrl.runs.checkpoint_refs import checkpoint_at, resolve_model
from mmrl.runs.progress import make_progress
from mmrl.runs.reader import RunReader
from mmrl.trainer import train
from mmrl.trainer.evaluation_run import run_evaluate
from mmrl.trainer.export import export_checkpoint
from mmrl.trainer.export_run import run_export
from mmrl.trainer.lineage import lineage_of


@pytest.fixture(scope="module")
def config(digits_home: Path) -> Callable[..., RunConfig]:
    def build(**changes: Any) -> RunConfig:
        plain = run_config(digits_home / "base", "digits-which@train", steps=4).model_dump(mode="json")
        plain |= {"name": "lives", "checkpoint": {"every": 1, "keep": 1, "keep_every": 2, "best": "eval/accuracy"}}
        plain["data"]["eval"] = "digits-which@validation"
        plain["rollout"] |= {"prompts_per_step": 4, "max_response_tokens": 6}
        plain["algorithm"]["group_size"] = 4
        plain["eval"] |= {"every": 1, "at_start": True, "max_samples": 12}
        return RunConfig.model_validate(plain | changes)

    return build


@pytest.fixture(scope="module")
def finished(digits_home: Path, config: Callable[..., RunConfig]) -> Path:
    """Four steps with an evaluation and a checkpoint of each."""
    run_dir = digits_home / "runs" / "lives"
    train(config(), run_dir=run_dir, progress=make_progress("quiet"))
    return run_dir


def test_retention_keeps_the_newest_every_second_and_the_best(finished: Path) -> None:
    kept = [point.step for point in RunReader(finished).checkpoints()]
    best = checkpoint_at(finished, "best").step
    assert kept == sorted({2, 4, best})
    assert not list((finished / "checkpoints").glob(".*"))


def test_evaluation_during_training_has_accuracy_with_its_interval(finished: Path) -> None:
    for row in RunReader(finished).metrics(["eval/accuracy", "eval/accuracy_low", "eval/accuracy_high", "eval/exact"]):
        assert row.values["eval/accuracy"] == pytest.approx(row.values["eval/exact"])
        assert row.values["eval/accuracy_low"] <= row.values["eval/accuracy"] <= row.values["eval/accuracy_high"]


def test_a_checkpoint_answers_as_it_did_in_training(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", "evaluate", "lives@4", "--limit", "12", "--save-panel", "twelve", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    (row,) = [row for row in RunReader(finished).metrics(["eval/accuracy"]) if row.step == 4]
    assert told["metrics"]["accuracy"] == row.values["eval/accuracy"]
    assert (told["estimates"]["accuracy"]["method"], told["estimates"]["accuracy"]["num"]) == ("wilson", 12)
    evaluation = comparable(["lives@4"])[0]
    in_training = RunReader(finished).sample_groups(4, "eval")
    for group, then in zip(evaluation.groups(with_tokens=True), in_training, strict=True):
        assert group.prompt_id == then.prompt_id
        assert group.responses[0].token_ids == then.responses[0].token_ids


def test_two_checkpoints_are_compared_on_one_panel(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["checkpoint", "evaluate", "lives@4", "--limit", "12", "--save-panel", "twelve"]) == 0
    assert main(["checkpoint", "evaluate", "lives@2", "--panel", "twelve"]) == 0
    capsys.readouterr()
    assert main(["checkpoint", "compare", "lives@2", "lives@4", "--metric", "accuracy", "--metric", "reward"]) == 0
    shown = capsys.readouterr().out
    assert "lives@4" in shown
    assert "warning" not in shown
    comparison = compare_evaluations(comparable(["lives@2", "lives@4"]))
    assert comparison.flags == ((),)
    assert len(comparison.rows) == 12
    assert comparison.results[0]["accuracy"].num_prompts == 12


def test_an_evaluation_is_a_run_of_its_own_and_tells_what_differs(finished: Path, digits_home: Path) -> None:
    assert main(["checkpoint", "evaluate", "lives@2", "--limit", "12", "--save-panel", "twelve"]) == 0
    text = f"""
name: after
kind: evaluate
model: {{path: {finished}/checkpoints/step-000004, dtype: float32}}
reward: [{{type: exact}}]
eval: {{panel: twelve, against: lives@2}}
"""
    (digits_home / "evaluate.yaml").write_text(text)
    assert main(["train", str(digits_home / "evaluate.yaml"), "--run-dir", str(digits_home / "runs" / "after")]) == 0
    reader = RunReader(digits_home / "runs" / "after")
    (row,) = reader.metrics(["accuracy", "against/p_value", "against/difference"])
    assert row.values["accuracy"] is not None
    assert 0 < row.values["against/p_value"] <= 1
    assert reader.state().state == "succeeded"
    assert len(reader.sample_groups(0, "eval")) == 12


def test_sampled_evaluation_has_pass_at_k_and_a_greedy_answer_beside(finished: Path, digits_home: Path) -> None:
    config = EvaluateConfig.model_validate(
        {
            "name": "sampled",
            "model": {"path": "lives@4", "dtype": "float32"},
            "data": {"eval": "digits-which@validation"},
            "reward": [{"type": "exact"}],
            "rollout": {"max_response_tokens": 6},
            "eval": {"samples_per_prompt": 4, "temperature": 1.0, "greedy": True, "max_samples": 6},
        }
    )
    result = run_evaluate(config, run_dir=digits_home / "runs" / "sampled", progress=make_progress("quiet"))
    assert {"pass@1", "pass@2", "pass@4", "greedy/accuracy"} <= result.metrics.keys()
    assert result.metrics["pass@1"] == pytest.approx(result.metrics["accuracy"])
    assert RunReader(result.run_dir).splits() == ["eval", "eval-greedy"]


def test_samples_of_steps_stand_side_by_side(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sample", "compare", "lives", "--steps", "0,2,best", "--limit", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    best = checkpoint_at(finished, "best").step
    assert told["steps"] == [0, 2, best]
    assert told["num_prompts"] == 12
    assert {step for prompt in told["prompts"] for step in prompt["responses"]} == {"0", "2", str(best)}
    assert main(["sample", "compare", "lives", "--steps", "0,last", "--limit", "1"]) == 0
    assert "step last (4), reward" in capsys.readouterr().out
    assert main(["sample", "compare", "lives", "--steps", "0,9"]) == 3
    assert "has no eval samples of step 9; it has those of 0, 1, 2, 3, 4" in capsys.readouterr().err


def test_c08_an_export_is_loaded_again_by_transformers_and_answers_as_the_checkpoint(
    finished: Path, tmp_path: Path
) -> None:
    out = export_checkpoint(resolve_model("lives@4"), tmp_path / "model")
    model = AutoModelForImageTextToText.from_pretrained(out)
    assert model.num_parameters() > 0
    facts = json.loads((out / "lineage.json").read_text())
    assert (facts["step"], facts["name"]) == (4, "lives")
    assert facts["verified"] == {
        "num_weights": 57,
        "num_prompts": 6,
        "num_answers": 6,
        "sees_images": True,
        "is_reward_model": False,
    }
    assert facts["data"].keys() == {"digits-which@train"}
    card = (out / "README.md").read_text()
    assert card.startswith("---\nlibrary_name: transformers\n")
    assert "Step 4 of the run lives" in card
    assert facts["data"]["digits-which@train"]["content"] in card
    assert resolve_model(str(out)).model == out.resolve()
    with pytest.raises(ConflictError, match="exists and is not empty"):
        export_checkpoint(resolve_model("lives@4"), out)


def test_an_export_whose_run_directory_is_in_a_store_is_recorded_there(finished: Path, tmp_path: Path) -> None:
    plain = {"name": "out", "model": {"path": "lives@4"}, "export": {"compare_answers": False}}
    address = f"file://{tmp_path}/store/out"
    with pytest.raises(ConfigError, match=r"export\.out: the run directory is file://"):
        run_export(ExportConfig.model_validate(plain), run_dir=address, progress=make_progress("quiet"))
    plain["export"] = {"compare_answers": False, "out": str(tmp_path / "model")}
    run_export(ExportConfig.model_validate(plain), run_dir=address, progress=make_progress("quiet"))
    assert (tmp_path / "model" / "model.safetensors").is_file()
    assert (tmp_path / "store" / "out" / "config.yaml").is_file()


def test_an_evaluation_whose_run_directory_is_in_a_store_is_recorded_there(finished: Path, tmp_path: Path) -> None:
    plain = {
        "name": "asked",
        "model": {"path": "lives@4"},
        "data": {"eval": "digits-which@validation"},
        "reward": [{"type": "exact"}],
        "eval": {"max_samples": 2},
    }
    address = f"file://{tmp_path}/store/asked"
    result = run_evaluate(EvaluateConfig.model_validate(plain), run_dir=address, progress=make_progress("quiet"))
    assert "file:" not in str(result.run_dir)
    assert list((tmp_path / "store" / "asked").glob("attempt-1/metrics*"))


def test_c08_weights_of_another_library_version_are_refused(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished / "checkpoints/step-000004/model", tmp_path / "renamed")
    weights = load_file(folder / "model.safetensors")
    weights["model.language_model.norm.scale"] = weights.pop("model.norm.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(
        ModelError, match=r"1 missing \(model.norm.weight\); 1 unknown \(model.language_model.norm.scale\)"
    ):
        export_checkpoint(resolve_model(str(folder)), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_v19_c09_an_export_whose_template_adds_a_system_line_is_refused(finished: Path, tmp_path: Path) -> None:
    from mmrl.runs.checkpoint_refs import ModelRef
    from mmrl.trainer.export_checks import verify

    folder = shutil.copytree(finished / "checkpoints/step-000004/model", tmp_path / "other")
    template = folder / "chat_template.jinja"
    template.write_text("<|im_start|>system\nYou are helpful.<|im_end|>\n" + template.read_text())
    ref = resolve_model("lives@4")
    with pytest.raises(ModelError, match="its chat template or tokenizer is another one"):
        verify(folder, ModelRef(folder), lineage_of(ref), compare_answers=False, say=lambda text: None)


def test_v19_prompts_are_token_identical_in_trainer_and_export_whatever_their_system_line(
    finished: Path, tmp_path: Path, image_store: Any
) -> None:
    """The trainer's ids, the base's and those of the exported folder's own template: none, given and empty system."""
    from mmrl.config.run import ImageConfig
    from mmrl.models.loading import load_prompts
    from mmrl.types import Message, Sample, TextPart

    out = export_checkpoint(resolve_model("lives@2"), tmp_path / "model", compare_answers=False)
    processor = AutoProcessor.from_pretrained(out)
    prompts = load_prompts(str(out), ImageConfig(), store=image_store)
    for system in (None, "Be brief.", ""):
        turns = [("user", "Which digit?")] if system is None else [("system", system), ("user", "Which digit?")]
        sample = Sample("s", tuple(Message(role, (TextPart(text),)) for role, text in turns))  # type: ignore[arg-type]
        plain = [{"role": role, "content": text} for role, text in turns]
        rendered = processor.apply_chat_template(plain, tokenize=False, add_generation_prompt=True)
        assert list(prompts.prepare(sample).token_ids) == processor.tokenizer(rendered)["input_ids"]
        assert rendered.count("<|im_start|>system") == (0 if system is None else 1)


def test_x11_an_index_that_leads_out_of_the_folder_is_not_exported(finished: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(finished / "checkpoints/step-000004/model", tmp_path / "evil")
    index = {"weight_map": {"model.norm.weight": "../other.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="leads out of the model's folder"):
        export_checkpoint(resolve_model(str(folder)), tmp_path / "out")


def test_a_damaged_checkpoint_is_neither_evaluated_nor_served(
    finished: Path, digits_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One bit is enough: weights that nobody trained give numbers too."""
    run_dir = shutil.copytree(finished, digits_home / "runs" / "damaged")
    weights = run_dir / "checkpoints/step-000004/model/model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1000] ^= 1
    weights.write_bytes(data)
    for words in (["checkpoint", "evaluate", "damaged@4", "--limit", "4"], ["serve", "damaged@4", "--port", "0"]):
        assert main(words) == 2
        assert "is damaged: model/model.safetensors does not have the content" in capsys.readouterr().err
    assert main(["checkpoint", "evaluate", "damaged@2", "--limit", "4"]) == 0
    (run_dir / "checkpoints/step-000004/manifest.json").write_text("{}")
    assert main(["checkpoint", "list", "damaged"]) == 0
    assert "step-000004" not in capsys.readouterr().out.partition("step-000002")[2]


def test_an_adapter_alone_is_no_model(tmp_path: Path) -> None:
    from mmrl.config.run import ImageConfig, ModelConfig
    from mmrl.data.images import ImageStore
    from mmrl.models.policy import load_policy

    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match=r"it is an adapter of peft .*`mmrl checkpoint export RUN`, without --adapter"):
        load_policy(ModelConfig(path=str(tmp_path)), ImageConfig(), store=ImageStore())


def test_a_fork_goes_on_with_other_settings_and_says_where_it_comes_from(
    finished: Path, digits_home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_dir = digits_home / "runs" / "fork"
    words = ["--from", "lives@2", "name=fork", "optim.lr=0.0001", "seed=7", "data.train=digits-which@validation"]
    assert main(["train", "--run-dir", str(run_dir), *words]) == 0
    told = capsys.readouterr().err
    assert "optim.lr: 0.001 -> 0.0001" in told
    reader = RunReader(run_dir)
    assert [row.step for row in reader.metrics(["reward/mean"])] == [3, 4]
    fork = json.loads((run_dir / "fork.json").read_text())
    assert (fork["run"], fork["step"]) == (str(finished), 2)
    assert fork["changes"]["optim.lr"] == [0.001, 0.0001]
    said = [event.fields["message"] for event in reader.events() if event.kind == "progress"]
    assert any("the data is taken from its begin" in text for text in said)
    assert lineage_of(resolve_model("fork@4")).forked_from["step"] == 2
    # A fork that was stopped before its first checkpoint goes on from where it began, and not from the base model.
    for folder in (run_dir / "checkpoints").iterdir():
        shutil.rmtree(folder)
    assert main(["train", str(run_dir), "--run-dir", str(run_dir)]) == 0
    again = [event.fields["message"] for event in reader.events() if event.attempt == 2 and event.kind == "progress"]
    assert any("goes on from the checkpoint of step 2" in text for text in again)


def test_a_fork_of_another_model_is_refused_with_what_to_do(
    finished: Path, digits_home: Path, config: Callable[..., RunConfig]
) -> None:
    other = build_tiny_qwen2_5_vl(digits_home / "other", sentences=digit_texts(), seed=1)
    changed = config(model={"path": str(other), "dtype": "float32"})
    point = finished / "checkpoints/step-000002"
    with pytest.raises(ConflictError, match=r"cannot be forked with this config: model.path is .*set model.path: "):
        train(changed, run_dir=digits_home / "runs" / "refused", resume=point, progress=make_progress("quiet"))
    assert main(["train", "--run-dir", str(digits_home / "runs/x"), "--from", str(digits_home / "base")]) == 2
    with pytest.raises(NotFoundError, match="it has those of"):
        resolve_model("lives@77")


def test_a_run_without_room_for_a_checkpoint_is_refused_with_both_numbers(
    finished: Path, digits_home: Path, config: Callable[..., RunConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    from mmrl.errors import RunFailedError
    from mmrl.trainer import disk_room

    monkeypatch.setattr(disk_room, "free_bytes", lambda path: 1000)
    with pytest.raises(
        RunFailedError, match=r"one of this run takes about [\d.]+ MiB .* and 0.0 MiB \(1000 bytes\) are"
    ):
        train(config(), run_dir=digits_home / "runs" / "full", progress=make_progress("quiet"))
