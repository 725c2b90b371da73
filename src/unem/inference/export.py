"""Learned schedules as programs that run without this library: of torch, and as ONNX.

A program takes the support, its classes and the queries, all of any number, and gives the probabilities of the queries.
It holds the whole loop with the learned numbers in it, and needs no line of this library to run.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unem._extras import require
from unem._io import check_writable, to_json, write_aside
from unem._version import __version__
from unem.core import Dirichlet, Gaussian, Schedule, iterate
from unem.core.laws.base import ALL, Law
from unem.core.laws.dirichlet import LOG_FLOOR, ScaledDirichlet
from unem.core.laws.gaussian import GramStatistics
from unem.core.numerics import backends
from unem.core.numerics.newton import Fit, solve_unasked
from unem.errors import InputError
from unem.inference.pretrained import SCHEDULE, Learned, schedule_of
from unem.methods import method_for

__all__ = ["Program", "export_onnx", "export_torch", "quiet"]

INPUTS = ("support", "support_classes", "query")


class Program(nn.Module):
    """Generalized EM with a schedule as one function of tensors, in plain torch; what :func:`export_torch` and
    :func:`export_onnx` record.

    Its inputs are the support ``[sample, feature]``, ``support_classes`` ``[sample, class]`` with a 1 where the sample
    is of the class and 0 elsewhere, and the queries ``[query, feature]``; all sizes are free. Similarities take the
    place of features for the Dirichlet law, one for each class.

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
            assignments: Tensor = self.law.assign(self.schedule, support, support_classes, query)
        return assignments


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
        return _iterated(self, scaled, schedule)


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
        return _iterated(self, statistics, schedule)

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


def _iterated(law: Law, statistics: Any, schedule: Schedule) -> Tensor:
    """The assignments of the only task."""
    balances, temperatures, weights = schedule.class_balances, schedule.temperatures, schedule.query_weights
    return iterate(law, statistics, balances, temperatures, query_weights=weights).squeeze(0)


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
    """A program of ``torch.export`` with any number of samples, classes, queries and features; written to ``path``
    (``.pt2``) if given.

    ``torch.export.load`` reads it, ``.module()`` makes it callable, and AOTInductor or ExecuTorch compile it. The
    schedule is in it as ``schedule.json``.

    Example:
        >>> import torch, unem
        >>> program = export_torch(unem.load_schedule("unem-gaussian/mini-imagenet/resnet18/5-shot")).module()
        >>> program(torch.randn(6, 5), torch.eye(3).repeat(2, 1), torch.randn(7, 5)).shape
        torch.Size([7, 3])
    """
    schedule = _one_schedule(learned)
    if path is not None:
        check_writable(path)
    with torch.no_grad():
        program = torch.export.export(Program(schedule).eval(), _example(), dynamic_shapes=_shapes(schedule))
    if path is not None:
        with write_aside(path) as aside, tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "program.pt2"  # torch wants the suffix
            torch.export.save(program, file, extra_files={SCHEDULE: to_json(schedule.to_dict())})
            aside.write_bytes(file.read_bytes())
    return program


def export_onnx(learned: Learned, path: str | os.PathLike[str]) -> None:
    """An ONNX file of a schedule of the Gaussian law, with any number of samples, classes, queries and features.

    Inputs ``support``, ``support_classes`` and ``query`` as in :class:`Program`, output ``probabilities``, all float32.
    Needs ``onnx`` and ``onnxscript`` (the extra ``export``). The Dirichlet law needs ψ, which ONNX does not have.
    """
    schedule = _one_schedule(learned)
    if schedule.law != "gaussian":
        raise InputError(
            f"schedule: ONNX is for the gaussian law, this one is for {schedule.law!r} (export it for torch)"
        )
    check_writable(path)
    onnx: Any = require("onnx", "export", "format: onnx")
    require("onnxscript", "export", "format: onnx")  # torch uses it
    with torch.no_grad(), quiet():
        exported = torch.onnx.export(
            Program(schedule).eval(),
            _example(),
            dynamo=True,
            dynamic_shapes=_shapes(schedule),
            input_names=list(INPUTS),
            output_names=["probabilities"],
            verbose=False,
        )
    assert exported is not None
    model = exported.model_proto
    onnx.helper.set_model_props(model, {SCHEDULE: json.dumps(schedule.to_dict()), "unem": __version__})
    onnx.checker.check_model(model)
    with write_aside(path) as aside:
        aside.write_bytes(model.SerializeToString())


@contextmanager
def quiet() -> Iterator[None]:
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


def _one_schedule(learned: Learned) -> Schedule:
    schedule = schedule_of(learned)
    if not isinstance(schedule, Schedule):
        raise InputError(
            f"schedule: programs are made of one schedule, and this is a family ({method_for(schedule).name}), "
            "which runs the loop for several numbers of classes; unem.inference.export_family writes it for tasks of "
            "one size"
        )
    return schedule
