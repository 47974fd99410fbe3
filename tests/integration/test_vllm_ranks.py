"""vLLM in two ranks of a torch.distributed group, with an engine each and with one over both; weights from shards."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rollout_conformance import ENGINES, ids_of, make_samples, params, save_lively_model

from mmrl.data.images import ImageStore

pytestmark = pytest.mark.vllm

WORLD = 2


@pytest.fixture(scope="module")
def folder(tiny_model, image_store: ImageStore, pictures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ranks")
    save_lively_model(tiny_model("qwen2_5_vl"), folder / "model", image_store)
    shutil.copytree(image_store.root, folder / "images")
    (folder / "pictures.json").write_text(json.dumps([asdict(picture) for picture in pictures]))
    return folder


@pytest.fixture(scope="module")
def results(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each rank wrote."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    own = tmp_path_factory.mktemp("results")
    program = Path(__file__).with_name("vllm_ranks.py")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parent)}
    processes = []
    for rank in range(WORLD):
        command = [
            sys.executable,
            str(program),
            str(rank),
            str(WORLD),
            str(port),
            str(folder),
            str(own / f"{rank}.json"),
        ]
        processes.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    try:
        outputs = [process.communicate(timeout=300)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output[-3000:]
    return [json.loads((own / f"{rank}.json").read_text()) for rank in range(WORLD)]


@pytest.fixture(scope="module")
def alone(folder: Path, image_store: ImageStore, pictures) -> list[list[list[int]]]:
    """The ids that an engine without company samples under the weights of the folder."""
    engine = ENGINES["hf"](folder / "model", image_store, 64)
    groups = engine.generate(make_samples(pictures), params(16), num_responses=4, seed=0, step=0)
    return [[list(ids) for ids in group] for group in ids_of(groups)]


@pytest.mark.parametrize("tensor_parallel", [1, 2])
def test_ranks_agree_with_the_actor_through_updates_from_shards(results, tensor_parallel: int) -> None:
    gaps = [found["gap"] for result in results for found in result["found"][str(tensor_parallel)]]
    assert len(gaps) == 3 * WORLD
    assert max(gaps) < 1e-4


def test_ranks_of_one_engine_sample_the_same_as_an_engine_alone(results, alone) -> None:
    assert [result["found"]["2"][0]["ids"] for result in results] == [alone, alone]
    assert results[0]["found"]["2"][2]["ids"] == results[1]["found"]["2"][2]["ids"] != alone


def test_ranks_with_an_engine_each_sample_their_share(results, alone) -> None:
    assert [result["found"]["1"][0]["ids"] for result in results] == [alone[rank::WORLD] for rank in range(WORLD)]


def test_the_process_group_outlives_the_engines(results) -> None:
    assert [result["sum"] for result in results] == [WORLD] * WORLD
