"""The worker: what stands between the job database and the trainers.

worker        `Worker`, the loop: claims, watches, takes over
supervised    one job from its lease to its end; starting: from the lease to a process; outcome: what its end means
launcher      how attempts are started and found again; process_launcher, ray_launcher: as processes, as Ray jobs
recovery      what workers left behind is adopted, finished or given back
beats         the thread that extends leases; indexing, indexer, compaction: run directories into the database
processes     who is who on this machine; gpus: what NVML says
telemetry     /metrics and /healthz
"""
