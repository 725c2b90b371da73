"""The command ``pretrain``: a network from images of base classes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn

from unem._io import check_writable
from unem._words import counted
from unem.cli._groups import OptionGroup, option_group
from unem.cli._options import RunOptions, check_device, run_options
from unem.cli._output import err, note, progress_bar, say
from unem.cli._values import NETWORKS
from unem.cli.app import LEARN, command, end_interrupted
from unem.errors import InputError

if TYPE_CHECKING:
    from unem.vision.images import ImageTensors
    from unem.vision.pretraining import Pretrained, PretrainingConfig, PretrainingEpoch, PretrainingProgress

__all__: list[str] = []

NAMED = 5  # files that could not be read, by name


@dataclass(frozen=True, kw_only=True)
class ConfigOptions(OptionGroup):
    """How the network is trained: fields of ``PretrainingConfig``, by their names and with their defaults."""

    network: Annotated[str, typer.Option(help=f"{' or '.join(NETWORKS)}.")] = "resnet18"
    size: Annotated[int, typer.Option(help="Side of the images that the network sees, in pixels.")] = 84
    epochs: Annotated[int, typer.Option(help="Passes over the base images.")] = 90
    batch_size: Annotated[int, typer.Option(help="Images per step.")] = 128
    learning_rate: Annotated[
        float, typer.Option(help="Initial rate; divided by 10 at 1/2 and 11/15 of the epochs.")
    ] = 0.1
    warm_up: Annotated[int, typer.Option(help="Epochs in which the learning rate rises to its full value.")] = 0
    label_smoothing: Annotated[float, typer.Option(help="Share of the target spread over all classes.")] = 0.1
    weight_decay: Annotated[float, typer.Option(help="Weight decay of stochastic gradient descent.")] = 1e-4
    repeats: Annotated[int, typer.Option(help="How often an image is seen in an epoch; for small sets.")] = 1
    balanced: Annotated[bool, typer.Option("--balanced", help="Draw each class equally often.")] = False
    augmentation: Annotated[bool, typer.Option(help="Random crops, mirror images and colours.")] = True
    precision: Annotated[str, typer.Option(help="auto (bfloat16 on a GPU), float32 or bfloat16.")] = "auto"

    def config(self, seed: int) -> PretrainingConfig:
        from unem.vision.pretraining import PretrainingConfig

        settings = asdict(self)
        del settings["given"]
        return PretrainingConfig(**settings, seed=seed)


@dataclass(frozen=True, kw_only=True)
class SplitOptions(OptionGroup):
    """Which images are of base classes, and which of validation classes."""

    base_split: Annotated[str, typer.Option(help="Split with the base classes.")] = "train"
    validation_split: Annotated[
        str, typer.Option(help="Split with the validation classes, which decide the epoch that is kept; 'none'.")
    ] = "val"
    split_classes: Annotated[
        str | None,
        typer.Option(
            help="Share classes out at random: numbers of base, validation and test classes, such as 12,6,6.",
            show_default=False,
        ),
    ] = None

    def divide(self, table: ImageTensors, seed: int) -> tuple[ImageTensors, ImageTensors | None]:
        """Base and validation images. Without splits all classes are base classes, and nothing decides the epoch."""
        if self.split_classes:
            from unem.vision.images import split_classes

            table = split_classes(table, *_three_numbers(self.split_classes), seed=seed)
        base, validation = self.base_split, self.validation_split
        if not table.splits:
            note(
                "the images have no splits: all classes are base classes, and the last epoch is kept "
                "(--split-classes shares the classes out)"
            )
            return table, None
        if validation == "none" or validation not in table.splits:
            if validation != "none":
                note(f"no split {validation!r}; the last epoch is kept")
            return table.split(base), None
        parts = table.split(base), table.split(validation)
        if common := sorted(set(parts[0].class_names) & set(parts[1].class_names)):
            some = common[0] + (", …" if len(common) > 1 else "")
            where = f"{counted(len(common), 'class is', 'classes are')} in both {base} and {validation} ({some})"
            note(f"{where}: validation is not on new classes")
        return parts


@command(
    "pretrain",
    panel=LEARN,
    epilog="Example:  unem pretrain mini-imagenet --network resnet18 -o resnet18.safetensors --device cuda\n\n"
    "From class folders without splits, 12 base and 6 validation classes:  unem pretrain photos --split-classes 12,6,6 "
    "-o backbone.safetensors",
)
@option_group("settings", ConfigOptions)
@option_group("splits", SplitOptions)
@run_options()
def pretrain_command(
    *,
    images: Annotated[
        Path,
        typer.Argument(
            metavar="IMAGES",
            help="A folder with one folder per class, below train/val/test or not; or a .npz or .safetensors "
            "of pixels.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="The network: a .safetensors file.")] = Path(
        "backbone.safetensors"
    ),
    settings: ConfigOptions,
    splits: SplitOptions,
    compiled: Annotated[bool, typer.Option("--compile", help="Use torch.compile for faster kernels.")] = False,
    resume: Annotated[bool, typer.Option(help="Continue from OUTPUT.checkpoint.safetensors if it exists.")] = True,
    run: RunOptions,
) -> None:
    """Pre-train ResNet-18 or WRN28-10 on base classes, as the paper does.

    It may be stopped at any time: the same command continues after the last complete epoch, and gives the same
    network.
    """
    if output.suffix != ".safetensors":
        raise InputError(f"--output: expected a name that ends in .safetensors, got {str(output)!r}")
    check_writable(output)
    config = settings.config(run.seed)
    device = check_device(run.device)
    base, validation = splits.divide(_read_images(images, config.size, run.quiet), run.seed)
    checkpoint = Path(f"{output}.checkpoint.safetensors")
    if resume and not checkpoint.exists() and _finished(output, base, validation, config):
        say(f"{output} is already the result of this run")
        return
    result = _pretrain(base, validation, config, device, checkpoint, resume, compiled, run.quiet)
    if result.interrupted:
        say(f"{len(result.history)} of {counted(config.epochs, 'epoch')} kept; the same command continues", err)
        end_interrupted()
    result.save(output)
    checkpoint.unlink(missing_ok=True)
    if not run.quiet:
        say(_summary(result, base, validation))
        say(f"network: {output}")


def _read_images(path: Path, size: int, quiet: bool) -> ImageTensors:
    from unem.vision.datasets import images_of
    from unem.vision.images import ImageTensors, load_pixels
    from unem.vision.pretraining import stored_size

    if path.is_file():
        return ImageTensors.load(path)
    with progress_bar(quiet, "reading images") as progress:
        table = load_pixels(images_of(path), stored_size(size), progress=progress)
    for name, reason in list(table.skipped.items())[:NAMED]:
        note(f"{name}: {reason}", "skipped")
    if len(table.skipped) > NAMED:
        note(f"{counted(len(table.skipped), 'file')} in all", "skipped")
    return table


def _three_numbers(text: str) -> tuple[int, int, int]:
    try:
        base, val, test = (int(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--split-classes: expected three numbers such as 12,6,6, got {text!r}") from None
    return base, val, test


def _finished(output: Path, base: ImageTensors, validation: ImageTensors | None, config: PretrainingConfig) -> bool:
    """Whether an earlier run was this very one and came to its end."""
    if not output.is_file():
        return False
    from unem.vision.networks import load_checkpoint

    try:
        info = load_checkpoint(output)[1]
    except InputError:
        return False
    wanted = {
        "config": json.loads(json.dumps(asdict(config))),
        "images": base.digest,
        "validation": None if validation is None else validation.digest,
        "interrupted": False,
    }
    return {name: info.get(name, "unknown") for name in wanted} == wanted


def _pretrain(
    base: ImageTensors,
    validation: ImageTensors | None,
    config: PretrainingConfig,
    device: str,
    checkpoint: Path,
    resume: bool,
    compiled: bool,
    quiet: bool,
) -> Pretrained:
    from unem.vision.pretraining import pretrain

    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[news]}")]
    with Progress(*columns, console=err, disable=quiet, transient=True) as progress:
        bar = progress.add_task("pre-training", total=config.epochs, news="")
        best = ""

        def on_progress(now: PretrainingProgress) -> None:
            news = f"epoch {now.epoch}/{now.epochs}  loss {now.loss:.3f}{best}  {now.images_per_second:,.0f} images/s"
            minutes, seconds = divmod(round(now.seconds_left), 60)
            progress.update(
                bar,
                completed=now.epoch - 1 + now.step / now.steps,
                news=f"{news}  {minutes // 60}:{minutes % 60:02}:{seconds:02} left",
            )

        def on_epoch(epoch: PretrainingEpoch) -> None:
            nonlocal best
            if validation is not None:
                best = f"  validation {epoch.validation_accuracy:.1f} %"

        return pretrain(
            base,
            config,
            validation=validation,
            device=device,
            checkpoint=checkpoint,
            resume=resume,
            compiled=compiled,
            on_epoch=on_epoch,
            on_progress=on_progress,
        )


def _summary(result: Pretrained, base: ImageTensors, validation: ImageTensors | None) -> str:
    last = result.history[-1]
    text = (
        f"{result.network.name}: {counted(len(base), 'image')} of "
        f"{counted(base.num_classes, 'base class', 'base classes')}, {counted(last.number, 'epoch')}, "
        f"loss {last.loss:.3f}, {last.accuracy:.1f} % of the crops right"
    )
    if validation is not None:
        kept = result.history[result.info["kept_epoch"] - 1]
        text += f"; kept epoch {kept.number}, {kept.validation_accuracy:.1f} % on tasks of "
        text += counted(validation.num_classes, "validation class", "validation classes")
    return text
