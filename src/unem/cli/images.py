"""Commands for images: ``backbones`` and ``extract``."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.markup import escape
from rich.table import Table

from unem._io import check_writable, write_aside
from unem.cli.common import AsJson, Device, Quiet, app, check_device, command, emit_json, err, out, progress_bars
from unem.errors import InputError
from unem.vision.backbones import Backbone
from unem.vision.extraction import SHARD, Extraction, Failure, Progress, ShardEngine, check_prompts, extract

__all__: list[str] = []

BackboneName = Annotated[
    str,
    typer.Option(
        help="A kind of `unem backbones`, a Hub id, a folder, a checkpoint; auto: one that needs no connection."
    ),
]
Precision = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16; auto: bfloat16 on a GPU.")]
BatchSize = Annotated[
    int | None,
    typer.Option(help="Images in one call of the model.  [default: by memory]", show_default=False, min=1),
]


@app.command(epilog="Example:  unem backbones --json")
@command
def backbones(as_json: AsJson = False) -> None:
    """Kinds of backbones, and which of them can be used here."""
    from unem.vision.backbones import list_backbones

    kinds = list_backbones()
    if as_json:
        emit_json([_plain_kind(kind) for kind in kinds], "-")
        return
    table = Table("kind", "texts", "here", "what it is", box=box.SIMPLE_HEAD)
    for kind in kinds:
        yes_no = ["yes" if value else "no" for value in (kind.text, kind.available)]
        table.add_row(kind.prefix, *yes_no, f"{kind.summary}\n[dim]{escape(kind.example)}[/]")
    out.print(table)
    for kind in kinds:
        if kind.missing:
            out.print(f"{kind.prefix}: {escape(kind.install)}", highlight=False)


def _plain_kind(kind: Any) -> dict[str, Any]:
    names = ("prefix", "example", "summary", "text", "available", "missing", "install")
    return {name: getattr(kind, name) for name in names}


@app.command(
    name="extract",
    epilog="Example:  unem extract photos --backbone efficientnet-lite0 -o photos.safetensors\n\n"
    'CLIP:  unem extract photos --backbone openai/clip-vit-base-patch32 --prompt "a photo of a {}." -o photos.safetensors\n\n'
    "On a cluster:  unem extract photos -o photos.safetensors --engine ray --address auto",
)
@command
def extract_command(
    images: Annotated[
        str, typer.Argument(metavar="IMAGES", help="Folder with one folder per class (or SPLIT/CLASS), or a CSV.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Feature file, .safetensors.")],
    backbone: BackboneName = "auto",
    prompt: Annotated[
        list[str] | None,
        typer.Option(help="Text with {} for the class name; several are averaged.", show_default=False),
    ] = None,
    errors: Annotated[
        Path | None, typer.Option(help="CSV for the files that could not be read.", show_default=False)
    ] = None,
    engine: Annotated[str, typer.Option(help="local or ray (a cluster).")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Ray cluster, such as auto or HOST:PORT.", show_default=False)
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Threads that decode, or workers of Ray.  [default: cores]", show_default=False, min=1),
    ] = None,
    batch_size: BatchSize = None,
    shard_size: Annotated[int, typer.Option(help="Images that are kept together.", min=1)] = SHARD,
    precision: Precision = "auto",
    device: Device = "cpu",
    quiet: Quiet = False,
) -> None:
    """Features of labelled images, as a file for all other commands.

    Files that cannot be read are listed and left out. Stop it at any moment, in any way: the same command does the rest, and the
    file comes out the same to the byte.
    """
    from unem.vision.backbones import create
    from unem.vision.datasets import images_of

    check_writable(output)
    if output.suffix != ".safetensors":
        raise InputError(f"--output: expected a name that ends in .safetensors, got {str(output)!r}")
    if errors is not None:
        check_writable(errors)
    if prompt:
        check_prompts(prompt)
    if address and engine != "ray":
        raise InputError("--address: goes with --engine ray")
    listed = images_of(images)
    model = create(backbone, device="cpu" if engine == "ray" else check_device(device), precision=precision)
    if prompt and not model.has_text:
        raise InputError(f"--prompt: {model.id!r} knows images only; texts need a vision-language model such as CLIP")
    if engine == "local":
        how: dict[str, Any] = {"batch_size": batch_size or "auto", "workers": workers}
    else:
        how = {"engine": _ray_engine(engine, model, precision, batch_size, address, workers, device)}
    parts = output.with_name(output.name + ".parts")
    made = run_extraction(listed, model, quiet, shard_size=shard_size, work_dir=parts, **how)
    if errors is not None:
        write_failures(errors, made.failures)
    made.to_feature_set(backbone=model, prompts=prompt, name=output.stem).save(output)
    remove_parts(parts)
    if not quiet:
        _conclude(made, output, errors)


def run_extraction(images: Any, backbone: Any, quiet: bool, **options: Any) -> Extraction:
    """``extract`` with a bar: images per second, time left, and how many could not be read."""
    with progress_bars(quiet, "{task.fields[rate]}") as bars:
        bar = bars.add_task("images", total=len(images), rate="")

        def tell(now: Progress) -> None:
            failed = f", {now.failed} unreadable" if now.failed else ""
            rate = f"{now.rate:.0f} images/s" if now.done > now.found else ""
            bars.update(bar, completed=now.done, rate=rate + failed)

        return extract(images, backbone, progress=tell, **options)


def write_failures(path: Path, failures: Sequence[Failure]) -> None:
    """``path,reason`` of each file that could not be read."""
    with write_aside(path) as aside, open(aside, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "reason"])
        rows.writerows([f.path, f.reason] for f in failures)


def remove_parts(folder: Path) -> None:
    """The shards, once all of them are in one file; anything else there stays."""
    if folder.is_dir():
        for file in [*folder.glob("??????-????????????????.safetensors"), *folder.glob(".*.safetensors.*.part")]:
            file.unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()


def _ray_engine(
    name: str,
    backbone: Backbone,
    precision: str,
    batch_size: int | None,
    address: str | None,
    workers: int | None,
    device: str,
) -> ShardEngine:
    if name != "ray":
        raise InputError(f"--engine: expected local or ray, got {name!r}")
    from unem.vision.extraction import RayShards

    return RayShards(
        backbone, precision=precision, batch_size=batch_size, address=address, workers=workers, device=device
    )


def _conclude(made: Extraction, output: Path, errors: Path | None) -> None:
    now = made.progress
    found = f", {now.found} of them from an earlier run" if now.found else ""
    speed = f" in {now.seconds:.1f} s ({now.rate:.0f} images/s)" if now.done > now.found else ""
    classes = made.images.num_classes
    out.print(
        f"{output}: {len(made)} images of {classes} classes, {made.features.shape[1]} features{found}{speed}",
        highlight=False,
        soft_wrap=True,
    )
    if made.failures:
        where = f"; all of them in {errors}" if errors else "; --errors FILE.csv lists them"
        err.print(f"[bold yellow]note:[/] {len(made.failures)} files could not be read{where}", soft_wrap=True)
        for failure in made.failures[:3]:
            err.print(f"  {failure.path} {failure.reason}", markup=False, highlight=False, soft_wrap=True)
