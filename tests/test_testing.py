"""The conformance checks: what they pass, and that each fault is found."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
import torch

import unem
from unem.core.laws import LAWS, DiagonalGaussian, DirichletOfQueries, KullbackLeibler, SquaredDistance
from unem.core.laws.gaussian import Gaussian
from unem.testing import check_law, check_method

SHIPPED = [
    unem.Gaussian(),
    unem.Gaussian(form="direct"),
    unem.Dirichlet(),
    unem.Directions(),
    unem.Directions(views=("unit",), neighbours=0, text=True),
    SquaredDistance(),
    KullbackLeibler(),
    DiagonalGaussian(),
    DirichletOfQueries(),
]


@pytest.mark.parametrize("law", SHIPPED, ids=repr)
@pytest.mark.filterwarnings("ignore:some classes are more concentrated:unem.errors.UnemWarning")
def test_our_laws_conform(law):
    check_law(law)


def test_two_laws_never_share_a_name():
    with pytest.raises(unem.InputError, match="laws do not share names"):

        @dataclass(frozen=True)
        class Impostor(Gaussian):
            name = "gaussian"


def faulty(fault):
    """A Gaussian law with a fault, under a name of its own."""

    class Faulty(Gaussian):
        name = f"faulty-{fault.__name__}"

        def log_prob(self, statistics, parameters, part=slice(None)):
            return fault(super().log_prob(statistics, parameters, part))

    return Faulty()


def order(logits):
    return logits + torch.arange(logits.shape[1]).view(1, -1, 1) * torch.arange(logits.shape[2])


def classes(logits):
    return logits + torch.arange(logits.shape[2])


def batch(logits):
    return logits - logits.mean(0, keepdim=True) * (len(logits) > 1)


def nothing(logits):
    return logits * torch.nan


def detached(logits):
    return logits.detach()


@pytest.mark.parametrize(
    ("fault", "rule"),
    [
        (order, "another order"),
        (classes, "other numbers"),
        (batch, "alone and in a batch"),
        (nothing, "finite numbers"),
        (detached, "Jacobian"),
    ],
)
def test_faults_of_a_law_are_found(fault, rule):
    law = faulty(fault)
    with pytest.raises((AssertionError, RuntimeError), match=rule):
        check_law(law)
    LAWS.pop(law.name)


@dataclass(frozen=True)
class Broken:
    """A method with one of several faults."""

    fault: str
    name = "broken"
    inputs = "features"

    def describe(self):
        return {"fault": object() if self.fault == "describe" else self.fault}

    def predict(self, task):
        u = torch.cdist(task.query, task.class_sums(task.support_rows) / task.shots.unsqueeze(-1)).neg().softmax(-1)
        if self.fault == "sum":
            u = 2 * u
        if self.fault == "random":
            u = (u + 0.1 * torch.rand_like(u)).softmax(-1)
        if self.fault == "changes":
            task.query.add_(1)
        if self.fault == "batch":
            u = (u + u.mean(0, keepdim=True)).softmax(-1)
        return unem.Prediction(u.squeeze(0) if task.single and self.fault != "single" else u)


@pytest.mark.parametrize("fault", ["sum", "random", "changes", "batch", "single", "describe"])
def test_faults_of_a_method_are_found(fault):
    with pytest.raises((AssertionError, TypeError)):
        check_method(Broken(fault))


def test_a_message_names_the_subject_and_the_rule():
    with pytest.raises(AssertionError, match=re.escape("Broken (broken): Every query gets finite numbers")):
        check_method(Broken("sum"))


def test_a_sound_method_passes():
    check_method(Broken(""))
