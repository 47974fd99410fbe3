"""What a worker tells of itself: /metrics for Prometheus and /healthz, on an address of this machine."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from mmrl.errors import ConflictError
from mmrl.jobs.errors import DatabaseUnavailableError
from mmrl.jobs.pools import Fleet
from mmrl.jobs.states import JobState

if TYPE_CHECKING:
    from mmrl.jobs.worker.worker import Worker


class Telemetry:
    """port: where it is served; None while it is not."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._num_claims = 0
        self._ended: dict[str, int] = {}
        self.port: int | None = None

    def note_claim(self) -> None:
        self._num_claims += 1

    def note_end(self, state: JobState) -> None:
        self._ended[state.value] = self._ended.get(state.value, 0) + 1

    @contextmanager
    def serving(self, say: Callable[[str], None]) -> Iterator[None]:
        """Raises ConflictError for a port that is taken."""
        options = self._worker.options
        if options.port is None:
            yield
            return
        try:
            server = ThreadingHTTPServer((options.bind, options.port), _handler(self))
        except OSError as error:
            raise ConflictError(
                f"cannot serve /metrics on {options.bind}:{options.port}: {error.strerror}; give another --port, or 0 "
                "for a free one"
            ) from error
        server.daemon_threads = True
        self.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, name="mmrl-metrics", daemon=True)
        thread.start()
        say(f"metrics at http://{options.bind}:{self.port}/metrics")
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            self.port = None

    def health(self) -> dict[str, Any]:
        """ok: the database has heard of the worker within its lease."""
        worker = self._worker
        quiet_s = time.monotonic() - worker.beats.last_beat
        return {
            "ok": quiet_s < worker.leases.database.settings.lease_s,
            "worker": worker.leases.worker_id,
            "pool": worker.options.pool,
            "is_draining": worker.is_draining,
            "last_beat_s": round(quiet_s, 3),
            "database": worker.beats.outage or "ok",
            "jobs": [run.job_id for run in worker.runs],
        }

    def prometheus(self) -> bytes:
        """The text that Prometheus scrapes."""
        from prometheus_client import CollectorRegistry, Gauge, generate_latest
        from prometheus_client.core import CounterMetricFamily

        registry = CollectorRegistry()
        worker = self._worker
        labels = {"pool": worker.options.pool, "worker": worker.leases.worker_id}
        for name, text, value in self._gauges():
            Gauge(name, text, list(labels), registry=registry).labels(**labels).set(value)
        counters = [
            ("mmrl_worker_claims", "Jobs that the worker has claimed", self._num_claims),
            ("mmrl_worker_indexed_metric_rows", "Metrics brought into the database", worker.indexing.num_rows),
            ("mmrl_worker_indexed_samples", "Samples brought into the database", worker.indexing.num_samples),
            ("mmrl_worker_index_seconds", "Seconds spent on indexing", worker.indexing.seconds),
            ("mmrl_worker_index_failures", "Looks into run directories that failed", worker.indexing.num_failed),
        ]
        families = []
        for name, text, value in counters:
            family = CounterMetricFamily(name, text, labels=list(labels))
            family.add_metric(list(labels.values()), value)
            families.append(family)
        ended = CounterMetricFamily("mmrl_worker_ended", "Jobs that left the worker", labels=[*labels, "state"])
        for state, number in sorted(self._ended.items()):
            ended.add_metric([*labels.values(), state], number)
        registry.register(_Families([*families, ended, *self._queue()]))
        return bytes(generate_latest(registry))

    def _queue(self) -> list[Any]:
        """The queue as the database has it: the same from every worker, so take the maximum. Absent while the database
        is away."""
        from prometheus_client.core import GaugeMetricFamily

        jobs = GaugeMetricFamily("mmrl_queue_jobs", "Jobs that have not ended", labels=["pool", "state"])
        oldest = GaugeMetricFamily("mmrl_queue_oldest_seconds", "Age of the oldest waiting job", labels=["pool"])
        try:
            figures = Fleet(self._worker.leases.database).queue()
        except DatabaseUnavailableError:
            return []
        for figure in figures:
            jobs.add_metric([figure.pool, figure.state.value], figure.num_jobs)
            if figure.state is JobState.QUEUED and figure.oldest_s is not None:
                oldest.add_metric([figure.pool], figure.oldest_s)
        return [jobs, oldest]

    def _gauges(self) -> list[tuple[str, str, float]]:
        worker = self._worker
        runs = worker.runs
        used = sum(1 if run.lease.job.backend == "ray" else run.lease.job.cpus for run in runs)
        return [
            ("mmrl_worker_jobs", "Jobs that the worker holds", len(runs)),
            ("mmrl_worker_stopping_jobs", "Jobs that it is stopping", sum(run.stop is not None for run in runs)),
            ("mmrl_worker_cpu_slots", "CPU slots", worker.options.cpus),
            ("mmrl_worker_cpu_slots_used", "CPU slots in use", used),
            ("mmrl_worker_gpus", "GPUs", len(worker.options.gpus)),
            ("mmrl_worker_gpus_used", "GPUs in use", sum(len(run.lease.gpus) for run in runs)),
            ("mmrl_worker_beat_seconds", "How long the last beat took", worker.beats.seconds),
            (
                "mmrl_worker_seconds_since_beat",
                "Seconds since the database heard of the worker",
                time.monotonic() - worker.beats.last_beat,
            ),
            ("mmrl_worker_database_up", "Whether the database can be reached", float(worker.beats.outage is None)),
            ("mmrl_worker_draining", "Whether the worker is draining", float(worker.is_draining)),
        ]


class _Families:
    def __init__(self, families: list[Any]) -> None:
        self._families = families

    def collect(self) -> list[Any]:
        return self._families


def _handler(telemetry: Telemetry) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/metrics":
                self._answer(200, "text/plain; version=0.0.4; charset=utf-8", telemetry.prometheus())
            elif self.path == "/healthz":
                health = telemetry.health()
                self._answer(200 if health["ok"] else 503, "application/json", json.dumps(health).encode() + b"\n")
            else:
                self._answer(404, "text/plain", b"/metrics and /healthz are here\n")

        def log_message(self, *_: object) -> None:
            """Scrapes are not told."""

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    return Handler
