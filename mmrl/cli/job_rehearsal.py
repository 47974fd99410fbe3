"""`--dry-run`: what a config would do and how its job would stand, with nothing written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mmrl.cli.output import print_json

if TYPE_CHECKING:
    from mmrl.config import LoadedConfig
    from mmrl.jobs.jobs import Jobs
    from mmrl.jobs.records import NewJob


def rehearse(jobs: Jobs, new: NewJob, loaded: LoadedConfig, *, json: bool) -> None:
    """Everything that submitting checks, then the preflight of the run, which is left out where the config takes of
    other jobs what is not there yet. Raises as both do."""
    from mmrl.jobs.references import unready_references

    job, reason = jobs.rehearse(new)
    unready = unready_references(new.config, jobs)
    report = None if unready else _report(loaded, jobs)
    if json:
        needs = {"pool": job.pool, "cpus": job.cpus, "gpus": job.gpus, "backend": job.backend}
        told = {"name": job.name, **needs, "pending": reason.message}
        print_json({**_plain(loaded, report), "unready": unready, "job": told})
        return
    print("\n".join([*unready, "preflight: left out for that"] if unready else _lines(loaded, report)))
    print(f"job: {job.cpus} cpus, {job.gpus} gpus in pool {job.pool}; it would wait: {reason.message}")


def print_preflight(loaded: LoadedConfig, *, json: bool) -> None:
    """What a run of the config would do."""
    report = _report(loaded)
    if json:
        print_json(_plain(loaded, report))
    else:
        print("\n".join(_lines(loaded, report)))


def _report(loaded: LoadedConfig, jobs: Jobs | None = None) -> Any:
    """The preflight of a run that trains; None for other kinds, which have nothing to measure beforehand.

    jobs: looks up what the config takes of other jobs, which must have succeeded. Raises NotFoundError.
    """
    from mmrl.config import RunConfig

    if not isinstance(loaded.config, RunConfig):
        return None
    from mmrl.trainer.preflight import preflight

    if jobs is None:
        return preflight(loaded.config)
    from mmrl.jobs.references import resolve_references

    data = loaded.config.model_dump(mode="json")
    resolved = resolve_references(data, jobs)
    return preflight(loaded.config if resolved == data else RunConfig.model_validate(resolved))


def _plain(loaded: LoadedConfig, report: Any) -> dict[str, Any]:
    from mmrl.config import plain_config

    return {"config": plain_config(loaded.config), "preflight": None if report is None else report.to_json()}


def _lines(loaded: LoadedConfig, report: Any) -> list[str]:
    if report is not None:
        return list(report.lines)
    return [f"kind {loaded.config.kind} trains nothing: its config is whole, and data and models are read when it runs"]
