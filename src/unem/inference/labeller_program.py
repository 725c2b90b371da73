"""A fitted labeller as a program that runs without this library: queries in, their probabilities out.

All that was fitted is in it as numbers: whitening, calibration, class means, texts, and what a shift is measured by.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unem._extras import require
from unem._io import check_writable, write_aside
from unem._version import __version__
from unem.errors import InputError
from unem.evidence import MOST_TOGETHER
from unem.inference.export import quiet

if TYPE_CHECKING:
    from unem.inference.labeller import Labeller

__all__ = ["CLASSES", "LabellerProgram", "export_labeller"]

CLASSES = "classes"
"""Under which the names of the classes are stored, as JSON, in the order of the columns."""
EXAMPLE = 5  # queries by which a program is recorded


class LabellerProgram(nn.Module):
    """What a labeller says of queries as one function of them, in float32; what :func:`export_labeller` records.

    Example:
        >>> import unem
        >>> program = LabellerProgram(unem.inference.fit(torch.eye(3, 8), ["ash", "elm", "oak"]))
        >>> program(torch.rand(7, 8)).shape
        torch.Size([7, 3])
    """

    def __init__(self, labeller: Labeller) -> None:
        super().__init__()
        labeller = labeller.to("cpu")
        support, text = (None if x is None else x.float() for x in (labeller.support, labeller.text))
        like = text if support is None else support
        assert like is not None
        self.fitted = replace(labeller, support=support, text=text).fitted
        self.example = torch.eye(EXAMPLE, like.shape[1])
        with torch.no_grad():
            self(self.example)  # what the fit computes when it is first asked is a number from here on

    def forward(self, query: Float[Tensor, "query feature"]) -> Float[Tensor, "query class"]:
        found = self.fitted.predict(query.unsqueeze(0))[0]
        return found / found.sum(-1, keepdim=True)


def export_labeller(labeller: Labeller, path: str | os.PathLike[str]) -> None:
    """Write a labeller as a program; see :meth:`unem.inference.Labeller.export`."""
    ending = Path(path).suffix
    if ending not in (".pt2", ".onnx"):
        raise InputError(f"path: expected a name that ends in .pt2 or .onnx, got {os.fspath(path)!r}")
    check_writable(path)
    onnx: Any = None
    if ending == ".onnx":
        onnx = require("onnx", "export", "format: onnx")
        require("onnxscript", "export", "format: onnx")  # torch uses it
    program, names = LabellerProgram(labeller).eval(), json.dumps(labeller.classes)
    shapes = {"query": {0: torch.export.Dim("query", min=1, max=MOST_TOGETHER)}}
    with torch.no_grad(), quiet():
        recorded = torch.export.export(program, (program.example,), dynamic_shapes=shapes)
        if onnx is not None:
            model = torch.onnx.export(recorded, output_names=["probabilities"], verbose=False).model_proto  # type: ignore[union-attr]
    with quiet(), write_aside(path) as aside, tempfile.TemporaryDirectory() as folder:
        if onnx is None:
            file = Path(folder) / "program.pt2"  # torch wants the suffix
            torch.export.save(recorded, file, extra_files={CLASSES: names})
            aside.write_bytes(file.read_bytes())
        else:
            onnx.helper.set_model_props(model, {CLASSES: names, "unem": __version__})
            onnx.checker.check_model(model)
            aside.write_bytes(model.SerializeToString())
