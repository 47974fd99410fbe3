"""A policy on workers: what the loop drives where its engines live in pools.

proxies        the loop's side: the protocols of `engines.base`, a batch divided by rows (`shares`) and put together
worker         a rank's side: `PolicyWorker`, called through a worker group
roles          what a rank holds: actor, critic, reference and rollout engine, built from the config
weight_stream  weights on their way to a rollout engine in another pool
"""
