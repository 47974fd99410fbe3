"""A run directory in an object store (a real S3-compatible server) and on another disk."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from object_store import s3_server
from runs_builders import begin_run, group, sample, store_image

import mmrl.runs.mirror_store as mirror_store
from mmrl.errors import ConfigError, ConflictError, DataError, RunFailedError
from mmrl.runs.layout import checkpoint_dir, checkpoints_dir
from mmrl.runs.mirror import Mirror, local_checkpoint, local_folder, mirrored
from mmrl.runs.reader import RunReader
from mmrl.runs.writer import RunWriter
from mmrl.trainer.checkpoint_folder import find_fault, seal


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """`machine("a")` makes this process one whose home is another folder."""

    def become(name: str) -> Path:
        monkeypatch.setenv("MMRL_HOME", str(tmp_path / name))
        return tmp_path / name

    become("a")
    return become


@pytest.fixture(params=["s3", "file"])
def address(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "file":
        yield f"file://{tmp_path}/shared/runs/digits"
        return
    with s3_server(monkeypatch, "team"):
        yield "s3://team/runs/digits"


CAPTURED: Any = {"capture_output": True, "text": True, "timeout": 120}


def save(writer: RunWriter, step: int, *, content: bytes = b"weights", metrics: dict[str, float] | None = None) -> None:
    folder = checkpoint_dir(writer.run_dir, step)
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "model.safetensors").write_bytes(content)
    seal(folder, step=step, metrics=metrics or {})


def step_of(writer: RunWriter, step: int, *, store_path: object = None) -> None:
    writer.metrics(step, {"reward/mean": step / 10})
    writer.samples(step, "train", [group([("7", 1.0), ("1", 0.0)])], store_path=lambda image: Path("nowhere"))


def no_word(text: str) -> None:
    raise AssertionError(text)


def test_a_run_goes_on_on_another_machine(address: str, machine: object) -> None:
    with mirrored(address, every_s=60, say=no_word) as folder:
        first = begin_run(folder)
        for step in (1, 2):
            step_of(first, step)
        save(first, 2, metrics={"eval/reward": 0.5})
    machine("b")  # type: ignore[operator]
    with mirrored(address, every_s=60, say=no_word) as elsewhere:
        assert elsewhere != folder
        assert not list(elsewhere.rglob("*.tmp"))
        assert find_fault(checkpoint_dir(elsewhere, 2)) is None
        second = begin_run(elsewhere, step=2)
        assert second.attempt == 2
        step_of(second, 3)
        save(second, 4)
    machine("c")  # type: ignore[operator]
    Mirror(local_folder(address), address).pull()
    reader = RunReader(local_folder(address))
    assert [(row.step, row.attempt, row.values["reward/mean"]) for row in reader.metrics()] == [
        (1, 1, 0.1),
        (2, 1, 0.2),
        (3, 2, 0.3),
    ]
    assert [(point.step, dict(point.metrics)) for point in reader.checkpoints()] == [(2, {"eval/reward": 0.5}), (4, {})]
    assert reader.steps("train") == [1, 2, 3]


def test_what_is_finished_comes_over_while_the_run_goes_on(address: str, machine: object) -> None:
    with mirrored(address, every_s=0.05, say=no_word) as folder:
        writer = begin_run(folder)
        step_of(writer, 1)
        save(writer, 1)
        deadline = time.monotonic() + 20
        while not {"checkpoints/step-000001/manifest.json", "attempt-1/samples/train-000001.parquet"} <= set(
            mirror_store.Store(address).sizes
        ):
            assert time.monotonic() < deadline, mirror_store.Store(address).sizes
            time.sleep(0.05)


def test_growing_files_come_over_in_whole_lines_each_byte_once(address: str, machine: object) -> None:
    folder = local_folder(address)
    writer = begin_run(folder)
    mirror = Mirror(folder, address)
    log = writer.logs_dir / "rank-0.log"
    written = b""
    for chunk in (b"one\ntw", b"o\nthree\n", b"", b"four"):
        written += chunk
        log.write_bytes(written)
        mirror.push()
    store = mirror_store.Store(address)
    parts = {name: size for name, size in store.sizes.items() if "rank-0.log" in name}
    assert parts == {
        "attempt-1/logs/rank-0.log.part-000000000000": 4,
        "attempt-1/logs/rank-0.log.part-000000000004": 10,
    }
    Mirror(folder, address).push()  # a new process finds what is there
    assert mirror_store.Store(address).sizes.keys() == store.sizes.keys()


def test_a_checkpoint_that_is_pruned_or_left_goes_from_the_store_and_manifest_comes_last(
    address: str, machine: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = local_folder(address)
    writer = begin_run(folder)
    mirror = Mirror(folder, address)
    order: list[str] = []
    put = mirror_store.Store.put
    monkeypatch.setattr(
        mirror_store.Store, "put", lambda store, name, path: (order.append(name), put(store, name, path))[1]
    )
    save(writer, 1)
    save(writer, 2)
    mirror.push()
    named = [name for name in order if name.startswith("checkpoints/step-000002/")]
    assert named == ["checkpoints/step-000002/model/model.safetensors", "checkpoints/step-000002/manifest.json"]
    checkpoint_dir(folder, 1).rename(checkpoints_dir(folder) / ".left-by-attempt-2-step-000001")
    mirror.push()
    assert not [name for name in mirror_store.Store(address).sizes if "step-000001" in name]


def test_a_half_uploaded_checkpoint_is_not_taken(address: str, machine: object) -> None:
    folder = local_folder(address)
    writer = begin_run(folder)
    save(writer, 1)
    Mirror(folder, address).push()
    mirror_store.Store(address).remove("checkpoints/step-000001/manifest.json")
    machine("b")  # type: ignore[operator]
    Mirror(local_folder(address), address).pull()
    assert not checkpoints_dir(local_folder(address)).exists()


def test_an_attempt_that_was_thought_dead_brings_no_checkpoint(address: str, machine: object) -> None:
    old_folder = local_folder(address)
    old = begin_run(old_folder)
    old_mirror = Mirror(old_folder, address)
    old_mirror.push()
    machine("b")  # type: ignore[operator]
    new_mirror = Mirror(local_folder(address), address)
    new_mirror.pull()
    begin_run(local_folder(address))
    new_mirror.push()
    save(old, 5)
    with pytest.raises(ConflictError, match="belongs to another attempt now"):
        old_mirror.push()
    assert not [name for name in mirror_store.Store(address).sizes if "step-000005" in name]


def test_an_overwritten_checkpoint_of_the_same_step_replaces_the_old_one(address: str, machine: object) -> None:
    folder = local_folder(address)
    writer = begin_run(folder)
    save(writer, 1, content=b"first  ")
    Mirror(folder, address).push()
    checkpoint_dir(folder, 1).rename(checkpoints_dir(folder) / ".left-by-attempt-2-step-000001")
    save(writer, 1, content=b"second ")
    Mirror(folder, address).push()
    machine("b")  # type: ignore[operator]
    Mirror(local_folder(address), address).pull()
    weights = checkpoint_dir(local_folder(address), 1) / "model" / "model.safetensors"
    assert weights.read_bytes() == b"second "
    machine("a")  # type: ignore[operator]
    checkpoint_dir(folder, 1).rename(checkpoints_dir(folder) / ".left-by-attempt-3-step-000001")
    save(writer, 1, content=b"third  ")
    Mirror(folder, address).push()
    machine("b")  # type: ignore[operator]
    Mirror(local_folder(address), address).pull()
    assert weights.read_bytes() == b"third  "
    assert find_fault(checkpoint_dir(local_folder(address), 1)) is None


def test_names_in_a_store_cannot_leave_the_folder(machine: object, tmp_path: Path) -> None:
    """X01's kind: who may write to the store may not write elsewhere on this disk."""
    shared = tmp_path / "shared"
    for name in ("attempt-1/samples/../../../evil.parquet", "checkpoints/step-000001/../../../evil", "bin/sh"):
        path = shared / name.replace("..", "up")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    address = f"file://{shared}"
    store = mirror_store.Store(address)
    store.sizes = {name.replace("up", ".."): size for name, size in store.sizes.items()}
    mirror = Mirror(local_folder(address), address)
    mirror._store = store
    mirror.pull()
    assert not local_folder(address).exists() or not list(local_folder(address).rglob("*"))


def test_a_store_that_is_gone_is_said_once_and_the_run_lies_whole(
    machine: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    address = "s3://team/runs/digits"

    def gone(*_: object, **__: object) -> None:
        raise OSError("the server is gone")

    def train_without_the_store() -> None:
        with mirrored(address, every_s=0.05, say=said.append) as folder:
            for name in ("put", "append"):
                monkeypatch.setattr(mirror_store.Store, name, gone)
            step_of(begin_run(folder), 1)
            time.sleep(0.5)

    with s3_server(monkeypatch, "team"), pytest.raises(RunFailedError, match=r"server is gone.*lies whole in"):
        train_without_the_store()
    assert len(said) == 1, said
    assert "does not answer" in said[0]
    assert (local_folder(address) / "attempt-1" / "metrics.jsonl").is_file()


def test_what_the_run_failed_on_is_what_is_raised(machine: object, tmp_path: Path) -> None:
    def fail() -> None:
        with mirrored(f"file://{tmp_path}/shared", every_s=60, say=no_word) as folder:
            begin_run(folder)
            raise ValueError("of the run itself")

    with pytest.raises(ValueError, match="of the run itself"):
        fail()
    assert (tmp_path / "shared" / "config.yaml").is_file()


def test_a_manifest_that_names_files_outside_its_folder_is_refused(machine: object, tmp_path: Path) -> None:
    folder = tmp_path / "shared" / "checkpoints" / "step-000001"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text('{"step": 1, "files": {"../../../evil": {"bytes": 1, "sha256": "0"}}}')
    address = f"file://{tmp_path}/shared"
    with pytest.raises(DataError, match="outside its folder"):
        Mirror(local_folder(address), address).pull()


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("s3://me:hunter22@team/runs", "holds a password"),
        ("nostore://team/runs", "nostore"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(address: str, words: str, machine: object) -> None:
    with pytest.raises(ConfigError, match=words) as caught, mirrored(address, every_s=60, say=no_word):
        pass
    assert "hunter22" not in str(caught.value)


def test_a_checkpoint_of_another_run_is_taken_from_its_store_alone(address: str, machine: object) -> None:
    with mirrored(address, every_s=60, say=no_word) as folder:
        writer = begin_run(folder)
        step_of(writer, 2)
        save(writer, 2)
        save(writer, 4)
    machine("b")  # type: ignore[operator]
    found = local_checkpoint(f"{address}/checkpoints/step-000004")
    assert found == checkpoint_dir(local_folder(address), 4)
    assert find_fault(found) is None
    assert [path.name for path in local_folder(address).iterdir()] == ["checkpoints"]
    assert not checkpoint_dir(local_folder(address), 2).exists()
    assert local_checkpoint(f"{address}/checkpoints/step-000006").exists() is False
    assert local_checkpoint(folder / "checkpoints") == folder / "checkpoints"
    for wrong in (address, f"{address}/checkpoints/../../x"):
        with pytest.raises(ConfigError, match="is no checkpoint"):
            local_checkpoint(wrong)


def test_images_of_samples_come_over(machine: object, tmp_path: Path, image_store: object) -> None:
    address = f"file://{tmp_path}/shared"
    folder = local_folder(address)
    writer = begin_run(folder)
    image = store_image(image_store, red=200)  # type: ignore[arg-type]
    groups = [group([("7", 1.0)], prompt=sample(images=[image]))]
    writer.samples(1, "train", groups, store_path=image_store.path)  # type: ignore[attr-defined]
    Mirror(folder, address).push()
    machine("b")  # type: ignore[operator]
    Mirror(local_folder(address), address).pull()
    assert (local_folder(address) / "images" / image.sha256[:2] / f"{image.sha256}.png").is_file()


NOOP = """\
name: probe
kind: noop
noop: {steps: 4, checkpoint_every: 2, samples_per_step: 2, mirror_every_s: 0.1}
"""


def test_the_command_trains_at_an_address_and_another_machine_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: object
) -> None:
    """The secret of the store stands in no file that the run leaves behind, and on no stream."""
    config = tmp_path / "noop.yaml"
    config.write_text(NOOP)
    with s3_server(monkeypatch, "team"):
        address = "s3://team/probe"
        command = [sys.executable, "-m", "mmrl", "train", str(config), "--run-dir", address, "--json"]
        first = subprocess.run([*command[:5], "noop.exit_code=9", "noop.fail_at_step=4", *command[5:]], **CAPTURED)
        assert first.returncode == 9, first.stderr
        machine("b")  # type: ignore[operator]
        second = subprocess.run(command, **CAPTURED)
        assert second.returncode == 0, second.stderr
        assert "goes on" in second.stderr or json.loads(second.stdout)["steps"] == 4
        folder = local_folder(address)
        assert [row.step for row in RunReader(folder).metrics()] == [1, 2, 3, 4]
        assert RunReader(folder).attempts() == [1, 2]
        there = mirror_store.Store(address).sizes
        assert {"checkpoints/step-000004/manifest.json", "attempt-2/samples/train-000003.parquet"} <= there.keys()
    texts = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"a-secret-of-the-store" in text for text in texts)
    assert "a-secret-of-the-store" not in first.stderr + second.stderr + first.stdout + second.stdout
