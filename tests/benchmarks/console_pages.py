"""Server time of each page of the console, and memory of its process, in a home with 1,000 runs, 1,000,000 samples in
the index and 500 checkpoints.

A page's seconds are those of its script, opened again and again as people do, fragments included; the first time of a
process (the first opening of the database) is told apart, and modules are loaded before, as the server does. Processor
seconds stand beside those of the clock: where other work has the cores, they are what the page would take without it.
They are held to the limit.

    python tests/benchmarks/console_pages.py --json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "console"), str(ROOT / "tests")]

MOST_S = 1.0
MOST_BYTES = 1_000_000_000


def pages(home) -> dict[str, tuple[str, dict[str, str]]]:
    """Name -> page and query: of each file in `app_pages` at least one."""
    newest = list(home.jobs.values())[:1000]
    several = {
        "dataset": {"": {"name": "data-001"}},
        "runs": {
            "": {},
            "failed": {"state": "failed"},
            "text": {"q": "0420"},
            "five compared": {"compare": ",".join(newest[-5:])},
        },
        "run": {"": {"id": newest[-1]}, "checkpoints": {"id": newest[-1], "tab": "checkpoints"}},
        "responses": {"": {"run": newest[-1]}},
        "settings": {"": {}, "people": {"part": "People"}, "installation": {"part": "Installation"}},
    }
    files = sorted(file.stem for file in (ROOT / "console" / "app_pages").glob("[!_]*.py"))
    queries = {file: several.get(file, {"": {}}) for file in files}
    return {
        ", ".join(filter(None, (file.replace("_", " "), words))): (file, query)
        for file in files
        for words, query in queries[file].items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = measure(Path(folder) / "large", options.repeats)
    print(json.dumps(report) if options.json else as_text(report))
    if any(page["cpu_s"] > MOST_S for page in report["pages"].values()) or report["bytes"] > MOST_BYTES:
        sys.exit(1)


def measure(path: Path, repeats: int) -> dict:
    """cpu_s, median_s, first_s, slowest_s of each page; bytes: all that the process holds in the end."""
    from homes import build_home

    from console.warming import load_what_pages_need

    load_what_pages_need()
    home = build_home("large", path)
    with home.active():
        found = {name: measure_page(page, query, repeats) for name, (page, query) in pages(home).items()}
    return {"pages": found, "bytes": psutil.Process().memory_info().rss}


def measure_page(page: str, query: dict[str, str], repeats: int) -> dict[str, float]:
    from streamlit import config
    from streamlit.testing.v1 import AppTest

    config.set_option("server.address", "127.0.0.1")
    seconds, processor = [], []
    for _ in range(repeats + 1):
        test = AppTest.from_file(str(ROOT / "console" / "app.py"), default_timeout=60)
        test.query_params.update(query)
        if page != "home":
            test.switch_page(f"app_pages/{page}.py")
        begun, begun_cpu = time.perf_counter(), time.process_time()
        test.run()
        seconds.append(time.perf_counter() - begun)
        processor.append(time.process_time() - begun_cpu)
        assert not test.exception, f"{page}: {test.exception}"
    first, *later = seconds
    cpu_s = statistics.median(processor[1:])
    return {"cpu_s": cpu_s, "first_s": first, "median_s": statistics.median(later), "slowest_s": max(later)}


def as_text(report: dict) -> str:
    lines = [f"{'page':<26}{'cpu':>9}{'median':>9}{'slowest':>9}{'first':>9}   seconds"]
    for name, page in report["pages"].items():
        lines.append(
            f"{name:<26}{page['cpu_s']:>9.3f}{page['median_s']:>9.3f}{page['slowest_s']:>9.3f}{page['first_s']:>9.3f}"
        )
    return "\n".join([*lines, f"memory of the process: {report['bytes'] / 1e6:.0f} MB"])


if __name__ == "__main__":
    main()
