"""A backbone's network as a program for onnxruntime, which computes some networks much faster on a CPU than torch does.

A program is made once, compared with torch, and kept in the user's cache folder. Where a package is missing, or the
program is not right, torch computes.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from unem._extras import is_installed
from unem._io import cache_folder, write_aside
from unem.errors import InputError

__all__ = ["TOLERANCE", "OnnxProgram", "onnx_program"]

TOLERANCE = 1e-5
"""Largest distance between the features of the program and of torch, relative to their length."""
COMPARED = 3  # images on which a new program is compared with torch
MADE = 1  # how programs are made; another number makes them anew


class OnnxProgram:
    """A function from images to features, computed by onnxruntime on a CPU with as many threads as torch has."""

    def __init__(self, content: bytes) -> None:
        os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # nothing is reported to anybody, no session file is left
        onnxruntime: Any = importlib.import_module("onnxruntime")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")  # threads that decode want the cores
        self.session: Any = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def __call__(self, images: Float[Tensor, "image 3 height width"]) -> Float[Tensor, "image feature"]:
        (features,) = self.session.run(None, {"images": images.contiguous().numpy()})
        return torch.from_numpy(features)


def onnx_program(network: Callable[[Tensor], Tensor], module: nn.Module, size: int, key: str) -> OnnxProgram | None:
    """The program of a network; None where it cannot be made, or its features are not those of torch.

    Args:
        network: the function from images to features, in torch.
        module: what holds its weights.
        size: side of an image.
        key: names the function and its weights, for the file that keeps the program.
    """
    if not (is_installed("onnxruntime") and is_installed("onnx")):
        return None
    base = cache_folder()
    file = None if base is None else base / "onnx" / f"{key}-{size}-{MADE}.onnx"
    if file is not None:
        with suppress(Exception):  # not there, or damaged: onnxruntime has errors of its own
            return OnnxProgram(_whole(file.read_bytes()))
    try:
        content = _exported(network, module, size)
        program = OnnxProgram(content)
        images = torch.rand(COMPARED, 3, size, size, generator=torch.Generator().manual_seed(0)) * 2 - 1
        expected = network(images)
        if not torch.all((program(images) - expected).norm(dim=1) <= TOLERANCE * expected.norm(dim=1)):
            return None
    except Exception:  # torch's exporter and onnxruntime raise many kinds; torch itself serves
        return None
    if file is not None:
        with suppress(InputError), write_aside(file) as aside:  # without a folder, it is made anew each time
            aside.write_bytes(hashlib.sha256(content).digest() + content)
    return program


def _whole(kept: bytes) -> bytes:
    """What follows the digest in a file; a changed byte of the weights would change features without a word."""
    digest, content = kept[:32], kept[32:]
    if hashlib.sha256(content).digest() != digest:
        raise ValueError("damaged")
    return content


def _exported(network: Callable[[Tensor], Tensor], module: nn.Module, size: int) -> bytes:
    with tempfile.TemporaryDirectory(prefix="unem-") as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # this exporter is the older one; the newer takes 15 times as long
        file = Path(folder) / "program.onnx"
        torch.onnx.export(
            _Function(network, module).eval(),
            (torch.zeros(2, 3, size, size),),
            file,
            dynamo=False,
            input_names=["images"],
            output_names=["features"],
            dynamic_axes={"images": {0: "image"}, "features": {0: "image"}},
        )
        return file.read_bytes()


class _Function(nn.Module):
    """A function of images as a module, which is what the exporter takes."""

    def __init__(self, function: Callable[[Tensor], Tensor], module: nn.Module) -> None:
        super().__init__()
        self.module, self.function = module, function

    def forward(self, images: Tensor) -> Tensor:
        return self.function(images)
