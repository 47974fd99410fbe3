"""Configs of verl and EasyR1 as ours: what goes over, what is said of the rest, and that the result loads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from mmrl.cli.app import app
from mmrl.config import RunConfig
from mmrl.config.importing import ImportedConfig, import_config
from mmrl.errors import ConfigError, NotFoundError

EASYR1 = """
data:
  train_files: hiyouga/geometry3k@train
  val_files: hiyouga/geometry3k@test
  prompt_key: problem
  answer_key: solution
  image_key: images
  video_key: videos
  image_dir: null
  max_prompt_length: 2048
  max_response_length: 1024
  rollout_batch_size: 512
  val_batch_size: 1024
  format_prompt: ./examples/format_prompt/math.jinja
  shuffle: true
  seed: 7
  min_pixels: 262144
  max_pixels: 4194304
  filter_overlong_prompts: true
algorithm:
  adv_estimator: grpo
  disable_kl: false
  use_kl_loss: true
  kl_penalty: low_var_kl
  kl_coef: 1.0e-2
  online_filtering: false
  filter_key: overall
worker:
  actor:
    global_batch_size: 128
    micro_batch_size_per_device_for_update: 4
    max_grad_norm: 1.0
    model:
      model_path: Qwen/Qwen2.5-VL-7B-Instruct
      freeze_vision_tower: true
    optim: {lr: 1.0e-6, weight_decay: 1.0e-2, strategy: adamw_bf16, lr_warmup_ratio: 0.1}
    fsdp: {enable_full_shard: true, torch_dtype: null}
    offload: {offload_params: true}
  rollout:
    n: 5
    temperature: 1.0
    top_p: 0.99
    gpu_memory_utilization: 0.6
    limit_images: 4
    val_override_config: {temperature: 0.5, n: 1}
  reward:
    reward_type: batch
    reward_function: ./examples/reward_function/math.py:compute_score
trainer:
  total_epochs: 15
  max_steps: 60
  project_name: easy_r1
  experiment_name: qwen2_5_vl_7b_geo_grpo
  logger: [console, wandb, mlflow]
  n_gpus_per_node: 8
  val_freq: 5
  val_before_train: true
  save_freq: -1
  save_limit: 3
"""

VERL = """
hydra: {searchpath: [a]}
defaults: [ppo_trainer]
data:
  train_files: [~/data/geo3k/train.parquet]
  val_files: ~/data/geo3k/test.parquet
  prompt_key: prompt
  image_key: images
  max_prompt_length: 1024
  max_response_length: 2048
  train_batch_size: 512
  filter_overlong_prompts: true
  truncation: error
actor_rollout_ref:
  model: {path: Qwen/Qwen2.5-VL-7B-Instruct, use_remove_padding: true, lora_rank: 32}
  actor:
    ppo_mini_batch_size: 128
    ppo_max_token_len_per_gpu: 24576
    clip_ratio: 0.2
    clip_ratio_high: 0.28
    use_kl_loss: true
    kl_loss_coef: 0.01
    kl_loss_type: low_var_kl
    loss_agg_mode: token-mean
    optim: {lr: 1e-6, lr_warmup_steps: 10, lr_scheduler_type: cosine}
    fsdp_config: {param_offload: false}
  rollout:
    name: vllm
    n: 5
    temperature: 0.9
    response_length: ${data.max_response_length}
    val_kwargs: {do_sample: false, temperature: 0.7, n: 1}
algorithm: {adv_estimator: grpo, use_kl_in_reward: false, norm_adv_by_std_in_grpo: true}
trainer:
  total_epochs: 15
  experiment_name: qwen2_5_vl_7b_function_rm
  logger: ["console", "wandb"]
  save_freq: 20
  test_freq: 5
  api_key: not-to-be-shown
"""

SCRIPT = """set -x
MODEL=Qwen/Qwen2.5-VL-3B-Instruct
python3 -m verl.trainer.main_ppo \\
    algorithm.adv_estimator=gae \\
    data.train_files=$HOME/data/train.parquet \\
    data.train_batch_size=256 \\
    actor_rollout_ref.model.path=${MODEL} \\
    actor_rollout_ref.actor.ppo_mini_batch_size=64 \\
    actor_rollout_ref.rollout.n=1 \\
    +algorithm.use_kl_in_reward=True \\
    algorithm.gamma=0.99 \\
    critic.optim.lr=2e-5 \\
    'trainer.logger=["console","tensorboard"]' \\
    trainer.total_training_steps=100 $@
"""


@pytest.fixture
def imported(tmp_path: Path) -> Any:
    def from_text(text: str, *overrides: str, name: str = "peer.yaml") -> ImportedConfig:
        (tmp_path / name).write_text(text)
        return import_config(tmp_path / name, overrides)

    return from_text


def config_of(result: ImportedConfig) -> RunConfig:
    from mmrl.config import build_config

    return build_config(result.data).config


def reasons(result: ImportedConfig) -> dict[str, str]:
    return {note.key: note.reason for note in result.notes}


def test_an_easyr1_config_goes_over_with_its_meaning(imported: Any) -> None:
    result = imported(EASYR1)
    config = config_of(result)
    assert (result.peer, config.name, config.seed) == ("EasyR1", "qwen2_5_vl_7b_geo_grpo", 7)
    assert (config.data.train, config.data.eval) == ("hf://hiyouga/geometry3k@train", "hf://hiyouga/geometry3k@test")
    assert config.data.map == {"answer": "solution"}
    assert (config.data.max_prompt_tokens, config.rollout.max_response_tokens) == (2048, 1024)
    assert (config.data.image.min_pixels, config.data.image.max_pixels) == (262144, 4194304)
    assert (config.rollout.prompts_per_step, config.train.mini_batches) == (512, 4)
    assert (config.algorithm.type, config.algorithm.group_size) == ("grpo", 5)
    assert config.algorithm.loss_aggregation == "token_mean", "EasyR1's default, which is not ours"
    kl = config.algorithm.kl
    assert (kl.coef, kl.estimator, kl.where) == (0.01, "k3", "loss")
    assert config.model.freeze == ("vision",)
    assert (config.optim.lr, config.optim.warmup_steps, config.train.steps) == (1e-6, 6, 60)
    assert (config.eval.every, config.eval.temperature, config.checkpoint.every) == (5, 0.5, 0)
    assert (config.track, config.data.max_images) == (("wandb",), 4)
    assert (config.reward[0].type, config.reward[0].name) == ("function", "compute_score")


def test_what_easyr1_says_and_we_have_no_equal_for_is_listed(imported: Any) -> None:
    said = reasons(imported(EASYR1))
    assert "not wrapped in a template" in said["data.format_prompt"]
    assert said["worker.actor.optim.strategy"] == "the optimiser is AdamW"
    assert "counted in tokens" in said["worker.actor.micro_batch_size_per_device_for_update"]
    assert said["data.val_batch_size"] == "mmrl has no such setting"
    assert "no such tracker" in said["trainer.logger"]
    assert "by name" in said["worker.reward.reward_function"]
    assert "placed on devices" in said["trainer.n_gpus_per_node"]
    assert not {"data.shuffle", "data.image_dir", "worker.rollout.n"} & said.keys()


def test_a_verl_config_goes_over_with_its_meaning(imported: Any) -> None:
    result = imported(VERL)
    config = config_of(result)
    assert (result.peer, config.data.train) == ("verl", str(Path("~/data/geo3k/train.parquet").expanduser()))
    assert (config.data.on_overlong, config.data.map) == ("drop", {})
    assert (config.rollout.prompts_per_step, config.train.mini_batches) == (512, 4)
    algorithm = config.algorithm
    assert (algorithm.clip_low, algorithm.clip_high, algorithm.dual_clip) == (0.2, 0.28, 3.0)
    assert (algorithm.kl.coef, algorithm.kl.where) == (0.01, "loss")
    assert (config.optim.schedule, config.optim.warmup_steps) == ("cosine", 10)
    assert (config.rollout.temperature, config.eval.temperature) == (0.9, 0)
    assert config.train.micro_batch_tokens == 24576
    assert config.reward[0].type == "math"
    said = reasons(result)
    assert "set train.steps" in said["trainer.total_epochs"]
    assert said["actor_rollout_ref.model.lora_rank"] == "mmrl has no such setting"
    assert "hydra.searchpath" not in said
    assert next(note.value for note in result.notes if note.key == "trainer.api_key") == "<redacted>"


def test_a_launch_script_of_verl_is_read_by_its_settings(imported: Any) -> None:
    config = config_of(imported(SCRIPT, name="run.sh"))
    assert config.model.path == "Qwen/Qwen2.5-VL-3B-Instruct"
    assert (config.algorithm.type, config.algorithm.group_size) == ("ppo", 1)
    kl = config.algorithm.kl
    assert (kl.coef, kl.where, kl.estimator) == (0.001, "reward", "k1")
    assert config.critic is not None
    assert config.critic.optim.lr == 2e-5
    assert (config.track, config.train.steps) == (("tensorboard",), 100)


def test_overrides_in_the_peers_words_go_before_the_file(imported: Any) -> None:
    result = imported(VERL, "actor_rollout_ref.rollout.n=8", "+trainer.total_training_steps=40")
    assert (config_of(result).algorithm.group_size, config_of(result).train.steps) == (8, 40)
    with pytest.raises(ConfigError, match="'n 8' is not of the form key=value"):
        imported(VERL, "n 8")


def test_grpo_without_division_by_std_is_dr_grpo(imported: Any) -> None:
    result = imported(VERL, "algorithm.norm_adv_by_std_in_grpo=false")
    assert config_of(result).algorithm.type == "dr_grpo"


def test_a_mini_batch_that_does_not_divide_is_told(imported: Any) -> None:
    result = imported(VERL, "actor_rollout_ref.actor.ppo_mini_batch_size=100")
    assert config_of(result).train.mini_batches == 4
    assert "does not divide the 512 prompts" in reasons(result)["actor_rollout_ref.actor.ppo_mini_batch_size"]


def test_what_a_config_must_say_and_does_not_is_left_to_be_set(imported: Any) -> None:
    result = imported("actor_rollout_ref: {rollout: {n: 4}}\nalgorithm: {adv_estimator: rloo}\n")
    assert config_of(result).model.path == "SET-MODEL-PATH"
    assert "set it" in reasons(result)["data.train"]


def test_another_kind_of_file_is_refused(imported: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"neither a config of verl .* nor one of EasyR1 .*; its groups are model"):
        imported("model: {path: a}")
    with pytest.raises(ConfigError, match="no algorithm like 'magic'"):
        imported(VERL, "algorithm.adv_estimator=magic")
    with pytest.raises(ConfigError, match="group_size >= 2"):
        imported(VERL, "actor_rollout_ref.rollout.n=1")
    with pytest.raises(NotFoundError, match="does not exist"):
        import_config(tmp_path / "none.yaml")


def test_the_command_prints_yaml_that_loads_and_lists_the_rest(tmp_path: Path) -> None:
    file, out = str(tmp_path / "easy.yaml"), tmp_path / "run.yaml"
    Path(file).write_text(EASYR1)
    result = CliRunner().invoke(app, ["config", "import", file, "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "from EasyR1:" in result.stderr
    assert "data.format_prompt=./examples/format_prompt/math.jinja: " in result.stderr
    assert RunConfig.load(out).algorithm.group_size == 5
    assert CliRunner().invoke(app, ["config", "import", file]).stdout == out.read_text()
    shown = json.loads(CliRunner().invoke(app, ["config", "import", file, "--json"]).stdout)
    assert (shown["peer"], shown["config"]["algorithm"]["type"]) == ("EasyR1", "grpo")
    assert {"key", "value", "reason"} == set(shown["notes"][0])


def test_epochs_never_become_our_default_of_steps_in_silence(tmp_path: Path) -> None:
    """Where the rows cannot be counted, the YAML and the first line of the list say what to set."""
    file = tmp_path / "peer.yaml"
    file.write_text(VERL)
    result = CliRunner().invoke(app, ["config", "import", str(file)])
    epochs = import_config(file).to_set[0].partition("run has ")[2].partition(" ")[0]
    assert result.stdout.startswith(f"# SET train.steps: the peer's run has {epochs} epochs")
    assert result.stderr.startswith("SET train.steps: ")
    assert "Without it a run has 500 steps" in result.stderr
    shown = json.loads(CliRunner().invoke(app, ["config", "import", str(file), "--json"]).stdout)
    assert shown["to_set"][0].startswith("train.steps: ")


def test_epochs_become_steps_where_the_rows_can_be_counted(tmp_path: Path) -> None:
    data, file = tmp_path / "train.jsonl", tmp_path / "peer.yaml"
    data.write_text('{"prompt": "a", "answer": "1"}\n' * 1100)
    file.write_text(VERL)
    words = [f"data.train_files={data}", "trainer.total_epochs=3"]
    result = CliRunner().invoke(app, ["config", "import", str(file), *words, "--json"])
    shown = json.loads(result.stdout)
    assert shown["config"]["train"]["steps"] == 6, "3 epochs of 1100 // 512 = 2 batches"
    assert shown["to_set"] == []
    [reason] = [note["reason"] for note in shown["notes"] if note["key"] == "trainer.total_epochs"]
    assert reason.startswith("train.steps is 6: 3 epochs of 2 whole batches of 512 in 1100 rows")


def test_a_peers_name_becomes_one_that_a_run_can_bear(imported: Any) -> None:
    result = imported(VERL, "trainer.experiment_name=qwen/geo run")
    assert config_of(result).name == "qwen-geo-run"
    assert reasons(result)["name"] == "not the name of a run; it is qwen-geo-run"
