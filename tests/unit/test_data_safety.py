"""What is never read or never run: pickles in any disguise, files outside, hosts that nobody allowed."""

from __future__ import annotations

import base64
import io
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_files import red_png, write_jsonl

from mmrl.data import load_dataset, network
from mmrl.data.formats import read_rows
from mmrl.data.ingest import BadRowsError
from mmrl.data.network import NetworkRefusal, fetch
from mmrl.data.options import ReadOptions
from mmrl.data.rows import RowProblem
from mmrl.errors import DataError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MMRL_HOME", str(tmp_path / "home"))


class TouchesMarker:
    """A pickle that leaves a trace when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(self.marker), "w")


def npy(value: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, value, allow_pickle=True)
    return buffer.getvalue()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "name", ["a.pkl", "a.pt", "a.npy", "a.bin", "a.jsonl", "a.json", "a.csv", "a.parquet", "a.arrow", "a", "train.zip"]
)
def test_x04_x05_a_pickle_is_refused_under_any_name_and_never_runs(tmp_path: Path, name: str, protocol: int) -> None:
    marker = tmp_path / "marker"
    (tmp_path / name).write_bytes(pickle.dumps(TouchesMarker(marker), protocol=protocol))
    with pytest.raises(DataError, match=r"pickle"):
        load_dataset(tmp_path / name)
    assert not marker.exists()


@pytest.mark.parametrize("name", ["a.npy", "a.jsonl", "a.parquet"])
def test_x04_an_array_of_objects_is_refused_under_any_name(tmp_path: Path, name: str) -> None:
    marker = tmp_path / "marker"
    (tmp_path / name).write_bytes(npy(np.array([TouchesMarker(marker)], dtype=object)))
    with pytest.raises(DataError, match=r"NumPy array by its content|are or may hold pickles"):
        load_dataset(tmp_path / name)
    assert not marker.exists()


def test_x04_a_pickle_as_an_image_is_an_error_of_its_row(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    data = pickle.dumps(TouchesMarker(marker))
    (tmp_path / "a.png").write_bytes(data)
    forms = ["a.png", base64.b64encode(data).decode(), f"data:image/png;base64,{base64.b64encode(data).decode()}"]
    write_jsonl(tmp_path / "a.jsonl", *({"prompt": "<image>", "image": form} for form in forms))
    with pytest.raises(BadRowsError) as caught:
        load_dataset(tmp_path / "a.jsonl")
    assert [error.row for error in caught.value.errors] == [1, 2, 3]
    assert not marker.exists()


@pytest.mark.parametrize(
    "text", ['{"prompt": "(lp0\\n."}', "cat,dog\n1,2\n", "image,prompt\n(a),}\n", "(prompt),l\nx,y\n", "i,d\n1,2\n"]
)
def test_text_that_begins_as_a_pickle_might_is_still_text(tmp_path: Path, text: str) -> None:
    path = tmp_path / ("a.jsonl" if text.startswith("{") else "a.csv")
    path.write_text(text)
    assert len(list(read_rows(path))) == 1


def test_x10_no_message_of_a_row_repeats_an_image_as_text(tmp_path: Path) -> None:
    noise = base64.b64encode(np.random.RandomState(0).bytes(300_000)).decode()
    png = base64.b64encode(red_png()[:-20]).decode() + noise
    rows: list[dict[str, Any]] = [
        {"prompt": "<image>", "image": png},
        {"prompt": "<image>", "image": noise},
        {"prompt": "<image>", "image": f"data:image/{noise};base64,"},
        {"prompt": "<image>", "image": "http://host/" + noise},
        {"prompt": "<image>", "image": {noise: 1}},
        {"prompt": "<image>", "image": [["x"], noise]},
        {"prompt": [{"role": noise, "content": "x"}]},
        {"prompt": [{"role": "user", "content": [{"type": noise}]}]},
        {"prompt": "a", "answer": {noise: float("nan")}},
        {noise: 1},
        {"prompt": "<image>a", "images": [noise, noise]},
    ]
    write_jsonl(tmp_path / "a.jsonl", *rows)
    with pytest.raises(BadRowsError) as caught:
        load_dataset(tmp_path / "a.jsonl")
    assert len(caught.value.errors) == len(rows)
    assert max(len(str(error)) for error in caught.value.errors) < 2000
    problem = RowProblem("f" * 10_000, "m" * 10_000)
    assert len(problem.field) + len(problem.message) < 1300


def picture_row(image: Any) -> dict[str, Any]:
    return {"prompt": "<image>", "image": image}


def test_x12_files_outside_are_read_from_allowed_folders_only(tmp_path: Path) -> None:
    allowed, other, data = (tmp_path / name for name in ("allowed", "other", "data"))
    for folder in (allowed, other, data):
        folder.mkdir()
        (folder / "a b.png").write_bytes(red_png())
    (data / "link.png").symlink_to(allowed / "a b.png")
    good = [str(allowed / "a b.png"), f"file://{allowed}/a%20b.png", "../allowed/a b.png", "link.png", "a b.png"]
    write_jsonl(data / "good.jsonl", *map(picture_row, good))
    bad = [str(other / "a b.png"), f"file://{other}/a%20b.png", "../other/a b.png", "file://host/a.png", "~/a.png"]
    bad += [f"{allowed}/../other/a b.png", "/etc/hostname", "C:\\a.png"]
    write_jsonl(data / "bad.jsonl", *map(picture_row, bad))
    options = ReadOptions(roots=(allowed,))
    assert len(load_dataset(data / "good.jsonl", options=options)) == len(good)
    for chosen, count in ((options, len(bad)), (ReadOptions(), len(bad))):
        with pytest.raises(BadRowsError) as caught:
            load_dataset(data / "bad.jsonl", options=chosen)
        assert len(caught.value.errors) == count
    with pytest.raises(BadRowsError, match="--allow-root"):
        load_dataset(data / "good.jsonl")


def test_relative_paths_may_start_at_another_folder(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").write_bytes(red_png())
    write_jsonl(tmp_path / "d" / "a.jsonl", picture_row("a.png"), picture_row("../d/a.png"))
    with pytest.raises(BadRowsError, match=r"a.jsonl:2: image: .* leads out of"):
        load_dataset(tmp_path / "d" / "a.jsonl", options=ReadOptions(image_root=tmp_path / "pictures"))
    with pytest.raises(DataError, match="does not exist"):
        ReadOptions(image_root=tmp_path / "none")


def test_a_file_too_large_for_an_image_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mmrl.data.image_forms.MAX_FILE_BYTES", 50)
    (tmp_path / "a.png").write_bytes(red_png())
    write_jsonl(tmp_path / "a.jsonl", picture_row("a.png"))
    with pytest.raises(BadRowsError, match=r"at most 50 are read"):
        load_dataset(tmp_path / "a.jsonl")


class Pictures(BaseHTTPRequestHandler):
    """Serves one picture, and every trouble that a host may make."""

    def do_GET(self) -> None:
        act: dict[str, Callable[[], None]] = {
            "/a.png": partial(self.answer, red_png()),
            "/large": partial(self.answer, b"x" * 5000),
            "/endless": self.endless,
            "/slow": self.slow,
            "/loop": partial(self.redirect, "/loop"),
            "/home": partial(self.redirect, "/a.png"),
            "/metadata": partial(self.redirect, "http://169.254.169.254/latest/meta-data"),
            "/file": partial(self.redirect, "file:///etc/hostname"),
        }
        act.get(self.path, partial(self.send_error, 404))()

    def answer(self, data: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def redirect(self, where: str) -> None:
        self.send_response(302)
        self.send_header("Location", where)
        self.end_headers()

    def endless(self) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(100):
            self.wfile.write(b"x" * 1000)

    def slow(self) -> None:
        self.send_response(200)
        self.end_headers()
        for _ in range(20):
            self.wfile.write(b"x")
            time.sleep(0.05)

    def log_message(self, *arguments: Any) -> None:
        pass


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Pictures) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_x12_images_are_fetched_from_allowed_hosts_only(tmp_path: Path, host: str) -> None:
    url = f"http://{host}/a.png"
    write_jsonl(
        tmp_path / "a.jsonl", {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": url}]}]}
    )
    with pytest.raises(BadRowsError, match=r"is an address \(http:\), which is not read.*--allow-network"):
        load_dataset(tmp_path / "a.jsonl")
    with pytest.raises(
        BadRowsError, match=rf"the host {host}, which is not allowed; allow it with --allow-network {host}"
    ):
        load_dataset(tmp_path / "a.jsonl", options=ReadOptions(hosts=("images.example.org",)))
    (sample,) = load_dataset(tmp_path / "a.jsonl", options=ReadOptions(hosts=(host,)))
    assert sample.images[0].width == 32


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("none", "answered 404"),
        ("large", "declares 5,000 bytes; at most 1,000 are fetched"),
        ("endless", "larger than the 1,000 bytes"),
        ("slow", "took longer than|timed out"),
        ("loop", "leads to 127.0.0.1, an address inside this network"),
        ("home", "leads to 127.0.0.1, an address inside this network"),
        ("metadata", "redirects to the host 169.254.169.254, which is not allowed"),
        ("file", "redirects to an address that is neither http: nor https:"),
        (" x", "could not be fetched"),
    ],
)
def test_x12_a_host_cannot_lead_elsewhere_or_send_without_end(host: str, path: str, message: str) -> None:
    with pytest.raises(NetworkRefusal, match=message):
        fetch(f"http://{host}/{path}", hosts=(host,), timeout_s=0.3, max_bytes=1000)


def test_x12_a_redirect_to_the_clouds_credentials_is_refused_even_if_allowed(host: str) -> None:
    with pytest.raises(NetworkRefusal, match=r"leads to 169\.254\.169\.254, an address inside this network"):
        fetch(f"http://{host}/metadata", hosts=(host, "169.254.169.254"), timeout_s=1, max_bytes=1000)


def test_x12_a_name_that_leads_to_a_link_local_address_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("169.254.169.254", "fe80::1", "::ffff:169.254.169.254", "0.0.0.0"):
        monkeypatch.setattr(network.socket, "getaddrinfo", lambda *args, at=address, **_: [(0, 0, 0, "", (at, 80))])
        with pytest.raises(NetworkRefusal, match="an address inside this network"):
            fetch("http://images.example.org/a.png", hosts=("images.example.org",), timeout_s=1, max_bytes=1000)


@pytest.mark.parametrize("name", ["http://a.org", "a.org/x", "a b", ""])
def test_what_is_no_host_is_refused(name: str) -> None:
    with pytest.raises(DataError, match="not a host"):
        ReadOptions(hosts=(name,))
