"""`mmrl serve`: vLLM's OpenAI-compatible server on a checkpoint."""

from __future__ import annotations

from typing import Annotated

import typer

from mmrl.cli.logs import VerboseOption
from mmrl.cli.output import JsonOption, note, print_json

ModelArgument = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT", help="RUN or RUN@STEP (a number, best or last), or the folder of a checkpoint or a model."
    ),
]
StepOption = Annotated[str | None, typer.Option(metavar="N|best|last", show_default=False, help="The step of a run.")]
PortOption = Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes a free one.")]
HostOption = Annotated[str, typer.Option(help="Address to listen on; another than this machine's own lets others in.")]
NameOption = Annotated[
    str | None, typer.Option(show_default=False, help="Name of the model in requests; RUN@STEP if not given.")
]
DtypeOption = Annotated[str, typer.Option(help="Precision: auto, bfloat16, float32, float16.")]
WaitOption = Annotated[float, typer.Option(min=1, help="Seconds to wait until it answers.")]
ExtraArgument = Annotated[
    list[str] | None, typer.Argument(metavar="-- VLLM OPTIONS", show_default=False, help="Passed on to vLLM.")
]


def serve(
    checkpoint: ModelArgument,
    extra: ExtraArgument = None,
    step: StepOption = None,
    port: PortOption = 8000,
    host: HostOption = "127.0.0.1",
    name: NameOption = None,
    dtype: DtypeOption = "auto",
    wait_s: WaitOption = 600.0,
    verbose: VerboseOption = 0,
    json: JsonOption = False,
) -> None:
    """Serve a checkpoint with vLLM's OpenAI-compatible server until Ctrl-C or SIGTERM.

    Prints the address once it answers. What is behind -- goes to vLLM, such as -- --max-model-len 4096.
    """
    from mmrl.runs.checkpoint_refs import resolve_model
    from mmrl.serving.server import ServeSettings, serving
    from mmrl.trainer.checkpoint_folder import check_model

    ref = resolve_model(checkpoint, step)
    check_model(ref)
    settings = ServeSettings(
        model=ref.model,
        name=name or ref.label,
        host=host,
        port=port,
        dtype=dtype,
        wait_s=wait_s,
        quiet=not verbose,
        extra=tuple(extra or ()),
    )
    with serving(settings, say=note) as server:
        if json:
            print_json({"url": server.url, "model": settings.name, "pid": server.pid})
        else:
            print(f"{server.url}/v1 serves {settings.name}", flush=True)
        server.wait()
