"""Learned schedules as folders that others can load, here or on the Hugging Face Hub, with a model card."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unem._extras import require
from unem._io import read_json, write_aside, write_json
from unem._version import __version__
from unem.core import Inputs, Schedule
from unem.errors import InputError
from unem.learning import LayeredMethod, ScheduleFamily
from unem.methods import Method, MethodInfo, create_method, method_for
from unem.presets import load_schedule

__all__ = ["Learned", "from_pretrained", "push_to_hub", "save_pretrained", "schedule_of"]

Learned = Schedule | ScheduleFamily | LayeredMethod
CONFIG, SCHEDULE, CARD = "config.json", "schedule.json", "README.md"


def save_pretrained(
    learned: Learned,
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    results: Mapping[str, str] | None = None,
    license: str = "apache-2.0",
) -> Path:
    """Write a folder with the schedule, a configuration and a model card, as JSON and Markdown; :func:`from_pretrained`
    reads it.

    Args:
        learned: a schedule, a family, or the method that uses it.
        folder: where to; made if it is not there. Other files in it are left alone.
        name: title of the card; the folder's name when left out.
        results: accuracies for the card, by what they were measured on, such as ``{"DTD, 5 shots": "74.0 ± 0.8 %"}``.
        license: licence of the numbers, as an identifier of the Hub.

    Example:
        >>> import tempfile, unem
        >>> schedule = unem.load_schedule("unem-gaussian/mini-imagenet/resnet18/5-shot")
        >>> folder = save_pretrained(schedule, tempfile.mkdtemp())
        >>> sorted(file.name for file in folder.iterdir())
        ['README.md', 'config.json', 'schedule.json']
        >>> from_pretrained(folder).name
        'unem-gaussian'
    """
    schedule, target = schedule_of(learned), Path(folder)
    if schedule.law is None:
        raise InputError("schedule: it names no law, so the method it is for is unknown")
    method = method_for(schedule)
    write_json(target / SCHEDULE, schedule.to_dict())
    config = {"library_name": "unem", "method": method.name, "schedule": SCHEDULE, "unem_version": __version__}
    write_json(target / CONFIG, config)
    card = _card(schedule, method, name or target.resolve().name, results or {}, license)
    with write_aside(target / CARD) as aside:
        aside.write_text(card, encoding="utf-8")
    return target


def from_pretrained(source: str | os.PathLike[str], *, revision: str | None = None, **settings: Any) -> Method:
    """The method of a folder of :func:`save_pretrained`, here or on the Hugging Face Hub.

    Args:
        source: a folder, or the name of a repository, ``owner/name``; only the latter needs ``huggingface_hub``.
        revision: branch, tag or commit on the Hub.
        settings: of the method, such as ``effective_classes``.
    """
    folder = Path(source)
    if not folder.is_dir():
        folder = _downloaded(os.fspath(source), revision)
    config = read_json(folder / CONFIG, "configuration")
    if (
        not isinstance(config, Mapping)
        or config.get("library_name") != "unem"
        or not isinstance(config.get("method"), str)
    ):
        raise InputError(f"source: {os.fspath(source)!r} holds no model of this library ({CONFIG} does not say so)")
    return create_method(config["method"], schedule=load_schedule(folder / SCHEDULE), **settings)


def push_to_hub(learned: Learned, repo_id: str, *, private: bool | None = None, **card: Any) -> str:
    """Put what :func:`save_pretrained` writes into a repository of the Hub, as the account that is logged in; its
    address."""
    hub = _hub()
    with tempfile.TemporaryDirectory() as folder:
        save_pretrained(learned, folder, **{"name": repo_id.rpartition("/")[2], **card})
        api = hub.HfApi()
        api.create_repo(repo_id, private=private, exist_ok=True)
        return str(api.upload_folder(repo_id=repo_id, folder_path=folder, commit_message="Add the schedule"))


def _downloaded(name: str, revision: str | None) -> Path:
    parts = name.split("/")
    if len(parts) != 2 or not all(parts) or ".." in name:
        raise InputError(f"source: {name!r} is neither a folder nor the name of a repository (owner/name)")
    hub = _hub()
    try:
        for file in (CONFIG, SCHEDULE):
            path = hub.hf_hub_download(name, file, revision=revision)
    except (
        hub.errors.HfHubHTTPError,
        hub.errors.LocalEntryNotFoundError,
        hub.errors.HFValidationError,
        OSError,
    ) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise InputError(
            f"source: {name!r} is not a folder here, and cannot be downloaded from the Hub ({reason})"
        ) from error
    return Path(path).parent


def _hub() -> Any:
    hub = require("huggingface_hub", "", "source: the Hub", instead="a folder needs nothing")
    require("huggingface_hub.errors", "", "source: the Hub")
    return hub


def schedule_of(learned: Learned) -> Schedule | ScheduleFamily:
    """The schedule as data: of a method the one it has learned."""
    schedule = learned if isinstance(learned, Schedule | ScheduleFamily) else getattr(learned, "schedule", None)
    if not isinstance(schedule, Schedule | ScheduleFamily):
        raise InputError(
            f"learned: expected a schedule, or a method that has learned one, got {type(learned).__name__}"
        )
    return schedule


# -- the card ----------------------------------------------------------------------------------------------------------

_INPUTS: Mapping[Inputs, str] = {
    "features": "embeddings",
    "similarities": "similarities of images to the classes' texts",
    "image+text": "embeddings of images, and of the classes' texts",
}


def _card(
    schedule: Schedule | ScheduleFamily, method: MethodInfo, name: str, results: Mapping[str, str], license: str
) -> str:
    """What it is, what it was learned on, how well it does, how to use it, and whom to cite."""
    task = "unem.Task(support, support_labels, query" + (", text=text)" if method.inputs == "image+text" else ")")
    blocks = [
        _front_matter(license),
        f"# {_one_line(name)}",
        f"A learned schedule for `{method.name}` of [unem](https://pypi.org/project/unem/): class balance and "
        f"temperature of each of {schedule.layers} layers of generalized EM, and the feature scale. It classifies a "
        f"batch of unlabelled samples jointly, from a few labelled ones, on {_INPUTS[method.inputs]}. It holds no "
        "weights of a network.",
        "## Learned on",
        _learned_on(schedule),
        "## Accuracy",
        "\n".join(f"* {_one_line(k)}: {_one_line(v)}" for k, v in results.items()) or "Not stated by its author.",
        "## Use",
        "```python\nimport unem\nfrom unem.inference import from_pretrained\n\n"
        'method = from_pretrained("path/or/owner/name")\n'
        f"prediction = method.predict({task})\nprint(prediction.labels)\n```",
        _limits(schedule),
        "## Licence",
        f"{_one_line(license)}, for the numbers in this folder.",
        "## Citation",
        str(schedule.provenance.get("citation", _CITATION)),
    ]
    return "\n\n".join(blocks) + "\n"


_CITATION = (
    "L. Zhou, F. Shakeri, A. Sadraoui, M. Kaaniche, J.-C. Pesquet, I. Ben Ayed, "
    '"UNEM: UNrolled Generalized EM for Transductive Few-Shot Learning", CVPR 2025.'
)


def _front_matter(license: str) -> str:
    lines = ["---", "library_name: unem", f"license: {json.dumps(_one_line(license))}", "tags:"]
    return "\n".join([*lines, "- few-shot", "- transductive", "- expectation-maximization", "---"])


def _learned_on(schedule: Schedule | ScheduleFamily) -> str:
    """What the provenance says, as a list; nested values as JSON."""
    known = {k: v for k, v in schedule.provenance.items() if k != "citation"}
    if not known:
        return "Not stated."
    return "\n".join(
        f"* {k.replace('_', ' ')}: {_one_line(v if isinstance(v, str) else json.dumps(v))}" for k, v in known.items()
    )


def _limits(schedule: Schedule | ScheduleFamily) -> str:
    if isinstance(schedule, Schedule):
        return (
            "A schedule is tied to the scale of the features it was learned on, and to about as many classes in the "
            "query; learn your own with `unem train` where yours differ."
        )
    names = {"queries": "queries", "num_classes": "classes", "shots": "shots"}
    ranges = ", ".join(f"{low:g} to {high:g} {names.get(n, n)}" for n, (low, high) in schedule.ranges.items())
    return f"It was learned with {ranges or 'one kind of task'}; beyond, tasks are treated as those at the border."


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())
