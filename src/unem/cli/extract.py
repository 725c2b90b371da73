"""The command ``extract``."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from unem._io import check_writable, guarded, write_aside
from unem._words import counted
from unem.cli._groups import OptionGroup, option_group
from unem.cli._options import (
    BackboneOptions,
    EngineOptions,
    Quiet,
    backbone_options,
    check_choice,
    engine_options,
)
from unem.cli._output import err, note, progress_bars, say
from unem.cli._values import DECODING, SHARD
from unem.cli.app import LABEL, command
from unem.errors import InputError
from unem.progress import Progress

if TYPE_CHECKING:
    from unem.vision.backbones import Backbone
    from unem.vision.extraction import Extraction, Failure, ShardEngine

__all__: list[str] = []

NAMED = 3  # files that could not be read, by name


@dataclass(frozen=True, kw_only=True)
class OutputOptions(OptionGroup):
    """Where features go, with those of which texts, and where the list of unreadable files."""

    output: Annotated[Path, typer.Option("--output", "-o", help="Feature file, .safetensors.")]
    prompt: Annotated[
        list[str] | None,
        typer.Option(help="Text with {} for the class name; several are averaged.", show_default=False),
    ] = None
    errors: Annotated[
        Path | None, typer.Option(help="CSV for the files that could not be read.", show_default=False)
    ] = None

    @property
    def parts(self) -> Path:
        """The folder that keeps shards until all are there."""
        return self.output.with_name(self.output.name + ".parts")

    def check(self) -> None:
        check_writable(self.output)
        if self.output.suffix != ".safetensors":
            raise InputError(f"--output: expected a name that ends in .safetensors, got {str(self.output)!r}")
        if self.errors is not None:
            check_writable(self.errors)
        if self.prompt:
            from unem.vision.extraction import check_prompts

            check_prompts(self.prompt)


@command(
    "extract",
    panel=LABEL,
    epilog="Example:  unem extract photos --backbone efficientnet-lite0 -o photos.safetensors\n\n"
    'CLIP:  unem extract photos --backbone openai/clip-vit-base-patch32 --prompt "a photo of a {}." '
    "-o photos.safetensors\n\n"
    "On a cluster:  unem extract photos -o photos.safetensors --engine ray --address auto",
)
@option_group("outputs", OutputOptions)
@backbone_options()
@engine_options(
    helps={
        "engine": "local or ray (a cluster).",
        "address": "Ray cluster, such as auto or HOST:PORT.",
        "workers": "Threads or processes that decode, or workers of Ray.  [default: cores]",
    }
)
def extract_command(
    *,
    images: Annotated[
        str, typer.Argument(metavar="IMAGES", help="Folder with one folder per class (or SPLIT/CLASS), or a CSV.")
    ],
    outputs: OutputOptions,
    backbone: BackboneOptions,
    engine: EngineOptions,
    dataset: Annotated[
        str | None,
        typer.Option(help="Dataset of `unem datasets list`: use its class names and folders.", show_default=False),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(help="Images in one call of the model.  [default: by memory]", show_default=False, min=1),
    ] = None,
    shard_size: Annotated[int, typer.Option(help="Images per shard.", min=1)] = SHARD,
    decoding: Annotated[
        str, typer.Option(help="Decode images in threads or processes; auto: processes for a model on a GPU.")
    ] = "auto",
    quiet: Quiet = False,
) -> None:
    """Compute features of labelled images, as a file for all other commands.

    Files that cannot be read are listed and left out. Stop it at any moment, in any way: the same command does the
    rest, and the file comes out the same to the byte.
    """
    on_cluster = engine.uses_ray()
    check_choice("decoding", decoding, DECODING)
    if on_cluster and decoding != "auto":
        raise InputError("--decoding: goes with --engine local")
    outputs.check()
    from unem.vision.datasets import images_of

    listed = images_of(images, dataset)
    # With Ray it is the nodes that need the device, not this machine.
    model = backbone.load("cpu" if on_cluster else None)
    if outputs.prompt and not model.has_text:
        raise InputError(f"--prompt: {model.id!r} knows images only; texts need a vision-language model such as CLIP")
    how: dict[str, Any] = {"batch_size": batch_size or "auto", "workers": engine.workers, "decoding": decoding}
    if on_cluster:
        how = {"engine": _ray_engine(model, backbone, engine, batch_size)}
    made = _extract(listed, model, quiet, shard_size=shard_size, work_dir=outputs.parts, **how)
    if outputs.errors is not None:
        _write_failures(outputs.errors, made.failures)
    made.to_feature_set(backbone=model, prompts=outputs.prompt, name=outputs.output.stem).save(outputs.output)
    _remove_parts(outputs.parts)
    if not quiet:
        _print_result(made, outputs)


def _ray_engine(
    model: Backbone, backbone: BackboneOptions, engine: EngineOptions, batch_size: int | None
) -> ShardEngine:
    from unem.vision.extraction import RayShards

    return RayShards(
        model,
        precision=backbone.precision,
        batch_size=batch_size,
        address=engine.address,
        workers=engine.workers,
        device=backbone.device,
    )


def _extract(images: Any, backbone: Backbone, quiet: bool, **options: Any) -> Extraction:
    """``extract`` with a bar: images per second, time left, and how many could not be read."""
    from unem.vision.extraction import extract

    with progress_bars(quiet, "{task.fields[rate]}") as bars:
        bar = bars.add_task("images", total=len(images), rate="")

        def tell(now: Progress) -> None:
            failed = f", {now.failed} unreadable" if now.failed else ""
            rate = f"{now.rate:.0f} images/s" if now.done > now.found else ""
            bars.update(bar, completed=now.done, rate=rate + failed)

        return extract(images, backbone, progress=tell, **options)


def _write_failures(path: Path, failures: Sequence[Failure]) -> None:
    """``path,reason`` of each file that could not be read."""
    from unem.inference import readable

    with write_aside(path) as aside, open(aside, "w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "reason"])
        rows.writerows([guarded(readable(f.path)), f.reason] for f in failures)


def _remove_parts(folder: Path) -> None:
    """The shards, once all of them are in one file; anything else there stays."""
    if folder.is_dir():
        for file in [*folder.glob("??????-????????????????.safetensors"), *folder.glob(".*.safetensors.*.part")]:
            file.unlink(missing_ok=True)
        if not any(folder.iterdir()):
            folder.rmdir()


def _print_result(made: Extraction, outputs: OutputOptions) -> None:
    now = made.progress
    found = f", {now.found} of them from an earlier run" if now.found else ""
    speed = f" in {now.seconds:.1f} s ({now.rate:.0f} images/s)" if now.done > now.found else ""
    classes = counted(made.images.num_classes, "class", "classes")
    numbers = f"{counted(len(made), 'image')} of {classes}, {made.features.shape[1]} features"
    say(f"{outputs.output}: {numbers}{found}{speed}")
    if made.failures:
        where = f"; all of them in {outputs.errors}" if outputs.errors else "; --errors FILE.csv lists them"
        note(f"{counted(len(made.failures), 'file')} could not be read{where}")
        for failure in made.failures[:NAMED]:
            say(f"  {failure.path} {failure.reason}", err)
