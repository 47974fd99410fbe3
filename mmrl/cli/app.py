"""`mmrl`: the commands by name. Each is loaded when it is called, so `mmrl --help` answers at once and needs no torch.

To add a command, write `mmrl/cli/NAME.py` with a Typer named `app`, or a function NAME, and add a line to COMMANDS.
Commands raise MmrlError; how errors are told and which exit code they end in is in `failures`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from mmrl import __version__
from mmrl.cli.failures import report_failure
from mmrl.cli.lazy import LazyCommand, LazyGroup
from mmrl.cli.logs import VerboseOption

COMMANDS = (
    LazyCommand("quickstart", "mmrl.cli.quickstart", "Train a tiny vision-language model on real images, in minutes."),
    LazyCommand("run", "mmrl.cli.run", "Run a config in a new run directory."),
    LazyCommand("train", "mmrl.cli.train", "Train a config in a run directory that you name."),
    LazyCommand("job", "mmrl.cli.job", "Submit runs to workers, watch, stop and resume them."),
    LazyCommand("pipeline", "mmrl.cli.pipeline", "Run steps that take each other's results."),
    LazyCommand("dataset", "mmrl.cli.dataset", "Add, list, show, validate, split and export data sets."),
    LazyCommand("reward", "mmrl.cli.reward", "List rewards and try them on answers."),
    LazyCommand("sample", "mmrl.cli.sample", "Read the responses that a run sampled."),
    LazyCommand("checkpoint", "mmrl.cli.checkpoint", "List, keep, evaluate, compare and export checkpoints."),
    LazyCommand("serve", "mmrl.cli.serve", "Serve a checkpoint with vLLM's OpenAI-compatible server."),
    LazyCommand("console", "mmrl.cli.console", "Open the web console, with a worker beside it."),
    LazyCommand("worker", "mmrl.cli.worker", "Run jobs of the queue on this machine."),
    LazyCommand("pool", "mmrl.cli.pool", "List pools and limit how many jobs run at once in one."),
    LazyCommand("user", "mmrl.cli.user", "Add people, list them, and set what they may do."),
    LazyCommand("token", "mmrl.cli.token", "Make, list and revoke tokens."),
    LazyCommand("db", "mmrl.cli.db", "Bring the job database to this version of mmrl."),
    LazyCommand("config", "mmrl.cli.config", "Show, compare and describe configs."),
    LazyCommand("doctor", "mmrl.cli.doctor", "Tell what is installed, which devices, what works."),
)


class _Mmrl(LazyGroup):
    lazy_commands = COMMANDS


app = typer.Typer(
    cls=_Mmrl,
    name="mmrl",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mmrl {__version__}")
        raise typer.Exit


VersionOption = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
]


@app.callback()
def root(verbose: VerboseOption = 0, version: VersionOption = False) -> None:
    """Train vision-language models with reinforcement learning from rewards and from people.

    Data goes to stdout, progress and errors to stderr. Exit codes: 0 done, 1 failed, 2 wrong use, 3 not found,
    5 conflict, 6 the run failed, 7 it was cancelled, 130 interrupted.
    """
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def main(args: Sequence[str] | None = None) -> int:
    """Run one command line (that of the process if not given) and return its exit code."""
    _open_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    words = list(sys.argv[1:] if args is None else args)
    try:
        typer.main.get_command(app).main(args=words, prog_name="mmrl")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception as error:
        return report_failure(error, words)
    return 0


def _open_closed_streams() -> None:
    """A stream that the caller closed (`2>&-`) is none at all, and its number would be given to the next file."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))


if __name__ == "__main__":
    sys.exit(main())
