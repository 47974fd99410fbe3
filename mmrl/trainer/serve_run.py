"""`run_serve`: a checkpoint served as a run of its own, so that a worker holds it and anybody who may can stop it."""

from __future__ import annotations

import contextlib
import secrets
import socket
import time
from pathlib import Path

from mmrl.config.dump import dump_yaml
from mmrl.config.serve import ServeConfig
from mmrl.errors import ConfigError
from mmrl.runs.checkpoint_refs import ModelRef, resolve_model
from mmrl.runs.layout import new_run_dir
from mmrl.runs.mirror import is_address
from mmrl.runs.ownership import AttemptClaim
from mmrl.runs.progress import ProgressReporter, make_progress
from mmrl.runs.stopping import StopRequest
from mmrl.runs.writer import RunWriter
from mmrl.serving.endpoint import Endpoint, published
from mmrl.serving.server import Server, ServeSettings, started
from mmrl.trainer.checkpoint_folder import check_model
from mmrl.trainer.ending import TrainResult, ending

WORKER_HOST = "worker"
_LOOK_S = 1.0
_SLICE_S = 0.1


def run_serve(
    config: ServeConfig,
    *,
    run_dir: Path | str | None = None,
    resume: str | Path = "auto",
    progress: ProgressReporter | None = None,
) -> TrainResult:
    """Serves until nobody has asked for `serve.idle_s`, which is success, or until it is asked to stop.

    Raises ConfigError where vLLM is missing, NotFoundError for no checkpoint, RunFailedError where the server does not
    start or ends by itself.
    """
    if run_dir is not None and is_address(run_dir):
        raise ConfigError(
            f"{run_dir}: a server's key is kept in a folder, not in a store; give a folder with --run-dir"
        )
    folder = Path(run_dir) if run_dir is not None else new_run_dir(config.name)
    claim = AttemptClaim.from_environment()
    ref = resolve_model(config.model.path)
    check_model(ref)
    writer = RunWriter.create(folder, config_yaml=dump_yaml(config), resume=str(resume) != "never", claim=claim)
    progress = progress or make_progress()
    stop = StopRequest(writer.attempt_dir)
    with ending(writer, progress, stop=stop):
        writer.begin(0, total_steps=0)
        _serve(config, ref, writer, stop, progress)
    return TrainResult(writer.run_dir, 0)


def _serve(
    config: ServeConfig, ref: ModelRef, writer: RunWriter, stop: StopRequest, progress: ProgressReporter
) -> None:
    settings = serve_settings(config, ref, key=secrets.token_urlsafe(32))
    begun = time.monotonic()
    with started(settings, say=progress.message) as server:
        endpoint = Endpoint(server.url, settings.name, config.serve.max_images, settings.key or "")
        with published(writer.run_dir, endpoint):
            seconds = round(time.monotonic() - begun, 1)
            writer.event("progress", message=f"{settings.name} answers, {seconds:g} s after its start")
            progress.message(f"{settings.name} answers after {seconds:g} s; ends after {config.serve.idle_s:g} s idle")
            _until_idle(server, config.serve.idle_s, stop)
    writer.event("progress", message=f"nobody asked for {config.serve.idle_s:g} s, so it ends")


def serve_settings(config: ServeConfig, ref: ModelRef, *, key: str) -> ServeSettings:
    """The server that a config describes."""
    serve = config.serve
    extra = ["--limit-mm-per-prompt", f'{{"image": {serve.max_images}, "video": 0}}']
    extra += ["--max-model-len", str(serve.max_model_len)] if serve.max_model_len else []
    extra += ["--gpu-memory-utilization", str(serve.memory_share)]
    return ServeSettings(
        model=ref.model,
        name=ref.label,
        host=_own_address() if serve.host == WORKER_HOST else serve.host,
        port=serve.port,
        dtype=config.model.dtype,
        wait_s=serve.wait_s,
        extra=tuple(extra),
        key=key,
        kv_cache_gb=serve.kv_cache_gb,
    )


def _until_idle(server: Server, idle_s: float, stop: StopRequest) -> None:
    """Looks once a second, more often only for a request to stop."""
    seen, since = "", time.monotonic()
    with stop.between_steps():
        while time.monotonic() - since < idle_s:
            server.check()
            activity = _activity(server)
            if activity is None or activity != seen or activity.startswith("busy"):
                seen, since = activity or seen, time.monotonic()
            end = time.monotonic() + min(_LOOK_S, idle_s / 4)
            while time.monotonic() < end:
                if stop.is_requested:
                    stop.raise_after(0, is_saved=False)
                time.sleep(_SLICE_S)


def _activity(server: Server) -> str | None:
    """None where the server is too busy to tell."""
    import httpx

    with contextlib.suppress(httpx.HTTPError, ValueError):
        return server.activity()
    return None


def _own_address() -> str:
    """That which a route to elsewhere begins with; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return socket.gethostbyname(socket.gethostname())
