"""Families of schedules as programs that run without this library, for tasks of one size."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unem._checks import check_count
from unem._extras import require
from unem._io import check_writable, to_json, write_aside
from unem.core import Rows, Task
from unem.core.numerics import backends
from unem.errors import InputError
from unem.inference.pretrained import SCHEDULE, Learned, schedule_of
from unem.learning import LayeredMethod, ScheduleFamily
from unem.methods import create_method, method_for

__all__ = ["FamilyProgram", "export_family"]

INPUTS = ("support", "query")


class FamilyProgram(nn.Module):
    """A family of schedules as one function of tensors, in plain torch; what :func:`export_family` records.

    Its inputs are the support ``[sample, feature]``, ordered by class with equally many samples of each, and the
    queries ``[query, feature]``. All candidates for the number of classes present are in it, and the gate.

    Example:
        >>> import torch, unem
        >>> program = FamilyProgram(unem.create_method("unem-plus"), classes=3)
        >>> program(torch.randn(6, 8), torch.randn(20, 8)).shape
        torch.Size([20, 3])
    """

    def __init__(self, method: LayeredMethod, classes: int) -> None:
        super().__init__()
        self.method, self.classes = method, classes

    def forward(
        self, support: Float[Tensor, "sample feature"], query: Float[Tensor, "query feature"]
    ) -> Float[Tensor, "query class"]:
        with backends.plain_torch():
            task = Task.drawn(Rows(support.unsqueeze(0)), Rows(query.unsqueeze(0)), self.classes)
            return self.method.predict(task).probabilities.squeeze(0)


def export_family(
    learned: Learned, path: str | os.PathLike[str], *, classes: int, shots: int, queries: int, features: int
) -> None:
    """Write a family, or a method that has one, as a program for tasks of one size: its schedule depends on the sizes.

    Args:
        learned: a family of a law without texts, or a method with one, perhaps with ``effective_classes``.
        path: ``.pt2`` for torch (``torch.export.load``), ``.onnx`` for ONNX, which takes minutes to make where the
            number of classes present is not given.
        classes, shots, queries, features: of a task.
    """
    check_count(at_least=2, classes=classes, queries=queries, features=features)
    check_count(shots=shots)
    ending = Path(path).suffix
    if ending not in (".pt2", ".onnx"):
        raise InputError(f"path: expected a name that ends in .pt2 or .onnx, got {os.fspath(path)!r}")
    method = _family_method(learned)
    check_writable(path)
    if ending == ".onnx":
        if any("white" in view for view in getattr(method.law, "views", ())):
            raise InputError("path: whitened views need a decomposition that ONNX does not have; .pt2 has it")
        require("onnx", "export", "format: onnx")
        require("onnxscript", "export", "format: onnx")  # torch uses it
    example = torch.rand(classes * shots, features), torch.rand(queries, features)
    with torch.no_grad():
        program = torch.export.export(FamilyProgram(method, classes).eval(), example)
    with write_aside(path) as aside, tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / f"program{ending}"  # torch wants the suffix
        if ending == ".pt2":
            torch.export.save(program, file, extra_files={SCHEDULE: to_json(schedule_of(method).to_dict())})
        else:
            names = {"input_names": list(INPUTS), "output_names": ["probabilities"]}
            torch.onnx.export(program, f=file, external_data=False, verbose=False, **names)  # type: ignore[arg-type]
        aside.write_bytes(file.read_bytes())


def _family_method(learned: Learned) -> LayeredMethod:
    family = schedule_of(learned)
    if not isinstance(family, ScheduleFamily):
        raise InputError("learned: expected a family of schedules; one schedule is exported for tasks of any size")
    name = method_for(family).name
    if family.law.text or not family.law.support:
        raise InputError(f"learned: expected a family of a law without texts, this one is for {name}")
    method: Any = learned if isinstance(learned, LayeredMethod) else create_method(name, schedule=family)
    return method  # type: ignore[no-any-return]
