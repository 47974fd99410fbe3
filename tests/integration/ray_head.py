"""A Ray cluster of one node with its dashboard, in a process group and a folder of its own, for tests of Ray jobs."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import psutil


class RayHead:
    """Made by `begin`. restart: as when the machine of the head comes back: Ray has forgotten every job."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="mmrl-rh-"))
        self._ports = _free_ports(3)
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    def begin(cls) -> RayHead:
        head = cls()
        try:
            head.start()
        except BaseException:
            head.end()
            raise
        return head

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._ports[1]}"

    def start(self) -> None:
        gcs, dashboard, agent = self._ports
        ray = Path(sys.executable).parent / "ray"
        words = [
            *(str(ray), "start", "--head", "--block", "--node-ip-address=127.0.0.1", f"--port={gcs}"),
            *("--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"),
            *("--num-cpus=2", "--object-store-memory=80000000", f"--temp-dir={self.folder}", "--disable-usage-stats"),
        ]
        with (self.folder / "start.log").open("ab") as log:
            self._process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        self._wait_until_it_answers()

    def kill(self) -> None:
        """Everything of it at once, the jobs' processes too."""
        for process in self._processes():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self._process is not None:
            self._process.wait()

    def restart(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir()
        self._ports = [self._ports[0], self._ports[1], *_free_ports(1)]
        self.start()

    def end(self) -> None:
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _processes(self) -> list[psutil.Process]:
        """Those whose command line names the folder, and all below them."""
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if str(self.folder) in " ".join(process.cmdline()):
                    found |= {each.pid: each for each in (process, *process.children(recursive=True))}
        return list(found.values())

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + 120
        while True:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{self.address}/api/version", timeout=5).read()
                return
            assert self._process is not None
            assert self._process.poll() is None, (self.folder / "start.log").read_text()
            assert time.monotonic() < deadline, (self.folder / "start.log").read_text()
            time.sleep(0.3)


def _free_ports(number: int) -> list[int]:
    probes = [socket.socket() for _ in range(number)]
    for probe in probes:
        probe.bind(("127.0.0.1", 0))
    ports = [int(probe.getsockname()[1]) for probe in probes]
    for probe in probes:
        probe.close()
    return ports
