"""What a placement asks of this machine that it has not: told before a run, and no reason to refuse planning one."""

from __future__ import annotations

import os

import torch

from mmrl.config.placement import PlacementConfig


def machine_notes(placement: PlacementConfig) -> list[str]:
    """Sentences for people; none for a run in one process, and only that nothing was looked at for another cluster."""
    if placement.executor == "inline":
        return []
    if placement.address is not None:
        return [f"whether the cluster at {placement.address} has room for the pools is found out when the run starts"]
    notes = []
    gpus = sum(pool.workers * pool.gpus_per_worker for pool in placement.pools.values())
    if gpus > torch.cuda.device_count():
        notes.append(
            f"the pools ask for {gpus:g} GPUs and this machine has {torch.cuda.device_count()}: the run can be planned "
            "here and not started; set placement.address for a cluster"
        )
    threads = sum(pool.workers * pool.num_threads for pool in placement.pools.values())
    cores = os.cpu_count() or 1
    if threads > cores:
        notes.append(
            f"the pools have {threads} threads on {cores} cores, which take turns; fewer workers or "
            "placement.pools.NAME.threads would be faster"
        )
    return notes
