"""`mmrl run`: a config from start to end in a new run directory under MMRL_HOME/runs."""

from __future__ import annotations

from mmrl.cli.arguments import ConfigArgument, DryRunOption, OverridesArgument
from mmrl.cli.logs import VerboseOption
from mmrl.cli.output import JsonOption, print_json
from mmrl.cli.train import train_and_tell


def run(
    config: ConfigArgument,
    overrides: OverridesArgument = None,
    dry_run: DryRunOption = False,
    verbose: VerboseOption = 0,
    json: JsonOption = False,
) -> None:
    """Run a config in a new run directory, MMRL_HOME/runs/NAME-DATE-TIME."""
    from mmrl.config import load_config, plain_config

    loaded = load_config(config, overrides or ())
    if not dry_run:
        from mmrl.runs.layout import new_run_dir

        train_and_tell(loaded, new_run_dir(loaded.config.name), resume="never", json=json)
        return
    from mmrl.trainer.preflight import preflight

    report = preflight(loaded.run_config)
    if json:
        print_json({"config": plain_config(loaded.config), "preflight": report.to_json()})
    else:
        print("\n".join(report.lines))
