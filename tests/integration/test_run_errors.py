"""What people meet first: each fault gives one clear message, the design's exit code and no traceback."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mmrl.data.digits import build_digits, digit_texts
from mmrl.models.tiny import build_tiny_qwen2_5_vl

CONFIG = """
name: errors
model: {{path: {model}, dtype: float32}}
data: {{train: digits-which@train, max_prompt_tokens: 64}}
algorithm: {{type: grpo, group_size: 2}}
reward: [{{type: exact}}]
rollout: {{prompts_per_step: 2, max_response_tokens: 4}}
train: {{steps: 1}}
eval: {{at_start: false}}
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("errors")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MMRL_HOME", str(folder))
        build_digits()
    model = build_tiny_qwen2_5_vl(folder / "model", sentences=digit_texts(), seed=0)
    (folder / "run.yaml").write_text(CONFIG.format(model=model))
    return folder


def mmrl(home: Path, *arguments: str, prefix: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*prefix, sys.executable, "-m", "mmrl.cli.app", *arguments]
    return subprocess.run(
        command, env=os.environ | {"MMRL_HOME": str(home)}, capture_output=True, text=True, timeout=120
    )


def check(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    flat = " ".join(done.stderr.split())
    for word in words:
        assert word in flat, done.stderr
    assert sum(line.startswith("error:") for line in done.stderr.splitlines()) == 1, done.stderr


def test_a_missing_config_file(home: Path):
    check(mmrl(home, "train", "nowhere.yaml", "--run-dir", str(home / "r1")), 3, "nowhere.yaml")


def test_an_unknown_key_names_the_nearest(home: Path):
    done = mmrl(home, "train", str(home / "run.yaml"), "optim.learning_rate=1e-4", "--run-dir", str(home / "r2"))
    check(done, 2, "optim.learning_rate", "optim.lr")


def test_a_group_of_one(home: Path):
    done = mmrl(home, "train", str(home / "run.yaml"), "algorithm.group_size=1", "--run-dir", str(home / "r3"))
    check(done, 2, "group_size >= 2", "got 1")


def test_a_batch_larger_than_the_data(home: Path):
    done = mmrl(home, "train", str(home / "run.yaml"), "rollout.prompts_per_step=5000", "--run-dir", str(home / "r4"))
    check(done, 2, "5000", "rollout.prompts_per_step", "samples")


def test_a_model_folder_without_a_processor(home: Path):
    bare = home / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((home / "model" / name).read_bytes())
    done = mmrl(home, "train", str(home / "run.yaml"), f"model.path={bare}", "--run-dir", str(home / "r5"))
    check(done, 2, "bare", "processor")


def test_a_missing_data_set_names_the_nearest(home: Path):
    done = mmrl(home, "train", str(home / "run.yaml"), "data.train=digits-witch@train", "--run-dir", str(home / "r6"))
    check(done, 3, "digits-witch", "digits-which")


def test_a_full_disk(home: Path):
    small = home / "small-disk"
    small.mkdir()
    mount = f'mount -t tmpfs -o size=1m tmpfs {small} && exec "$@"'
    done = mmrl(
        home,
        "train",
        str(home / "run.yaml"),
        "--run-dir",
        str(small / "run"),
        prefix=("unshare", "--map-root-user", "--mount", "sh", "-c", mount, "sh"),
    )
    check(done, 6, "disk", "small-disk")


def test_the_errors_are_of_these_settings_only(home: Path):
    done = mmrl(home, "train", str(home / "run.yaml"), "--run-dir", str(home / "good"))
    assert done.returncode == 0, done.stderr
    assert (home / "good" / "checkpoints" / "step-000001" / "manifest.json").is_file()
