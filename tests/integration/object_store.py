"""An S3-compatible server in a thread of the test process, on a free port of 127.0.0.1."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def s3_server(monkeypatch: pytest.MonkeyPatch, *buckets: str) -> Iterator[str]:
    """The endpoint; the environment names it and made-up keys, as a user's would."""
    import boto3
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    for name, value in {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "a-secret-of-the-store",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    client = boto3.client("s3", endpoint_url=endpoint)
    for bucket in buckets:
        client.create_bucket(Bucket=bucket)
    try:
        yield endpoint
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.stop()
