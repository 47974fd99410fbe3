"""TensorBoard files read back by TensorBoard, wandb offline runs read back by wandb."""

from __future__ import annotations

import json
import os
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

from mmrl.config import RunConfig, dump_yaml
from mmrl.runs.tracker_base import SampleRow
from mmrl.runs.trackers import Trackers
from mmrl.runs.writer import RunWriter

CONFIG = RunConfig.model_validate(
    {
        "name": "digits",
        "model": {"path": "m"},
        "data": {"train": "d"},
        "reward": [{"type": "function", "path": "judge.py", "arguments": {"api_key": "sk-very-secret"}}],
    }
)


def write(name: str, run_dir: Path, steps: range, value: float, state: str = "succeeded") -> None:
    """One attempt that tracks `reward/mean`, and a metric that is no number."""
    writer = RunWriter.create(run_dir, config_yaml=dump_yaml(CONFIG), resume=True)
    warnings: list[str] = []
    trackers = Trackers.start([name], run_dir=run_dir, config=CONFIG, warn=warnings.append)
    for step in steps:
        writer.metrics(step, {"reward/mean": value + step})
        trackers.log(step, {"reward/mean": value + step, "kl": float("nan")})
    trackers.finish(state)  # type: ignore[arg-type]
    assert warnings == []


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "home"))
    monkeypatch.setenv("WANDB_CACHE_DIR", str(tmp_path / "home"))
    for name in [name for name in os.environ if name in ("WANDB_API_KEY", "WANDB_MODE", "NETRC")]:
        monkeypatch.delenv(name)


def test_tensorboard_shows_what_was_tracked(tmp_path: Path) -> None:
    write("tensorboard", tmp_path, range(1, 4), 0.5)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(point.step, point.value) for point in events.Scalars("reward/mean")] == [(1, 1.5), (2, 2.5), (3, 3.5)]
    assert events.Tags()["scalars"] == ["reward/mean"]
    text = events.Tensors("config")[0].tensor_proto.string_val[0].decode()
    assert '"name": "digits"' in text
    assert "sk-very-secret" not in text


def test_tensorboard_drops_what_a_resumed_attempt_made_anew(tmp_path: Path) -> None:
    write("tensorboard", tmp_path, range(1, 6), 0.5, state="failed")
    # TensorBoard reads the files in the order of their names, which begin with whole seconds.
    for file in (tmp_path / "tensorboard").iterdir():
        file.rename(file.with_name("events.out.tfevents.0000000001.first"))
    write("tensorboard", tmp_path, range(3, 5), 100.0)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(point.step, point.value) for point in events.Scalars("reward/mean")] == [
        (1, 1.5),
        (2, 2.5),
        (3, 103.0),
        (4, 104.0),
    ]


def wandb_records(file: Path) -> Iterator[bytes]:
    """The records of a `.wandb` file: LevelDB's log format (blocks of 32 KiB) after a header of 7 bytes."""
    data, place, whole = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        left_in_block = 32768 - place % 32768
        if left_in_block < 7:
            place += left_in_block
            continue
        length, kind = struct.unpack_from("<HB", data, place + 4)
        whole += data[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # a full record, or the last piece of one
            yield whole
            whole = b""


def whole_records(file: Path) -> list[bytes]:
    """The records of a run that has ended; wandb's own process may still be writing the last of them."""
    deadline = time.monotonic() + 30
    while True:
        records = list(wandb_records(file))
        kinds = [wandb_internal_pb2.Record.FromString(data).WhichOneof("record_type") for data in records]
        if "exit" in kinds:
            return records
        assert time.monotonic() < deadline, f"{file} never got its end; it has {kinds}"
        time.sleep(0.1)


def read_wandb(file: Path) -> dict[str, Any]:
    """Id, name, history and the text of all records of an offline run."""
    found: dict[str, Any] = {"history": [], "text": ""}
    for data in whole_records(file):
        record = wandb_internal_pb2.Record.FromString(data)
        found["text"] += str(record)
        kind = record.WhichOneof("record_type")
        if kind == "history":
            found["history"].append(
                {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            )
        elif kind == "run":
            found |= {"id": record.run.run_id, "name": record.run.display_name}
    return found


@pytest.mark.usefixtures("offline")
def test_wandb_keeps_an_offline_run_without_a_key(tmp_path: Path) -> None:
    write("wandb", tmp_path, range(1, 3), 0.5)
    (file,) = tmp_path.glob("attempt-1/wandb/offline-run-*/run-*.wandb")
    found = read_wandb(file)
    assert found["id"] == (tmp_path / "wandb-id").read_text()
    assert found["name"] == "digits"
    assert [(row["step"], row["reward/mean"]) for row in found["history"]] == [("1", "1.5"), ("2", "2.5")]
    assert "judge.py" in found["text"]
    assert "sk-very-secret" not in found["text"]


@pytest.mark.usefixtures("offline")
def test_the_attempts_of_a_run_are_one_wandb_run(tmp_path: Path) -> None:
    """C11: saved after 1, killed after 3, resumed: 2 and 3 come again as a segment, and 4 as the step that it is."""
    write("wandb", tmp_path, range(1, 4), 0.5, state="failed")
    write("wandb", tmp_path, range(2, 5), 100.0)
    first, second = sorted(tmp_path.glob("attempt-*/wandb/offline-run-*/run-*.wandb"))
    assert read_wandb(first)["id"] == read_wandb(second)["id"]
    rows = [*read_wandb(first)["history"], *read_wandb(second)["history"]]
    plain = [(row["step"], row["reward/mean"]) for row in rows if "reward/mean" in row]
    again = [(row["step"], row["segment_2/reward/mean"]) for row in rows if "segment_2/reward/mean" in row]
    assert plain == [("1", "1.5"), ("2", "2.5"), ("3", "3.5"), ("4", "104")]
    assert again == [("2", "102"), ("3", "103")]
    assert [row["segment"] for row in rows] == ["1", "1", "1", "2", "2", "2"]


@pytest.mark.usefixtures("offline")
def test_wandb_gets_a_table_of_samples_with_their_images(tmp_path: Path) -> None:
    RunWriter.create(tmp_path, config_yaml=dump_yaml(CONFIG), resume=True)
    Image.new("RGB", (8, 8), (200, 0, 0)).save(tmp_path / "digit.png")
    warnings: list[str] = []
    trackers = Trackers.start(["wandb", "tensorboard"], run_dir=tmp_path, config=CONFIG, warn=warnings.append)
    trackers.samples(
        [SampleRow(3, "eval", "user: Which?", (tmp_path / "digit.png",), "7", "It is 7", 1.0, {"exact": 1})]
    )
    trackers.finish("succeeded")
    assert warnings == []
    (table,) = tmp_path.glob("attempt-1/wandb/offline-run-*/files/media/table/samples/*.table.json")
    content = json.loads(table.read_text())
    assert content["columns"] == ["step", "prompt", "image", "answer", "response", "reward", "reward/exact"]
    assert content["data"][0][3:] == ["7", "It is 7", 1.0, 1]
    assert len(list(tmp_path.glob("attempt-1/wandb/offline-run-*/files/media/images/samples/eval/*.png"))) == 1


@pytest.mark.usefixtures("offline")
def test_a_wrong_wandb_mode_costs_a_warning_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "sometimes")
    warnings: list[str] = []
    trackers = Trackers.start(["wandb"], run_dir=tmp_path, config=CONFIG, warn=warnings.append)
    trackers.log(1, {"loss": 1.0})
    trackers.finish("succeeded")
    assert warnings == [
        "tracker wandb failed and is left out from here on: "
        "ValueError: WANDB_MODE is 'sometimes'; allowed: online, offline, disabled, shared"
    ]
