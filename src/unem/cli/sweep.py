"""The command ``sweep``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unem._io import check_exists
from unem.cli._cells import conclude, execute_cells, print_left_out, print_plan
from unem.cli._options import ExecutionOptions, execution_options
from unem.cli.app import RESEARCH, command
from unem.errors import InputError

__all__: list[str] = []


@command(
    "sweep",
    panel=RESEARCH,
    epilog="Example:  unem sweep sweep.toml --features features -o results\n\n"
    "On a cluster:  unem sweep sweep.toml --features features -o results --engine ray --address auto",
)
@execution_options()
def sweep_command(
    *,
    spec: Annotated[
        Path, typer.Argument(metavar="SPEC.toml", help="TOML file; all combinations of its lists are computed.")
    ],
    features: Annotated[
        Path | None,
        typer.Option(help="Folder of feature files.  [default: features_dir of the spec]", show_default=False),
    ] = None,
    execution: ExecutionOptions,
) -> None:
    """Compute all combinations of a file: datasets × methods × variants × shots × protocols × seeds.

    It may be stopped at any time and in any way: finished rows stay, and the same command computes the rest.
    """
    check_exists(spec, "spec")
    from unem.experiments import FeatureFolder, ResultsStore, expand, read_spec

    asked = read_spec(spec)
    folder = features or asked.features
    if folder is None:
        raise InputError("--features: a folder of feature files is needed, here or as features_dir in the spec")
    plan = expand(asked, FeatureFolder(folder), execution.overrides)
    if execution.dry_run:
        print_plan(plan, execution.results)
        return
    store = ResultsStore(execution.results)
    store.save_plan(asked.name, plan.to_dict(title=asked.title or asked.name))
    done = execute_cells(plan.cells, store, folder, execution)
    print_left_out(plan.left_out)
    conclude(done, len(plan.cells), execution)
