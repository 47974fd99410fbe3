"""A reward function that misbehaves on demand, and what tests of the reward processes share."""

from __future__ import annotations

import time
from pathlib import Path

from mmrl.config.reward import FunctionRewardConfig
from mmrl.rewards import RewardRunner
from mmrl.types import Message, RewardResult, Rollout, RolloutGroup, Sample, TextPart

DEADLINE_S = 1.0

MISCHIEF = """
import asyncio, os, signal, subprocess, sys, time

kept = []

def note_pid(pid, arguments):
    with open(arguments, "a") as file:
        file.write(f"{pid}\\n")

def score(response, pid_file):
    match response:
        case "sleep":
            time.sleep(1000)
        case "take most of the deadline":
            time.sleep(0.8)
        case "sleep without mercy":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            note_pid(os.getpid(), pid_file)
            note_pid(subprocess.Popen(["sleep", "1000"]).pid, pid_file)
            time.sleep(1000)
        case "raise":
            raise ValueError("no good")
        case "raise what cannot be sent":
            raise type("Odd", (Exception,), {"__reduce__": lambda self: 1 / 0, "__str__": lambda self: 1 / 0})()
        case "kill the parent":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(1000)
        case "exit":
            sys.exit(3)
        case "interrupt":
            raise KeyboardInterrupt
        case "leave":
            os._exit(0)
        case "leave with a code":
            os._exit(9)
        case "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        case "leave a child and go":
            note_pid(subprocess.Popen(["sleep", "1000"]).pid, pid_file)
            os._exit(1)
        case "text":
            return "1.0"
        case "list":
            return [0.5]
        case "nan":
            return float("nan")
        case "no score":
            return {"acc": 1}
        case "memory":
            kept.append(bytearray(4 * 2**30))
        case "leak":
            kept.append(bytearray(60 * 2**20))
        case "print":
            print("x" * 2**20)
            for _ in range(512):  # a gigabyte
                sys.stdout.buffer.write(b"x" * 2**20)
                sys.stderr.buffer.write(b"x" * 2**20)
        case "fork":
            pid = os.fork()
            if pid == 0:
                time.sleep(0.3)
            else:
                note_pid(pid, pid_file)
        case "fork away":
            pid = os.fork()
            if pid == 0:
                os.setsid()
                time.sleep(1000)
            note_pid(pid, pid_file)
        case "long":
            return {"score": 1, "explanation": "x" * 10**7}
        case "torch":
            return "torch" in sys.modules
        case "none":
            return None
        case number if number.startswith("#"):
            with open(pid_file + "-numbers", "a") as file:
                file.write(f"{number}\\n")
            return float(number[1:])
    return {"score": 1.0, "explanation": str(os.getpid())}

def batched(response, num_tokens):
    if "raise" in response:
        raise ValueError("no good")
    if "short" in response:
        return [1.0]
    if "sleep" in response:
        time.sleep(1000)
    return [float("nan") if text == "nan" else len(response) for text in response]

async def later(response):
    await asyncio.sleep(0.01)
    return len(response)
"""


def write_mischief(folder: Path) -> Path:
    """The function `score` of this file does what its response says."""
    file = folder / "mischief.py"
    file.write_text(MISCHIEF)
    return file


def config(file: Path, **settings: object) -> FunctionRewardConfig:
    pid_file = str(file.with_suffix(".pids"))
    arguments = {"timeout_s": DEADLINE_S, "arguments": {"pid_file": pid_file}, **settings}
    return FunctionRewardConfig(path=str(file), **arguments)  # type: ignore[arg-type]


def sample(id: str = "s") -> Sample:
    return Sample(id, (Message("user", (TextPart("?"),)),), "7")


def try_out(runner: RewardRunner, *texts: str) -> list[RewardResult]:
    return runner.score_texts([(sample(f"s{position}"), text) for position, text in enumerate(texts)])


def rollout_group(*texts: str) -> RolloutGroup:
    rollouts = (Rollout("s", index, (1,), (1,), (0.0,), "stop", text, 0, 0) for index, text in enumerate(texts))
    return RolloutGroup(sample(), tuple(rollouts))


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def assert_gone(pids: list[int]) -> None:
    assert pids
    until = time.monotonic() + 10
    while time.monotonic() < until and any(map(is_alive, pids)):
        time.sleep(0.05)
    assert [pid for pid in pids if is_alive(pid)] == []


def noted_pids(file: Path) -> list[int]:
    pid_file = file.with_suffix(".pids")
    pids = [int(line) for line in pid_file.read_text().split()]
    pid_file.unlink()
    return pids


def server_pid(runner: RewardRunner) -> int:
    assert runner._pool is not None
    assert runner._pool._process is not None
    return runner._pool._process.pid
