"""Server time of the pages Responses and Compare, and memory of their process, with 1,000,000 responses on disk.

They are of one run, 500 steps of 250 groups of 8 with images, and what is per token at the last steps. 20 checkpoints
have answered 200 prompts four times each.

As in `console_pages.py`, processor seconds are held to the limit. Building the home takes minutes: --home keeps it.

    python tests/benchmarks/console_samples.py --home /tmp/million --json
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import psutil
from console_pages import MOST_BYTES, MOST_S, as_text, measure_page

GALLERY_GROUPS = 200
_GROUPS_ON_A_PAGE = 24


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--home", type=Path, help="a folder that keeps the home for the next time")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = measure(options.home or Path(folder) / "million", options.repeats)
    print(json.dumps(report) if options.json else as_text(report))
    slow = [name for name, page in report["pages"].items() if page["cpu_s"] > MOST_S]
    if slow or report["bytes"] > MOST_BYTES:
        sys.exit(1)


def measure(path: Path, repeats: int) -> dict:
    """As `console_pages.measure`; bytes: after every page, and a gallery of 200 groups paged through. A report is
    made too, told as a page of its own."""
    from homes import Home

    home = Home(path, "million")
    with home.active():
        job, last = _built(path)
        found = {name: measure_page(page, query, repeats) for name, (page, query) in _pages(job, last).items()}
        for page in range(1, -(-GALLERY_GROUPS // _GROUPS_ON_A_PAGE) + 1):
            measure_page("responses", {"run": job, "view": "gallery", "page": str(page)}, 1)
        found["export of a step, CSV"] = _measure_export(job, last)
    return {"pages": found, "bytes": psutil.Process().memory_info().rss}


def _built(path: Path) -> tuple[str, int]:
    """The job and its last step; built where the folder has none."""
    from home_samples import NUM_STEPS, add_large_panel, add_large_run

    from mmrl.jobs.database import Database
    from mmrl.jobs.jobs import Jobs
    from mmrl.jobs.searching import JobFilter

    path.mkdir(parents=True, exist_ok=True)
    with Database.open() as database:
        found = Jobs(database).search(JobFilter(name="million"), limit=1)
        if not found:
            add_large_panel(path)
            return add_large_run(database), NUM_STEPS
        return found[0].id, NUM_STEPS


def _pages(job: str, last: int) -> dict[str, tuple[str, dict[str, str]]]:
    def responses(**query: str) -> tuple[str, dict[str, str]]:
        return "responses", {"run": job, **query}

    return {
        "responses": responses(),
        "an early step": responses(step="7", group="200"),
        "text search": responses(find="word77 "),
        "truncated": responses(only="truncated"),
        "parts disagree": responses(only="disagree"),
        "reward range": responses(part="total", low="0.1", high="0.3"),
        "all steps": responses(steps="all"),
        "all steps, common text": responses(steps="all", find="word77 "),
        "all steps, rare text": responses(steps="all", find="word77 word78"),
        "all steps, no such text": responses(steps="all", find="nowhere at all"),
        "all steps, truncated": responses(steps="all", only="truncated"),
        "all steps, parts disagree": responses(steps="all", only="disagree"),
        "all steps, reward range": responses(steps="all", part="total", low="0.5", high="0.6"),
        "token heat map": responses(step=str(last), tokens="kl"),
        "gallery": responses(view="gallery", page="4"),
        "one prompt over all steps": responses(view="steps"),
        "compare, two checkpoints": ("compare", {}),
        "compare, five checkpoints": ("compare", {"ids": ",".join(_evaluations(5))}),
    }


def _evaluations(num: int) -> list[str]:
    from mmrl.evaluation.finding import all_evaluations

    return [evaluation.id for evaluation in all_evaluations()[:num]]


def _measure_export(job_id: str, step: int) -> dict[str, float]:
    from console.services.exports import make
    from console.services.group_filter import GroupFilter
    from console.services.response_export import export_step
    from console.services.responses import Responses
    from mmrl.jobs.database import Database
    from mmrl.jobs.jobs import Jobs

    with Database.open() as database:
        job = Jobs(database).get(job_id)
    begun, begun_cpu = time.perf_counter(), time.process_time()
    responses = Responses(job)
    made = make(export_step(job, responses, responses.groups("train", step, GroupFilter()), GroupFilter()), "csv")
    assert made.num_rows == 2000
    seconds = time.perf_counter() - begun
    return {
        "cpu_s": time.process_time() - begun_cpu,
        "median_s": seconds,
        "slowest_s": seconds,
        "first_s": seconds,
    }


if __name__ == "__main__":
    main()
