"""Files that datasets, pandas and polars write themselves, and folders that `hf://` reads."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import datasets
from mmrl.data import load_dataset
from mmrl.errors import DataError, NotFoundError

RED = (255, 0, 0)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def png(tmp_path: Path) -> bytes:
    Image.new("RGB", (32, 32), RED).save(tmp_path / "red.png")
    return (tmp_path / "red.png").read_bytes()


@pytest.fixture
def written(png: bytes) -> datasets.Dataset:
    """Three rows with an Image feature, a list of images and named classes."""
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "problem": datasets.Value("large_string"),
            "extra": datasets.Sequence(datasets.Value("float32")),
            "answer": datasets.ClassLabel(names=["cat", "dog"]),
        }
    )
    images = [Image.new("RGB", (32, 32), RED), {"bytes": png, "path": "elsewhere/red.png"}, None]
    rows = {"image": images, "problem": ["<image>a", "<image>b", "c"], "extra": [[], [1.5], []]}
    return datasets.Dataset.from_dict(rows | {"answer": [0, 1, 1]}, features=features)


def check(dataset: object) -> None:
    first, second, third = dataset  # type: ignore[misc]
    assert [sample.answer for sample in (first, second, third)] == ["cat", "dog", "dog"]
    assert [len(sample.images) for sample in (first, second, third)] == [1, 1, 0]
    assert (np.asarray(dataset.open_images(second)[0]) == RED).all()  # type: ignore[attr-defined]


def test_parquet_of_datasets_with_an_image_feature(tmp_path: Path, written: datasets.Dataset) -> None:
    written.to_parquet(str(tmp_path / "d.parquet"))
    check(load_dataset(tmp_path / "d.parquet"))


def test_folder_of_save_to_disk_with_and_without_splits(tmp_path: Path, written: datasets.Dataset) -> None:
    written.save_to_disk(str(tmp_path / "one"), num_shards=2)
    check(load_dataset(tmp_path / "one"))
    datasets.DatasetDict({"train": written, "test": written}).save_to_disk(str(tmp_path / "two"))
    check(load_dataset(f"{tmp_path}/two@test"))
    check(load_dataset(f"hf://{tmp_path}/two@test"))
    with pytest.raises(NotFoundError, match=r"has no split 'dev'; it has train, test"):
        load_dataset(f"hf://{tmp_path}/two@dev")


def test_local_folder_through_hf_from_its_own_place(
    tmp_path: Path, written: datasets.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hub" / "data").mkdir(parents=True)
    written.to_parquet(str(tmp_path / "hub" / "data" / "train-00000-of-00001.parquet"))
    monkeypatch.chdir(tmp_path)
    check(load_dataset("hf://./hub@train"))
    check(load_dataset(tmp_path / "hub"))


def test_folder_and_zip_of_images_through_hf(tmp_path: Path, png: bytes) -> None:
    metadata = "file_name,problem,answer\na.png,<image>x,1\n"
    (tmp_path / "folder" / "train").mkdir(parents=True)
    (tmp_path / "folder" / "train" / "a.png").write_bytes(png)
    (tmp_path / "folder" / "train" / "metadata.csv").write_text(metadata)
    (tmp_path / "packed").mkdir()
    with zipfile.ZipFile(tmp_path / "packed" / "train.zip", "w") as archive:
        archive.writestr("a.png", png)
        archive.writestr("metadata.csv", metadata)
    plain = load_dataset(tmp_path / "folder")
    for name in ("folder", "packed"):
        assert load_dataset(f"hf://{tmp_path}/{name}@train")[0].id == plain[0].id


def test_what_the_hub_does_not_have_is_told_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"hf://nobody/none: not available from the hub \(HF_HUB_OFFLINE is set"):
        load_dataset("hf://nobody/none@train")
    with pytest.raises(NotFoundError, match=r"no such folder"):
        load_dataset(f"hf://{tmp_path}/none@train")
    with pytest.raises(DataError, match=r"not an address of the hub"):
        load_dataset("hf://")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"`datasets` cannot read this folder"):
        load_dataset(f"hf://{tmp_path}/empty@train")


def test_a_row_of_a_local_folder_cannot_name_an_image_outside_it(tmp_path: Path, png: bytes) -> None:
    (tmp_path / "secret.png").write_bytes(png)
    (tmp_path / "d").mkdir()
    features = datasets.Features({"image": datasets.Image(), "prompt": datasets.Value("string")})
    info = json.dumps({"info": {"features": features.to_dict()}})
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    image = pa.array([{"bytes": None, "path": str(tmp_path / "secret.png")}], kind)
    table = pa.table({"image": image, "prompt": ["<image>"]}).replace_schema_metadata({"huggingface": info})
    pq.write_table(table, tmp_path / "d" / "train.parquet")
    for address in (f"hf://{tmp_path}/d@train", f"{tmp_path}/d@train"):
        with pytest.raises(DataError, match=r"image.path: .*(leads out of|is an absolute path)"):
            load_dataset(address)


def test_parquet_of_pandas(tmp_path: Path, png: bytes) -> None:
    frame = pd.DataFrame(
        {
            "prompt": ["<image>a", "b"],
            "images": [[{"bytes": png, "path": None}], None],
            "answer": [3, None],
            "kind": pd.Categorical(["u", "v"]),
            "when": pd.to_datetime(["2026-01-02", None]),
        }
    )
    frame.set_index("prompt").reset_index().to_parquet(tmp_path / "d.parquet")
    first, second = load_dataset(tmp_path / "d.parquet")
    assert [(sample.answer, len(sample.images)) for sample in (first, second)] == [("3", 1), (None, 0)]
    assert (first.meta["kind"], first.meta["when"], second.meta["when"]) == ("u", "2026-01-02T00:00:00", None)


def test_parquet_and_arrow_of_polars(tmp_path: Path, png: bytes) -> None:
    kinds = pl.Series(["u", "v"], dtype=pl.Categorical)
    frame = pl.DataFrame({"prompt": ["<image>a", "b"], "images": [[png], []], "answer": ["x", "y"], "kind": kinds})
    frame.write_parquet(tmp_path / "d.parquet")
    frame.write_ipc(tmp_path / "d.arrow")
    for name in ("d.parquet", "d.arrow"):
        first, second = load_dataset(tmp_path / name)
        assert [(sample.answer, len(sample.images)) for sample in (first, second)] == [("x", 1), ("y", 0)]
        assert first.meta["kind"] == "u"


def test_d19_field_that_is_null_for_half_of_a_large_file_loads(tmp_path: Path) -> None:
    with (tmp_path / "a.jsonl").open("w") as lines:
        for index in range(4000):
            boxes = None if index < 2000 else [{"x": index}]
            lines.write(json.dumps({"prompt": "x" * 6000, "meta": {"boxes": boxes}}) + "\n")
    assert (tmp_path / "a.jsonl").stat().st_size > 20 * 2**20
    dataset = load_dataset(tmp_path / "a.jsonl")
    assert (dataset[0].meta["meta"], dataset[3999].meta["meta"]) == ({"boxes": None}, {"boxes": [{"x": 3999}]})


PEAK = """
import resource, sys
from pathlib import Path
from mmrl.data.formats import read_rows
num = sum(len(row.values["images"]) for row in read_rows(Path(sys.argv[1])))
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(num, peak // 1024)
"""


def test_d21_large_row_group_of_nested_images_is_read_without_holding_it(tmp_path: Path) -> None:
    """A row group of 400 MB of images in list<struct<bytes, path>>, as pandas writes it again."""
    blob = np.random.default_rng(0).bytes(40_000)
    kind = pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    images = pa.array([[{"bytes": blob[index % 100 :], "path": None}] for index in range(10_000)], kind)
    pq.write_table(pa.table({"images": images}), tmp_path / "a.parquet", row_group_size=10_000, use_dictionary=False)
    del images
    assert pq.ParquetFile(tmp_path / "a.parquet").num_row_groups == 1
    done = subprocess.run(
        [sys.executable, "-c", PEAK, str(tmp_path / "a.parquet")], capture_output=True, text=True, check=True
    )
    num, peak_mb = map(int, done.stdout.split())
    assert num == 10_000
    assert peak_mb < 300
