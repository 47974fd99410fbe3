"""The Python example of the README, as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from learning import warm_model

ROOT = Path(__file__).parents[2]


def test_the_python_example_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    warm_model(tmp_path / "short", "digits-which", steps=2)
    (tmp_path / "quickstart").mkdir()
    (tmp_path / "short" / "warm" / "checkpoints" / "step-000002" / "model").rename(tmp_path / "quickstart" / "model")
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    script = tmp_path / "example.py"
    script.write_text(example.replace("train.steps=20", "train.steps=2"))

    done = subprocess.run([sys.executable, str(script)], cwd=ROOT, capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    run_dir, reward = done.stdout.split()
    assert (Path(run_dir) / "checkpoints" / "step-000002" / "manifest.json").is_file()
    assert -10 < float(reward) < 1
