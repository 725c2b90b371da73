"""What a stopped training needs to go on: parameters, Adam's moments and some plain values, in one safetensors file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from unem._io import write_aside
from unem.errors import InputError

__all__ = ["restore", "store"]

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def store(
    path: str | os.PathLike[str],
    parameters: Mapping[str, Tensor],
    optimiser: torch.optim.Optimizer,
    settings: Mapping[str, Any],
    state: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
) -> None:
    """Write the file, whole or not at all.

    Args:
        settings: everything that decides the training; a run with others may not go on from here.
        state: plain values, for instance how far the training is.
        tensors: what else is to be kept.
    """
    kept = {f"raw.{k}": v.detach() for k, v in parameters.items()} | {f"kept.{k}": v for k, v in tensors.items()}
    for name, parameter in parameters.items():
        moments = optimiser.state[parameter]
        if moments:  # none for a parameter without influence (λ of the first Gaussian layer, if it is the only one)
            kept |= {f"adam.{key}.{name}": torch.as_tensor(moments[key]) for key in MOMENTS}
    header = {"settings": dict(settings), "state": dict(state)}
    with write_aside(path) as aside:
        try:
            save_file({k: v.cpu().clone() for k, v in kept.items()}, aside, metadata={"unem": json.dumps(header)})
        except SafetensorError as error:
            raise OSError(str(error)) from error


def restore(
    path: str | os.PathLike[str],
    parameters: Mapping[str, Tensor],
    optimiser: torch.optim.Optimizer,
    settings: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Set parameters and moments as they were stored; returns ``state`` and ``tensors``."""
    device = next(iter(parameters.values())).device
    try:
        with safe_open(path, framework="pt", device=str(device)) as stored:
            header = json.loads((stored.metadata() or {})["unem"])
            known, state = header["settings"], header["state"]
            tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InputError(f"checkpoint: {os.fspath(path)!r} is not a training checkpoint ({error})") from error
    wanted = json.loads(json.dumps(dict(settings)))
    different = sorted(k for k in wanted.keys() | known.keys() if wanted.get(k) != known.get(k))
    if different:
        raise InputError(
            f"checkpoint: {os.fspath(path)!r} belongs to a run with other settings (different: "
            f"{', '.join(different)}); remove it to start anew, or repeat the settings it was made with"
        )
    fused = optimiser.defaults.get("fused")  # it then counts its steps on the device
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[f"raw.{name}"])
            if f"adam.step.{name}" in tensors:
                moments = {key: tensors[f"adam.{key}.{name}"] for key in MOMENTS}
                optimiser.state[parameter] = moments | {"step": moments["step"].to(device if fused else "cpu")}
    return state, {k.removeprefix("kept."): v for k, v in tensors.items() if k.startswith("kept.")}
