"""Commands for many results at once: ``sweep``, ``reproduce``, ``results`` and ``report``."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from unem._io import check_writable, to_json, write_aside
from unem.cli.common import Device, Quiet, app, check_device, command, emit_json, err, out, progress_bars
from unem.errors import InputError
from unem.experiments import FeatureFolder, LeftOut, Plan, Progress, ResultsStore, execute, expand, read_spec
from unem.experiments.cells import Cell
from unem.experiments.execute import Engine, Execution
from unem.experiments.store import COLUMNS, flat, to_csv

__all__: list[str] = []

results_app = typer.Typer(help="Look at a folder of results.", no_args_is_help=True)
app.add_typer(results_app, name="results")

Results = Annotated[
    Path, typer.Option("--results", "-o", help="Folder for the rows; what it has is not computed again.")
]
ResultsFolder = Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder of results.")]
EngineName = Annotated[str, typer.Option(help="local (processes here) or ray (a cluster).")]
Address = Annotated[
    str | None,
    typer.Option(help="Ray cluster, such as auto or HOST:PORT; left out, one is started here.", show_default=False),
]
Workers = Annotated[
    int | None, typer.Option(help="Jobs at once.  [default: cores, or GPUs]", show_default=False, min=1)
]
TasksOverride = Annotated[
    int | None, typer.Option(help="Tasks per cell, instead of what is asked for.", show_default=False, min=1)
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be computed, and stop.")]


# -- sweep ----------------------------------------------------------------------------------------------------------------


@app.command(
    epilog="Example:  unem sweep sweep.toml --features features -o results\n\n"
    "On a cluster:  unem sweep sweep.toml --features features -o results --engine ray --address auto"
)
@command
def sweep(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.toml", help="Blocks of cells; a list is swept.")],
    results: Results = Path("unem-results"),
    features: Annotated[
        Path | None,
        typer.Option(help="Folder of feature files.  [default: features_dir of the spec]", show_default=False),
    ] = None,
    engine: EngineName = "local",
    address: Address = None,
    workers: Workers = None,
    device: Device = "cpu",
    tasks: TasksOverride = None,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Compute all combinations of a file: datasets × methods × variants × shots × protocols × seeds.

    Stop it at any moment, in any way: rows that are done stay, and the same command computes the rest.
    """
    asked = read_spec(spec)
    where = features or asked.features
    if where is None:
        raise InputError("--features: a folder of feature files is needed, here or as features_dir in the spec")
    plan = expand(asked, FeatureFolder(where), {"tasks": tasks} if tasks else None)
    if dry_run:
        _print_plan(plan, ResultsStore(results, create=False) if results.is_dir() else None)
        return
    store = ResultsStore(results)
    store.save_plan(asked.name, plan.to_dict(title=asked.title or asked.name))
    done = _execute(plan.cells, store, where, engine, address, workers, device, quiet)
    _print_left_out(plan.left_out)
    _conclude(done, len(plan.cells), results, quiet)


def _execute(
    cells: Sequence[Cell],
    store: ResultsStore,
    features: Path,
    engine: str,
    address: str | None,
    workers: int | None,
    device: str,
    quiet: bool,
) -> Execution:
    store.tidy()
    for name in store.damaged():
        err.print(f"[bold yellow]note:[/] {name}.json is damaged; it is computed again if it is wanted", soft_wrap=True)
    if all(cell.name in store for cell in cells):
        return Execution(found=len({cell.name for cell in cells}))  # no need to start workers
    # With Ray it is the nodes that need the device, not this machine.
    made = _engine(engine, features, address, workers, device if engine == "ray" else check_device(device))
    try:
        with progress_bars(quiet, "{task.fields[rate]}", "{task.fields[news]}") as progress:
            bar = progress.add_task("cells", total=len(cells), rate="", news="")

            def tell(now: Progress) -> None:
                rate = f"{now.rate:.2g} cells/s" if now.rate else ""
                rate += f", {now.failed} failed" if now.failed else ""
                progress.update(bar, completed=now.done, total=now.total, rate=rate, news=now.news)

            return execute(cells, store, made, tell)
    except KeyboardInterrupt:
        count = sum(cell.name in store for cell in cells)
        err.print(
            f"{count} of {len(cells)} cells are done and kept; the same command computes the rest", highlight=False
        )
        raise
    finally:
        made.close()


def _engine(name: str, features: Path, address: str | None, workers: int | None, device: str) -> Engine:
    if name == "local":
        from unem.experiments.engines.local import LocalEngine

        if address:
            raise InputError("--address: goes with --engine ray")
        return LocalEngine(features, workers=workers, device=device)
    if name == "ray":
        from unem.experiments.engines.ray import RayEngine

        return RayEngine(features, address=address, device=device, workers=workers)
    raise InputError(f"--engine: expected local or ray, got {name!r}")


def _print_plan(plan: Plan, store: ResultsStore | None) -> None:
    table = Table(
        "cell", "features", "method", "settings", "shots", "K_eff", "|Q|", "tasks", "seed", box=box.SIMPLE_HEAD
    )
    for cell in plan.cells:
        protocol, there = cell.protocol, store is not None and cell.name in store
        settings = ", ".join(f"{k}={v}" for k, v in cell.settings.items())
        numbers = (protocol.shots, protocol.effective_classes, protocol.queries, cell.tasks, cell.seed)
        name = cell.name[:8] + (" ✓" if there else "")
        table.add_row(name, cell.images.features, cell.method, settings, *map(str, numbers))
    out.print(table)
    out.print(f"{len(plan.cells)} cells; ✓ are there already", highlight=False)
    _print_left_out(plan.left_out)


def _print_left_out(left_out: Iterable[LeftOut]) -> None:
    for x in left_out:
        text = f"[bold yellow]left out:[/] {x.method} on {x.features}: {escape(x.reason)}"
        err.print(text, soft_wrap=True, highlight=False)


def _conclude(done: Execution, cells: int, results: Path, quiet: bool) -> None:
    if not quiet:
        computed = cells - done.found - len(done.failed)
        speed = f" in {done.seconds:.1f} s" if computed else ""
        out.print(
            f"{cells} cells: {done.found} were there, {computed} computed{speed}, {len(done.failed)} failed; rows in {results}",
            highlight=False,
            soft_wrap=True,
        )
    reasons: dict[str, list[str]] = {}
    for name, reason in done.failed.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        some = ", ".join(n[:8] for n in names[:5]) + (" …" if len(names) > 5 else "")
        err.print(
            f"[bold red]failed:[/] {len(names)} cells ({some}): {escape(reason)}", soft_wrap=True, highlight=False
        )
    if done.failed:
        raise typer.Exit(1)


# -- results --------------------------------------------------------------------------------------------------------------


def _selected(store: ResultsStore, where: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of cells as columns, those that match all of ``COLUMN=GLOB``."""
    wanted = []
    for pair in where:
        column, equals, glob = pair.partition("=")
        if not equals or column not in COLUMNS:
            raise InputError(f"--where: expected COLUMN=GLOB with one of {', '.join(COLUMNS)}, got {pair!r}")
        wanted.append((column, glob))
    rows = [flat(row) for row in store if row["key"]["kind"] == "cell"]
    rows = [r for r in rows if all(fnmatch.fnmatch("" if r[c] is None else str(r[c]), g) for c, g in wanted)]
    return sorted(rows, key=lambda r: (r["features"], r["method"], r["shots"], r["variant"], r["settings"], r["name"]))


Where = Annotated[
    list[str] | None,
    typer.Option("--where", help="Only rows with COLUMN=GLOB, such as method=unem-*; repeatable.", show_default=False),
]


@results_app.command("ls", epilog="Example:  unem results ls results --where method=unem-* --where shots=5")
@command
def results_ls(results: ResultsFolder, where: Where = None) -> None:
    """List the rows: what was measured, and what came out."""
    store = ResultsStore(results, create=False)
    rows = _selected(store, where or [])
    table = Table("row", "features", "method", "variant or settings", box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("shots", "K_eff", "|Q|", "tasks", "accuracy %", "ms/task"):
        table.add_column(title, justify="right", no_wrap=True)
    for r in rows:
        detail = ", ".join(x for x in (r["variant"], r["settings"]) if x and x != "adaptive")
        detail += f" (learned on {r['learned_on']})" if r["learned_on"] else ""
        numbers = (r["shots"], r["effective_classes"], r["queries"], r["tasks"])
        accuracy = f"{r['accuracy']:.1f}" + ("" if r["interval"] is None else f" ± {r['interval']:.1f}")
        table.add_row(
            r["name"][:8], r["features"], r["method"], detail, *map(str, numbers), accuracy, f"{r['ms_per_task']:.3g}"
        )
    out.print(table)
    out.print(f"{len(rows)} rows", highlight=False)
    for name in store.damaged():
        err.print(f"[bold yellow]damaged:[/] {name}.json", highlight=False)


@results_app.command("show", epilog="Example:  unem results show results 3fa2")
@command
def results_show(
    results: ResultsFolder, name: Annotated[str, typer.Argument(help="The row's name, or how it begins.")]
) -> None:
    """Print a row as JSON: what determines it, what came out, and how the run went."""
    emit_json(ResultsStore(results, create=False).find(name), "-")


@results_app.command("export", epilog="Example:  unem results export results -o rows.csv --where features=clip-*")
@command
def results_export(
    results: ResultsFolder,
    output: Annotated[
        str, typer.Option("--output", "-o", help="A .csv, .json or .md file, by its ending; '-' prints CSV.")
    ] = "-",
    where: Where = None,
) -> None:
    """Write the rows as one table."""
    rows = _selected(ResultsStore(results, create=False), where or [])
    if output == "-":
        sys.stdout.write(to_csv(rows))
        return
    writers = {".csv": to_csv, ".json": to_json, ".md": _markdown}
    ending = Path(output).suffix
    if ending not in writers:
        raise InputError(f"--output: expected a name that ends in {', '.join(writers)}, or '-', got {output!r}")
    with write_aside(output) as aside:
        aside.write_text(writers[ending](rows), encoding="utf-8")


def _markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for row in rows:
        cells = (
            "" if row[c] is None else f"{row[c]:.4g}" if isinstance(row[c], float) else str(row[c]) for c in COLUMNS
        )
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


# -- reproduce ------------------------------------------------------------------------------------------------------------


@app.command(
    epilog="Examples:  unem reproduce table1 --features features     unem reproduce all --features features --tasks 200\n\n"
    "Without the slow methods:  unem reproduce table1 --features features --methods '!alpha-*,!tim-*,!lr-ici'"
)
@command
def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="A recipe, or 'all'; left out, they are listed.")
    ] = None,
    features: Annotated[Path, typer.Option(help="Folder of feature files called BACKBONE__DATASET.")] = Path(
        "features"
    ),
    results: Results = Path("unem-results"),
    engine: EngineName = "local",
    address: Address = None,
    workers: Workers = None,
    device: Device = "cpu",
    tasks: TasksOverride = None,
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
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """The paper, table by table: ours beside its numbers, and whether its claims are seen.

    Files that are not the paper's may stand in; they are shown under their own names. What is missing is listed, with how to get it.
    """
    from unem.experiments.paper import list_recipes, plan_recipe, recipe

    if name is None:
        _print_recipes()
        return
    chosen = list_recipes() if name == "all" else [recipe(name)]
    folder = FeatureFolder(features)
    overrides = {"tasks": tasks} if tasks else None
    plans = [plan_recipe(r, folder, overrides, methods=methods, stand_in=stand_in) for r in chosen]
    total = sum((p.plan for p in plans), Plan())
    if dry_run:
        _print_plan(total, ResultsStore(results, create=False) if results.is_dir() else None)
        _print_missing(plans)
        return
    store = ResultsStore(results)
    for p in plans:
        store.save_plan(p.recipe.name, p.to_dict())
    done = _execute(total.cells, store, features, engine, address, workers, device, quiet)
    if not quiet:
        for p in plans:
            _print_recipe(p, store)
        _print_missing(plans)
    _print_left_out(total.left_out)
    _conclude(done, len(total.cells), results, quiet)


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
    for made in grid(found):
        why = planned.stand_ins.get(made.title)
        title = made.title + (f": stands in ({why})" if why else "")
        table = Table(
            title=escape(title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1)
        )
        table.add_column("method", min_width=14, overflow="fold")
        for column, features in made.features.items():
            stands_in = column != made.title and features == column and features in planned.stand_ins
            heading = column.replace(", ", "\n").replace("__", "__\n")  # a terminal is narrow
            table.add_column(f"{heading}\n(stands in)" if stands_in else heading, justify="right", no_wrap=False)
        for label in made.labels:
            table.add_row(label, *(_place_text(made.places.get((label, c), ()), made.best(c)) for c in made.columns))
        out.print(table)
    _print_depth(depth_rows(found))
    for check in check_claims(planned.recipe.claims, rows):
        colour = {"seen": "green", "not seen": "red"}.get(check.verdict, "yellow")
        out.print(
            f"{check.claim} ({check.where}): [{colour}]{check.verdict}[/], {escape(check.seen)}",
            highlight=False,
            soft_wrap=True,
        )


def _print_depth(rows: Sequence[Mapping[str, Any]]) -> None:
    if rows:
        names = [n for n in rows[0] if any(r[n] is not None for r in rows)]
        table = Table(*names, box=box.SIMPLE_HEAD, pad_edge=False)
        for row in rows:
            table.add_row(*(f"{row[n]:.3g}" if isinstance(row[n], float) else str(row[n] or "") for n in names))
        out.print(table)


def _place_text(found: Sequence[Any], best: float) -> str:
    """Ours, and the paper's with the difference; over several training seeds the mean and their range."""
    from unem.experiments.paper.tables import mean_accuracy

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
        err.print(f"[bold yellow]missing:[/] {', '.join(names)}: {escape(how)}", highlight=False, soft_wrap=True)
    if missing:
        err.print(
            "Save them with unem.FeatureSet(…).save('BACKBONE__DATASET.safetensors'); docs/reproduce.md says how.",
            highlight=False,
        )


# -- report ---------------------------------------------------------------------------------------------------------------


@app.command(epilog="Example:  unem report results -o report.html --plots plots")
@command
def report(
    results: ResultsFolder,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path("report.html"),
    plots: Annotated[
        Path | None,
        typer.Option(help="Also write each plot as PNG, SVG and CSV into this folder.", show_default=False),
    ] = None,
    confusion: Annotated[
        str | None,
        typer.Option(help="Row whose confusion is shown.  [default: the best learned one]", show_default=False),
    ] = None,
    title: Annotated[str, typer.Option(help="Heading of the page.")] = "Results",
    quiet: Quiet = False,
) -> None:
    """One HTML file that shows a folder of results: summary, tables with intervals, plots, environment.

    It needs nothing else, prints well, and reads well on a phone.
    """
    from unem.report.results import write_report

    check_writable(output)
    made = write_report(ResultsStore(results, create=False), output, plots=plots, confusion=confusion, title=title)
    if not quiet:
        out.print(f"report: {output} ({made} plots)", highlight=False, soft_wrap=True)
