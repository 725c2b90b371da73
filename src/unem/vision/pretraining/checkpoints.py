"""The state of a run as a file, written after each epoch: what a run that was stopped goes on from."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from unem._io import write_aside
from unem.errors import InputError
from unem.vision.pretraining.records import PretrainingEpoch, RunState

__all__ = ["load_state", "save_state", "weights_of"]

FORMAT = "unem-pretraining/1"


def save_state(
    path: str | os.PathLike[str],
    state: RunState,
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    settings: Mapping[str, Any],
) -> None:
    """Write the weights, the momenta, the best epoch's weights and the history, whole or not at all."""
    tensors = {f"model.{k}": v for k, v in model.state_dict().items()}
    if not state.history[-1].kept:  # else the best is the present one
        tensors |= {f"best.{k}": v for k, v in state.best.items()}
    for name, parameter in model.named_parameters():
        momentum = optimiser.state[parameter].get("momentum_buffer")
        if momentum is not None:
            tensors[f"momentum.{name}"] = momentum
    header = {
        "settings": settings,
        "epoch": state.epoch,
        "best_score": state.best_score if math.isfinite(state.best_score) else None,
        "history": [asdict(e) for e in state.history],
    }
    metadata = {"format": FORMAT, "unem": json.dumps(header)}
    with write_aside(path) as aside:
        save_file({k: v.detach().cpu().contiguous() for k, v in tensors.items()}, aside, metadata=metadata)


def load_state(
    path: str | os.PathLike[str],
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    settings: Mapping[str, Any],
    device: torch.device,
) -> RunState:
    """Read what :func:`save_state` has written into the model and its optimiser; refuse a run with other settings."""
    tensors, header = _read(os.fspath(path))
    different = _different(json.loads(json.dumps(settings)), header.get("settings") or {})
    if different:
        raise InputError(
            f"checkpoint: {os.fspath(path)!r} belongs to a run with other settings "
            f"(different: {', '.join(different)}); remove it to start anew, or repeat the settings it was made with"
        )
    try:
        model.load_state_dict(_below("model.", tensors))
        momenta = _below("momentum.", tensors)
        for name, parameter in model.named_parameters():
            if name in momenta:
                buffer = torch.empty_like(parameter).copy_(momenta[name])  # in the parameter's memory format
                optimiser.state[parameter]["momentum_buffer"] = buffer.detach()
        # No best epoch in the file: it is the present one, whose weights lie under the classifier's ``network``.
        best = _below("best.", tensors) or weights_of(model.get_submodule("network"))
        score = header["best_score"]
        return RunState(
            header["epoch"],
            {k: v.to(device) for k, v in best.items()},
            -math.inf if score is None else score,
            [PretrainingEpoch(**e) for e in header["history"]],
        )
    except (KeyError, TypeError, RuntimeError) as error:
        reason = str(error).splitlines()[-1].strip()
        raise InputError(f"checkpoint: {os.fspath(path)!r} is damaged ({reason})") from error


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    """A copy of the weights, as they are now."""
    return {k: v.detach().clone() for k, v in network.state_dict().items()}


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _different(wanted: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """Names of the settings that differ, those of the config one by one."""
    flat = [{**x, **x.get("config", {}), "config": None} for x in (wanted, known)]
    return sorted(k for k in flat[0].keys() | flat[1].keys() if flat[0].get(k) != flat[1].get(k))


def _read(file: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(file, framework="pt") as stored:
            metadata = stored.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise InputError(f"checkpoint: {file!r} is a safetensors file but no checkpoint of a pre-training")
            tensors = {key: stored.get_tensor(key) for key in stored.keys()}  # noqa: SIM118
        header = json.loads(metadata["unem"])
        if not isinstance(header, dict):
            raise ValueError("its header is not a table")
    except InputError:
        raise
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise InputError(f"checkpoint: {file!r} is not the checkpoint of a pre-training ({error})") from error
    return tensors, header
