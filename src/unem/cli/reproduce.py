"""The command ``reproduce``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from unem.cli._cells import conclude, execute_cells, print_left_out, print_plan
from unem.cli._options import ExecutionOptions, execution_options
from unem.cli._output import err, note, out, say
from unem.cli.app import RESEARCH, command

if TYPE_CHECKING:
    from unem.experiments import ResultsStore

__all__: list[str] = []


@command(
    "reproduce",
    panel=RESEARCH,
    epilog="Examples:  unem reproduce table1 --features features     unem reproduce all --features features "
    "--tasks 200\n\n"
    "Without the slow methods:  unem reproduce table1 --features features --methods '!alpha-*,!tim-*,!lr-ici'",
)
@execution_options()
def reproduce_command(
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="A recipe, or 'all'; left out, they are listed.")
    ] = None,
    features: Annotated[Path, typer.Option(help="Folder of feature files called BACKBONE__DATASET.")] = Path(
        "features"
    ),
    methods: Annotated[
        str | None,
        typer.Option(
            help="Only these of the recipe's methods: globs, comma separated; !GLOB leaves out.", show_default=False
        ),
    ] = None,
    stand_in: Annotated[
        str | None,
        typer.Option(
            help="Files that stand in for the paper's, comma separated.  [default: the recipe's]", show_default=False
        ),
    ] = None,
    execution: ExecutionOptions,
) -> None:
    """Compute the paper's tables and figures: our numbers beside its numbers, and whether its claims hold.

    Other feature files may stand in for the paper's; they are shown under their own names. Missing files are listed,
    with how to get them.
    """
    from unem.experiments import FeatureFolder, Plan, ResultsStore
    from unem.experiments.paper import check_methods, list_recipes, plan_recipe, recipe

    if name is None:
        _print_recipes()
        return
    chosen = list_recipes() if name == "all" else [recipe(name)]
    check_methods(methods, chosen)
    folder = FeatureFolder(features)
    plans = [plan_recipe(r, folder, execution.overrides, methods=methods, stand_in=stand_in) for r in chosen]
    total = sum((p.plan for p in plans), Plan())
    if execution.dry_run:
        print_plan(total, execution.results)
        _print_missing(plans)
        return
    store = ResultsStore(execution.results)
    for p in plans:
        store.save_plan(p.recipe.name, p.to_dict(), adds=True)
    done = execute_cells(total.cells, store, features, execution)
    if not execution.quiet:
        for p in plans:
            _print_recipe(p, store)
        _print_missing(plans)
    print_left_out(total.left_out)
    conclude(done, len(total.cells), execution)


def _print_recipes() -> None:
    from unem.experiments.paper import citation, list_recipes

    table = Table("recipe", "what it is", box=box.SIMPLE_HEAD, pad_edge=False)
    for r in list_recipes():
        table.add_row(r.name, r.title)
    out.print(table)
    out.print(citation(), highlight=False)


def _print_recipe(planned: Any, store: ResultsStore) -> None:
    from unem.experiments.paper import check_claims, depth_rows, entries, grid

    rows = [row for cell in planned.plan.cells if (row := store.get(cell.name))]
    out.print(f"\n[bold]{escape(planned.recipe.title)}[/]", highlight=False)
    found = entries(planned.recipe, rows, planned.stand_ins)
    for places in grid(found):
        out.print(_table(places, planned.stand_ins))
    _print_depth(depth_rows(found))
    for check in check_claims(planned.recipe.claims, rows):
        colour = {"seen": "green", "not seen": "red"}.get(check.verdict, "yellow")
        out.print(
            f"{check.claim} ({check.where}): [{colour}]{check.verdict}[/], {escape(check.seen)}",
            highlight=False,
            soft_wrap=True,
        )


def _table(places: Any, stand_ins: Mapping[str, str]) -> Table:
    """One table of the paper: a row for each method, a column for each setting, ours beside the paper's."""
    why = stand_ins.get(places.title)
    title = places.title + (f": stands in ({why})" if why else "")
    table = Table(title=escape(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    table.add_column("method", min_width=14, overflow="fold")
    for column, features in places.features.items():
        stands_in = column != places.title and features == column and features in stand_ins
        heading = column.replace(", ", "\n").replace("__", "__\n")  # a terminal is narrow
        table.add_column(f"{heading}\n(stands in)" if stands_in else heading, justify="right", no_wrap=False)
    for label in places.labels:
        cells = (_place_text(places.places.get((label, c), ()), places.best(c)) for c in places.columns)
        table.add_row(label, *cells)
    return table


def _print_depth(rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        names = [n for n in rows[0] if any(r[n] is not None for r in rows)]
        table = Table(*names, box=box.SIMPLE_HEAD, pad_edge=False)
        for row in rows:
            table.add_row(*(f"{row[n]:.3g}" if isinstance(row[n], float) else str(row[n] or "") for n in names))
        out.print(table)


def _place_text(found: Sequence[Any], best: float) -> str:
    """Ours, and the paper's with the difference; over several training seeds the mean and their range."""
    from unem.experiments.paper import mean_accuracy

    if not found:
        return ""
    accuracy = mean_accuracy(found)
    text = f"{accuracy:.1f}"
    if len(found) > 1:
        values = [e.columns["accuracy"] for e in found]
        text += f" ({min(values):.1f}–{max(values):.1f}, {len(found)} seeds)"
    elif found[0].columns["interval"] is not None:
        text += f" ± {found[0].columns['interval']:.1f}"
    text = f"[bold]{text}[/]" if accuracy == best else text
    if found[0].paper is not None:
        text += f"\npaper {found[0].paper:.1f}, {found[0].difference}"
    return text


def _print_missing(plans: Iterable[Any]) -> None:
    missing: dict[str, str] = {}
    for p in plans:
        missing |= p.missing
    by_how: dict[str, list[str]] = {}
    for name, how in missing.items():
        by_how.setdefault(how, []).append(name)
    for how, names in by_how.items():
        note(f"{', '.join(names)}: {how}", "missing")
    if missing:
        say(
            "Save them with unem.FeatureSet(…).save('BACKBONE__DATASET.safetensors'); docs/reproduce.md says how.",
            err,
        )
