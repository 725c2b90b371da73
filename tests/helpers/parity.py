"""Records of the published code's outputs."""

from __future__ import annotations

import torch

import unem
from unem.core.transforms import scale_channels


def load(path):
    return torch.load(path, weights_only=True)


def layers(values):
    """A list of one number is shared by all layers."""
    if not isinstance(values, list):
        return float(values)
    return tuple(values) if len(values) > 1 else values[0]


def configuration(record, dtype):
    """Law, schedule and task of a record, in the faithful mode."""
    inputs, hyper = record["inputs"], record["hyper"]
    lam = hyper["lambda_"]
    balance = layers([v / 75 for v in lam]) if isinstance(lam, list) else lam / 75
    count = len(balance) if isinstance(balance, tuple) else hyper.get("iters", 10)
    temperature, scale = layers(hyper.get("temperature", 1.0)), float(hyper.get("feature_scale", 1.0))
    if "HARD" in record["method"]:
        temperature = 0.0
    law = unem.Gaussian() if record["family"] == "gaussian" else unem.Dirichlet(solver="mm")
    names = ("x_s", "x_q") if record["family"] == "gaussian" else ("cos_s", "cos_q")
    support, query = (inputs[n].to(dtype) for n in names)
    if record["method"] == "PADDLE_CLIP":
        law, support, query, scale = (
            unem.Gaussian(1e-15),
            (scale * support).softmax(-1),
            (scale * query).softmax(-1),
            1.0,
        )
    task = unem.Task(support, inputs["y_s"], query)
    if hyper.get("minmax_by_query_range"):
        task = scale_channels(task)
    return task, law, unem.Schedule(balance, temperature, scale, layers=count)
