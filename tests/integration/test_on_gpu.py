"""Runs on a GPU: sampler against actor, on both paths. Their CPU twins are in test_train_variants."""

from pathlib import Path

import pytest
from learning import run, run_config, warm_model

from mmrl.runs.reader import RunReader

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("path", ["prefix", "plain"])
def test_a_run_on_the_gpu_stays_within_the_canary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, path: str
):
    monkeypatch.setenv("MMRL_HOME", str(tmp_path))
    model = warm_model(tmp_path / "model", "digits-which", steps=20)
    config = run_config(
        model,
        "digits-which@train",
        steps=3,
        model={"path": str(model), "dtype": dtype, "device": "cuda"},
        train={"steps": 3, "mini_batches": 2, "path": path},
    )

    result = run(config, tmp_path / "run")

    for row in RunReader(result.run_dir).metrics():
        assert row.values["sync/kl"] < (1e-6 if dtype == "float32" else 0.05)
