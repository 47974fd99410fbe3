"""Rows a second of ingest with full validation, beside a bare loop that only decodes, and beside `datasets`.

One Parquet file is generated: a prompt, an answer and a 256x256 PNG of about 20 KB a row, in one row group as pandas
writes it. Measured are, one after the other, in processes of their own, each on as many processes as there are cores:

- bare: each process reads its share of the file and decodes the images with Pillow, nothing else;
- ingest: `mmrl.data.ingest.add_dataset`: rows checked, images decoded whole, hashed and stored, a version registered;
- datasets: `load_dataset("parquet")`, then `map` over as many processes, which decode each image and hash its bytes.

Rates are by the wall clock; starting processes counts for ingest and datasets, not for bare. Processor time a row is
told beside them: on a machine that is busy with other things, compare that. Memory is the largest sum of the resident
sets of a measured process and all of its children; it is taken again on a file --larger times as long.

    python tests/benchmarks/ingest.py --json
    python tests/benchmarks/ingest.py --rows 4000
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

SIDE = 256
NOISE_SIDE = 76
SCHEMA = pa.schema(
    [
        ("prompt", pa.string()),
        ("images", pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))),
        ("answer", pa.string()),
    ]
)
MEMORY_LIMIT_MB = 800
SHARE_OF_BARE = 0.7


def picture(index: int) -> bytes:
    """A PNG of flat rectangles with one patch of noise, about 20 KB."""
    draw = np.random.default_rng(index)
    pixels = np.empty((SIDE, SIDE, 3), np.uint8)
    pixels[:] = draw.integers(0, 256, 3)
    for _ in range(12):
        x, y = draw.integers(0, 200, 2)
        width, height = draw.integers(20, 90, 2)
        pixels[y : y + height, x : x + width] = draw.integers(0, 256, 3)
    x, y = draw.integers(0, SIDE - NOISE_SIDE, 2)
    pixels[y : y + NOISE_SIDE, x : x + NOISE_SIDE] = draw.integers(0, 256, (NOISE_SIDE, NOISE_SIDE, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


def generate(path: Path, rows: int, pictures: list[bytes]) -> None:
    """`rows` rows in row groups of 20,000; beyond `pictures` the same ones come again, each changed by a comment."""
    with pq.ParquetWriter(path, SCHEMA, compression="snappy") as writer:
        for start in range(0, rows, 20_000):
            indices = range(start, min(start + 20_000, rows))
            images = [[{"bytes": _variant(pictures, index), "path": None}] for index in indices]
            prompts = [f"<image>What is shown in picture {index}?" for index in indices]
            columns = {"prompt": prompts, "images": images, "answer": [str(index) for index in indices]}
            writer.write_table(pa.table(columns, schema=SCHEMA), row_group_size=20_000)


def _variant(pictures: list[bytes], index: int) -> bytes:
    """The picture, or a file of other bytes with the same pixels: bytes behind a PNG's end are no part of it."""
    repeat, which = divmod(index, len(pictures))
    return pictures[which] + (repeat.to_bytes(4, "big") if repeat else b"")


class Clock:
    """Seconds by the wall and of processor time since it was made; ended children count."""

    def __init__(self) -> None:
        self._began = (time.perf_counter(), self._used())

    def read(self) -> dict[str, float]:
        began, used = self._began
        return {"seconds": time.perf_counter() - began, "cpu_seconds": self._used() - used}

    @staticmethod
    def _used() -> float:
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system


def measure_bare(path: Path, folder: Path, processes: int) -> dict[str, float]:
    """The images lie in memory before the clock starts; forked processes decode a share each."""
    images = [row[0]["bytes"] for row in pq.read_table(path, columns=["images"]).column(0).to_pylist()]
    context = multiprocessing.get_context("fork")
    ready = context.Barrier(processes + 1)
    shares = [images[index::processes] for index in range(processes)]
    running = [context.Process(target=_decode_all, args=(share, ready)) for share in shares]
    for process in running:
        process.start()
    ready.wait()
    clock = Clock()
    for process in running:
        process.join()
        assert process.exitcode == 0, "a process of the bare loop failed"
    return clock.read()


def _decode_all(images: list[bytes], ready: Any) -> None:
    ready.wait()
    for data in images:
        Image.open(io.BytesIO(data)).load()


def measure_ingest(path: Path, folder: Path, processes: int) -> dict[str, float]:
    from mmrl.data.images import ImageStore
    from mmrl.data.ingest import add_dataset
    from mmrl.data.registry import DatasetRegistry

    clock = Clock()
    added = add_dataset(
        path,
        name="benchmark",
        registry=DatasetRegistry(folder / "datasets"),
        store=ImageStore(folder / "images"),
        workers=processes,
    )
    used = clock.read()
    assert added.info.num_rows == pq.ParquetFile(path).metadata.num_rows, "rows were lost"
    assert not added.skipped, added.skipped[:3]
    return used


def measure_datasets(path: Path, folder: Path, processes: int) -> dict[str, float]:
    import datasets

    datasets.disable_progress_bars()
    clock = Clock()
    rows = datasets.load_dataset("parquet", data_files=str(path), split="train", cache_dir=str(folder / "cache"))
    hashes = rows.map(_decode_and_hash, num_proc=processes, remove_columns=rows.column_names)
    assert len(hashes) == len(rows), "rows were lost"
    return clock.read()


def _decode_and_hash(row: dict[str, Any]) -> dict[str, Any]:
    for image in row["images"]:
        Image.open(io.BytesIO(image["bytes"])).load()
    return {"sha256": [hashlib.sha256(image["bytes"]).hexdigest() for image in row["images"]]}


MEASURES = {"bare": measure_bare, "ingest": measure_ingest, "datasets": measure_datasets}


def measured(name: str, path: Path, processes: int) -> dict[str, float]:
    """Seconds, processor seconds and, in MiB, the largest sum of resident sets of a measure in a process of its own."""
    with tempfile.TemporaryDirectory(prefix="mmrl-ingest-") as folder:
        command = [sys.executable, __file__, "--measure", name, "--file", str(path), "--folder", folder]
        environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HOME": folder, "HF_HUB_OFFLINE": "1"}
        process = subprocess.Popen(
            [*command, "--processes", str(processes)], env=environment, stdout=subprocess.PIPE, text=True
        )
        memory = _Memory(process.pid)
        with memory:
            output, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"{name} failed with exit code {process.returncode}")
    figures = json.loads(output) | {"memory_mb": memory.most_bytes / 2**20}
    print(f"{name} of {path.stat().st_size / 2**20:,.0f} MiB: {figures}", file=sys.stderr)
    return figures


class _Memory:
    """Looks ten times a second at the memory of a process and its children."""

    def __init__(self, pid: int) -> None:
        self.most_bytes = 0
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.1):
            total = 0
            try:
                root = psutil.Process(self._pid)
                family = [root, *root.children(recursive=True)]
            except psutil.NoSuchProcess:
                return
            for process in family:
                try:
                    total += process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
            self.most_bytes = max(self.most_bytes, total)


def compare(rows: int, larger: int, processes: int, num_pictures: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="mmrl-ingest-data-") as folder:
        pictures = [picture(index) for index in range(min(num_pictures, rows))]
        path = Path(folder) / "train.parquet"
        generate(path, rows, pictures)
        figures: dict[str, Any] = {
            "rows": rows,
            "processes": processes,
            "mean_image_bytes": sum(map(len, pictures)) / len(pictures),
        }
        for name in MEASURES:
            result = measured(name, path, processes)
            figures |= {
                f"{name}_rows_per_s": rows / result["seconds"],
                f"{name}_cpu_ms_per_row": 1000 * result["cpu_seconds"] / rows,
                f"{name}_memory_mb": result["memory_mb"],
            }
        figures["share_of_bare"] = figures["ingest_rows_per_s"] / figures["bare_rows_per_s"]
        figures["times_datasets"] = figures["ingest_rows_per_s"] / figures["datasets_rows_per_s"]
        if larger > 1:
            generate(path, larger * rows, pictures)
            result = measured("ingest", path, processes)
            figures[f"ingest_memory_mb_of_{larger}_times_the_rows"] = result["memory_mb"]
        figures["ok"] = _is_good(figures)
    return figures


def _is_good(figures: dict[str, Any]) -> bool:
    memory = [value for name, value in figures.items() if name.startswith("ingest_memory_mb")]
    return figures["share_of_bare"] >= SHARE_OF_BARE and figures["times_datasets"] > 1 and max(memory) < MEMORY_LIMIT_MB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--larger", type=int, default=3, help="times the rows of the file for memory; 1 leaves it out")
    parser.add_argument("--pictures", type=int, default=2000, help="different pictures; every row has bytes of its own")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--measure", choices=list(MEASURES), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(MEASURES[options.measure](options.file, options.folder, options.processes)))
        return
    figures = compare(options.rows, options.larger, options.processes, options.pictures)
    if options.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:<40}{value if isinstance(value, bool) else format(value, ',.2f')}")


if __name__ == "__main__":
    main()
