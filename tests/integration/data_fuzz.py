"""Mutated data sets read one after the other; run as a program, so that the memory counted is its own.

    python data_fuzz.py FOLDER NUM_EXAMPLES

Rows of all shapes are changed (values replaced, keys lost or renamed, images damaged) and so are the files that hold
them. Whatever comes, each row is accepted or told of, or the file is refused by a DataError; images that were accepted
open. Prints counts, the largest resident set in MiB, and the files outside the image store that should not be there.
"""

from __future__ import annotations

import base64
import copy
import json
import random
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from data_rows import MODES, encoded, good_row, picture
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from mmrl.data.images import ImageStore
from mmrl.data.reading import read_all
from mmrl.data.row_worker import ReadRow
from mmrl.data.rows import RowError
from mmrl.data.sources import find_sources
from mmrl.errors import DataError

NUM_BASES = 40
MAX_MESSAGE = 2000

ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 2**70, 1e308, float("nan"), float("inf"), "", " ", "\ud800", "<image>", "<image>" * 40, "a\0b",
    "x" * 50_000, [], {}, [[]], [{}], {"bytes": None, "path": None}, {"bytes": "%%%"}, {"path": 5}, {"type": "image"},
    {"role": "user"}, {"role": "x", "content": []}, "../../outside.png", "/etc/hostname", "file:///etc/hostname",
    "http://127.0.0.1:9/a.png", "data:image/png;base64,", "data:,x", "data:text/html;base64,AAAA", "C:\\a.png", "~/a",
    "\ufeff", "\u202e", "9" * 5000, {"a": {"b": {"c": None}}},
)  # fmt: skip


def nested(depth: int) -> Any:
    value: Any = "deep"
    for level in range(depth):
        value = [value] if level % 2 else {"k": value}
    return value


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) of a nested value."""
    if isinstance(value, dict):
        return [(value, key) for key in value] + [place for item in value.values() for place in places(item)]
    if isinstance(value, list):
        return [(value, index) for index in range(len(value))] + [place for item in value for place in places(item)]
    return []


def replace_value(row: Any, draw: random.Random) -> None:
    if found := places(row):
        container, key = draw.choice(found)
        container[key] = copy.deepcopy(draw.choice((*ODD_VALUES, nested(5), nested(200))))


def lose_key(row: Any, draw: random.Random) -> None:
    if found := [place for place in places(row) if isinstance(place[0], dict)]:
        container, key = draw.choice(found)
        container.pop(key, None)


def rename_key(row: Any, draw: random.Random) -> None:
    if found := [place for place in places(row) if isinstance(place[0], dict)]:
        container, key = draw.choice(found)
        container[draw.choice(("", "Prompt", "messages", "images", "image", "conversations", "type"))] = container.pop(
            key
        )


def repeat_item(row: Any, draw: random.Random) -> None:
    if found := [place for place in places(row) if isinstance(place[0], list)]:
        container, index = draw.choice(found)
        container.insert(index, copy.deepcopy(container[index]))


def damage_image(row: Any, draw: random.Random) -> None:
    if found := [(container, key) for container, key in places(row) if isinstance(container[key], bytes)]:
        container, key = draw.choice(found)
        container[key] = damaged(container[key], draw)


def other_image(row: Any, draw: random.Random) -> None:
    if found := [(container, key) for container, key in places(row) if isinstance(container[key], bytes)]:
        container, key = draw.choice(found)
        container[key] = encoded(picture(draw, draw.choice(MODES), (draw.randint(1, 300), draw.randint(1, 30))))


ROW_MUTATIONS: tuple[Callable[[Any, random.Random], None], ...] = (
    replace_value, replace_value, lose_key, rename_key, repeat_item, damage_image, damage_image, other_image,
)  # fmt: skip


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Bytes flipped, cut out, put in, or cut off."""
    content = bytearray(data)
    for _ in range(draw.randint(1, 8)):
        if not content:
            break
        at = draw.randrange(len(content))
        kind = draw.randrange(4)
        if kind == 0:
            content[at] = draw.randrange(256)
        elif kind == 1:
            del content[at : at + draw.randint(1, 20)]
        elif kind == 2:
            content[at:at] = draw.randbytes(draw.randint(1, 20))
        else:
            content = content[: draw.randint(0, len(content))]
    return bytes(content)


def as_json(value: Any) -> Any:
    """Bytes as base64, so that JSON takes them."""
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {key: as_json(item) for key, item in value.items()}
    return [as_json(item) for item in value] if isinstance(value, list) else value


def write(rows: list[Any], suffix: str, path: Path) -> Path:
    if suffix == ".parquet":
        try:
            pq.write_table(pa.Table.from_pylist(rows), path.with_suffix(suffix))
        except (pa.ArrowException, TypeError, ValueError, OverflowError, UnicodeError, AttributeError):
            suffix = ".jsonl"
        else:
            return path.with_suffix(suffix)
    lines = [json.dumps(as_json(row), ensure_ascii=True) for row in rows]
    text = "[" + ",\n".join(lines) + "]" if suffix == ".json" else "\n".join(lines)
    if suffix == ".csv":
        text = "prompt,answer,images\n" + "\n".join(f'"{line[:3000]}",1,' for line in lines)
    path = path.with_suffix(suffix)
    path.write_text(text, encoding="utf-8")
    return path


def peak_mb() -> float:
    """The largest resident set of this program; what `getrusage` tells includes that of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main(folder: Path, num_examples: int) -> None:
    data, store = folder / "data", ImageStore(folder / "images")
    data.mkdir()
    start = random.Random(0)
    bases = []
    while len(bases) < NUM_BASES:
        row = good_row(start, data, 9 * len(bases) + start.choice((0, 1, 3, 4, 5, 7, 8)))
        bases.append({key: value for key, value in row.items() if value is not None})
    fixed = {path.name for path in data.iterdir()}
    counts = Counter[str]()
    seen = Counter[str]()

    @seed(0)
    @settings(
        max_examples=num_examples, deadline=None, database=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(
        which=st.lists(st.integers(0, NUM_BASES - 1), min_size=1, max_size=3),
        mutations=st.lists(st.tuples(st.integers(0, len(ROW_MUTATIONS) - 1), st.integers(0, 2**32)), max_size=5),
        suffix=st.sampled_from((".jsonl", ".jsonl", ".json", ".parquet", ".csv")),
        file_damage=st.none() | st.integers(0, 2**32),
    )
    def read_one(which: list[int], mutations: list[tuple[int, int]], suffix: str, file_damage: int | None) -> None:
        rows = [copy.deepcopy(bases[index]) for index in which]
        for kind, key in mutations:
            draw = random.Random(key)
            ROW_MUTATIONS[kind](draw.choice(rows), draw)
        path = write(rows, suffix, data / "mutated")
        if file_damage is not None:
            path.write_bytes(damaged(path.read_bytes(), random.Random(file_damage)))
        counts["examples"] += 1
        try:
            for result in read_all(find_sources(path)["train"], store.add, workers=0):
                if isinstance(result, ReadRow):
                    counts["accepted"] += 1
                    for image in result.sample.images:
                        assert store.open(image).mode == "RGB"
                else:
                    assert isinstance(result, RowError)
                    assert len(str(result)) < MAX_MESSAGE, str(result)[:500]
                    counts["row_errors"] += 1
                    if "the row cannot be read (" in result.message:
                        seen[result.message.partition(";")[0][:160]] += 1
        except DataError as error:
            counts["file_errors"] += 1
            counts["long_messages"] += len(str(error)) >= MAX_MESSAGE
        finally:
            path.unlink()

    read_one()
    strange = [str(path) for path in folder.iterdir() if path.name not in ("data", "images")]
    strange += [path.name for path in data.iterdir() if path.name not in fixed]
    strange += [str(path) for path in (folder / "images").rglob("*") if path.is_file() and len(path.name) != 64]
    memory_mb = peak_mb()
    print(json.dumps({**counts, "memory_mb": memory_mb, "strange_files": strange, "unforeseen": dict(seen)}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
