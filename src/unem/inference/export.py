"""Learned schedules outside this library: as a program of torch, as ONNX, and as a folder that others can load.

A program takes the support, its classes and the queries, all of any number, and gives the probabilities of the queries. It holds the
whole loop with the learned numbers in it, and needs no line of this library to run.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unem._extras import require
from unem._io import check_writable, read_json, to_json, write_aside, write_json
from unem._version import __version__
from unem.core.em import iterate
from unem.core.laws.base import ALL
from unem.core.laws.dirichlet import LOG_FLOOR, Dirichlet, ScaledDirichlet
from unem.core.laws.gaussian import Gaussian, GramStatistics
from unem.core.numerics import backends
from unem.core.numerics.newton import Fit, solve_unasked
from unem.core.schedule import Schedule
from unem.errors import InputError
from unem.learning.family import FORMAT as FAMILY_FORMAT
from unem.learning.family import ScheduleFamily
from unem.learning.unrolled import UNEM
from unem.methods._registry import GEMMethod, Method, create
from unem.methods.plus import FamilyMethod
from unem.presets import load_family, load_schedule

__all__ = ["Program", "export_onnx", "export_torch", "from_pretrained", "load_any", "push_to_hub", "save_pretrained"]

Learned = Schedule | ScheduleFamily | UNEM | FamilyMethod
CONFIG, SCHEDULE, CARD = "config.json", "schedule.json", "README.md"
INPUTS = ("support", "support_classes", "query")


# -- programs -------------------------------------------------------------------------------------------------------------


class Program(nn.Module):
    """Generalized EM with a schedule as one function of tensors, in plain torch; what :func:`export_torch` and :func:`export_onnx` record.

    Its inputs are the support ``[sample, feature]``, ``support_classes`` ``[sample, class]`` with a 1 where the sample is of the
    class and 0 elsewhere, and the queries ``[query, feature]``; all sizes are free. Similarities take the place of features for the Dirichlet law,
    one for each class.

    Example:
        >>> import torch, unem
        >>> program = Program(unem.Schedule(class_balance=0.5, temperature=1.5, law="gaussian", layers=4))
        >>> support, labels, query = torch.randn(6, 5), torch.tensor([0, 0, 1, 1, 2, 2]), torch.randn(7, 5)
        >>> program(support, torch.nn.functional.one_hot(labels).float(), query).shape
        torch.Size([7, 3])
    """

    def __init__(self, schedule: Schedule) -> None:
        super().__init__()
        self.schedule = schedule
        self.law = _law(schedule)

    def forward(
        self,
        support: Float[Tensor, "sample feature"],
        support_classes: Float[Tensor, "sample class"],
        query: Float[Tensor, "query feature"],
    ) -> Float[Tensor, "query class"]:
        with backends.plain_torch():
            found: Tensor = self.law.assign(self.schedule, support, support_classes, query)
        return found


@dataclass(frozen=True)
class _Gaussian(Gaussian):
    form: Literal["auto", "gram", "direct"] = "gram"

    def assign(self, schedule: Schedule, support: Tensor, classes: Tensor, query: Tensor) -> Tensor:
        centre = query.mean(0, keepdim=True)
        shots, moved = classes.sum(0), query - centre
        sums = classes.mT @ (support - centre)
        statistics = GramStatistics(
            shots=shots.unsqueeze(0),
            sum_norms=sums.square().sum(-1).unsqueeze(0),
            gram=(moved @ moved.mT).unsqueeze(0),
            cross=(moved @ sums.mT).unsqueeze(0),
        )
        scaled = self.scaled(statistics, schedule.feature_scale)
        return iterate(self, scaled, schedule.class_balances, schedule.temperatures).squeeze(0)


@dataclass(frozen=True)
class _Dirichlet(Dirichlet):
    """The exact M-step with a fixed number of Newton steps: a recorded program cannot look whether it has converged."""

    def assign(self, schedule: Schedule, support: Tensor, classes: Tensor, query: Tensor) -> Tensor:
        scale = schedule.feature_scale
        log_support, log_query = _log_z(scale * support), _log_z(scale * query)
        statistics = ScaledDirichlet(
            log_query=log_query.unsqueeze(0),
            log_support_sums=(classes.mT @ log_support).unsqueeze(0),
            shots=classes.sum(0).unsqueeze(0),
            num_classes=0,  # not known yet; one similarity for each class is what is recorded
        )
        return iterate(self, statistics, schedule.class_balances, schedule.temperatures).squeeze(0)

    def start(self, statistics: ScaledDirichlet) -> Tensor:
        return statistics.log_query.exp()

    def m_step(
        self, statistics: ScaledDirichlet, assignments: Tensor | None, assigned: Tensor | None, previous: Fit | None
    ) -> Fit:
        s = statistics
        assert assignments is not None
        assert assigned is not None  # the loop starts from the similarities
        sums = torch.baddbmm(s.log_support_sums, assignments.mT, s.log_query)
        return solve_unasked(sums / (s.shots + assigned).unsqueeze(-1))

    def query_parts(self, statistics: ScaledDirichlet) -> tuple[slice]:
        return (ALL,)  # their number is not known yet


def _log_z(similarities: Tensor) -> Tensor:
    log_z = torch.log_softmax(similarities, -1)
    return torch.logaddexp(log_z, torch.full_like(log_z, LOG_FLOOR))


def _law(schedule: Schedule) -> Any:
    laws = {"gaussian": _Gaussian, "dirichlet": _Dirichlet}
    if schedule.law not in laws:
        raise InputError(
            f"schedule: programs are made for the gaussian and the dirichlet law, this one is for {schedule.law!r}"
        )
    return laws[schedule.law]()


def export_torch(learned: Learned, path: str | os.PathLike[str] | None = None) -> torch.export.ExportedProgram:
    """A program of ``torch.export`` with any number of samples, classes, queries and features; written to ``path`` (``.pt2``) if given.

    ``torch.export.load`` reads it, ``.module()`` makes it callable, and AOTInductor or ExecuTorch compile it. The schedule is in it
    as ``schedule.json``.

    Example:
        >>> import torch, unem
        >>> program = export_torch(unem.preset("unem-gaussian/mini-imagenet/resnet18/5-shot")).module()
        >>> program(torch.randn(6, 5), torch.eye(3).repeat(2, 1), torch.randn(7, 5)).shape
        torch.Size([7, 3])
    """
    schedule = _schedule(learned)
    if path is not None:
        check_writable(path)
    with torch.no_grad():
        program = torch.export.export(Program(schedule).eval(), _example(), dynamic_shapes=_shapes(schedule))
    if path is not None:
        with write_aside(path) as aside, tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "program.pt2"  # torch wants the suffix
            torch.export.save(program, made, extra_files={SCHEDULE: to_json(schedule.to_dict())})
            aside.write_bytes(made.read_bytes())
    return program


def export_onnx(learned: Learned, path: str | os.PathLike[str]) -> None:
    """An ONNX file of a schedule of the Gaussian law, with any number of samples, classes, queries and features.

    Inputs ``support``, ``support_classes`` and ``query`` as in :class:`Program`, output ``probabilities``, all float32. Needs ``onnx`` and ``onnxscript``
    (the extra ``export``). The Dirichlet law needs ψ, which ONNX does not have.
    """
    schedule = _schedule(learned)
    if schedule.law != "gaussian":
        raise InputError(
            f"schedule: ONNX is for the gaussian law, this one is for {schedule.law!r} (export it for torch)"
        )
    check_writable(path)
    onnx: Any = require("onnx", "export", "format: onnx")
    require("onnxscript", "export", "format: onnx")  # torch uses it
    with torch.no_grad(), _quiet():
        made = torch.onnx.export(
            Program(schedule).eval(),
            _example(),
            dynamo=True,
            dynamic_shapes=_shapes(schedule),
            input_names=list(INPUTS),
            output_names=["probabilities"],
            verbose=False,
        )
    assert made is not None
    model = made.model_proto
    onnx.helper.set_model_props(model, {SCHEDULE: json.dumps(schedule.to_dict()), "unem": __version__})
    onnx.checker.check_model(model)
    with write_aside(path) as aside:
        aside.write_bytes(model.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of its own parts, and of packages that nobody needs here."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _example() -> tuple[Tensor, ...]:
    """Sizes that are all different, so that none is taken for another."""
    classes = nn.functional.one_hot(torch.arange(9) % 5).float()
    return torch.rand(9, 5), classes, torch.rand(7, 5)


def _shapes(schedule: Schedule) -> dict[str, dict[int, Any]]:
    sample, kind, query, feature = (torch.export.Dim(n, min=2) for n in ("sample", "kind", "query", "feature"))
    if schedule.law == "dirichlet":
        feature = kind  # one similarity for each class
    return {
        "support": {0: sample, 1: feature},
        "support_classes": {0: sample, 1: kind},
        "query": {0: query, 1: feature},
    }


# -- folders that others can load -----------------------------------------------------------------------------------------


def load_any(source: str | os.PathLike[str]) -> Schedule | ScheduleFamily:
    """A schedule or a family of them: a file, a preset's name, or a folder of :func:`save_pretrained`."""
    path = Path(source)
    if path.is_dir():
        path = path / SCHEDULE
    if path.is_file():
        value = read_json(path, "schedule")
        kind = ScheduleFamily if isinstance(value, Mapping) and value.get("format") == FAMILY_FORMAT else Schedule
        return kind.from_dict(value, source=f"schedule {os.fspath(path)!r}")
    try:
        return load_schedule(source)
    except InputError:
        return load_family(source)


def save_pretrained(
    learned: Learned,
    folder: str | os.PathLike[str],
    *,
    name: str | None = None,
    results: Mapping[str, str] | None = None,
    license: str = "apache-2.0",
) -> Path:
    """Write a folder with the schedule, a configuration and a model card, as JSON and Markdown; :func:`from_pretrained` reads it.

    Args:
        learned: a schedule, a family, or the method that uses it.
        folder: where to; made if it is not there. Other files in it are left alone.
        name: title of the card; the folder's name when left out.
        results: accuracies for the card, by what they were measured on, such as ``{"DTD, 5 shots": "74.0 ± 0.8 %"}``.
        license: licence of the numbers, as an identifier of the Hub.

    Example:
        >>> import tempfile, unem
        >>> folder = save_pretrained(unem.preset("unem-gaussian/mini-imagenet/resnet18/5-shot"), tempfile.mkdtemp())
        >>> sorted(file.name for file in folder.iterdir())
        ['README.md', 'config.json', 'schedule.json']
        >>> from_pretrained(folder).name
        'unem-gaussian'
    """
    schedule, target = _plain(learned), Path(folder)
    method = _method_name(schedule)
    write_json(target / SCHEDULE, schedule.to_dict())
    config = {"library_name": "unem", "method": method, "schedule": SCHEDULE, "unem_version": __version__}
    write_json(target / CONFIG, config)
    with write_aside(target / CARD) as aside:
        aside.write_text(
            _card(schedule, method, name or target.resolve().name, results or {}, license), encoding="utf-8"
        )
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
    return create(config["method"], schedule=load_any(folder / SCHEDULE), **settings)


def push_to_hub(learned: Learned, repo_id: str, *, private: bool | None = None, **card: Any) -> str:
    """Put what :func:`save_pretrained` writes into a repository of the Hugging Face Hub, with the account that is logged in; its address."""
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
        raise InputError(f"source: {name!r} is no folder here, and cannot be had from the Hub ({reason})") from error
    return Path(path).parent


def _hub() -> Any:
    hub = require("huggingface_hub", "", "source: the Hub", instead="a folder needs nothing")
    require("huggingface_hub.errors", "", "source: the Hub")
    return hub


def _plain(learned: Learned | GEMMethod) -> Schedule | ScheduleFamily:
    if isinstance(learned, UNEM):
        return learned.schedule()
    if isinstance(learned, FamilyMethod):
        return learned.family
    if isinstance(learned, Schedule | ScheduleFamily):
        return learned
    raise InputError(f"learned: expected a schedule, or a method that has learned one, got {type(learned).__name__}")


def _schedule(learned: Learned) -> Schedule:
    schedule = _plain(learned)
    if isinstance(schedule, ScheduleFamily):
        raise InputError(
            f"schedule: programs are made of one schedule, and this is a family ({schedule.method}), which runs the loop "
            "for several numbers of classes"
        )
    return schedule


def _method_name(schedule: Schedule | ScheduleFamily) -> str:
    if isinstance(schedule, ScheduleFamily):
        return schedule.method
    if schedule.law not in ("gaussian", "dirichlet"):
        raise InputError(f"schedule: expected one for the gaussian or the dirichlet law, its law is {schedule.law!r}")
    return f"unem-{schedule.law}"


# -- the card -------------------------------------------------------------------------------------------------------------

_INPUTS = {
    "unem-gaussian": "embeddings",
    "unem-dirichlet": "similarities of images to the classes' texts",
    "unem-plus": "embeddings",
    "unem-joint": "embeddings of images, and of the classes' texts",
    "zero-shot-unem-joint": "embeddings of images, and of the classes' texts",
}


def _card(schedule: Schedule | ScheduleFamily, method: str, name: str, results: Mapping[str, str], license: str) -> str:
    """What it is, what it was learned on, how well it does, how to use it, and whom to cite."""
    needs_text = method in ("unem-joint", "zero-shot-unem-joint")
    task = "unem.Task(support, support_labels, query" + (", text=text)" if needs_text else ")")
    blocks = [
        _front_matter(license),
        f"# {_one_line(name)}",
        f"A learned schedule for `{method}` of [unem](https://pypi.org/project/unem/): class balance and temperature of each of {schedule.layers} "
        f"layers of generalized EM, and the feature scale. It classifies a batch of unlabelled samples jointly, from a few labelled ones, on {_INPUTS[method]}. "
        "It holds no weights of a network.",
        "## Learned on",
        _learned_on(schedule),
        "## Accuracy",
        "\n".join(f"* {_one_line(k)}: {_one_line(v)}" for k, v in results.items()) or "Not stated by whoever made it.",
        "## Use",
        "```python\nimport unem\n\n"
        f'method = unem.from_pretrained("path/or/owner/name")\nprediction = method.predict({task})\nprint(prediction.labels)\n```',
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
            "A schedule is tied to the scale of the features it was learned on, and to about as many classes in the query; "
            "learn your own with `unem train` where yours differ."
        )
    names = {"queries": "queries", "num_classes": "classes", "shots": "shots"}
    ranges = ", ".join(f"{low:g} to {high:g} {names.get(n, n)}" for n, (low, high) in schedule.ranges.items())
    return f"It was learned with {ranges or 'one kind of task'}; beyond, tasks are treated as those at the border."


def _one_line(value: Any) -> str:
    return " ".join(str(value).split())
