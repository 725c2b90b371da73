"""Figures of schedules and training: laws of ours, a user's own, and laws whose code is not at hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from unem.core.laws import Gaussian, Law
from unem.core.schedule import Schedule
from unem.errors import InputError
from unem.report import figure_svg, proportions_figure, schedule_figure, training_figure


@dataclass(frozen=True)
class Mine(Gaussian):
    """A law of a user's own."""

    name: ClassVar[str] = "mine of test_plots"
    colour: ClassVar[str] = "tab:red"


HISTORY = {
    "history": [{"number": n, "loss": 1 / n, "validation_accuracy": 50.0 + n} for n in (1, 2, 3)],
    "kept_epoch": 2,
}
SCHEDULES = {
    "unem-gaussian": Schedule((1.0, 2.0), 1.0, law="gaussian", provenance=HISTORY),
    "mine": Schedule((1.0, 3.0), 1.0, law=Mine.name, provenance=HISTORY),
    "mine, longer": Schedule((1.0, 3.0, 2.0), 1.0, law=Mine.name, provenance=HISTORY),
    "elsewhere": Schedule(2.0, 1.0, law="a law that is not defined here", provenance=HISTORY),
    "any": Schedule(2.0, 1.0, provenance=HISTORY),
}


def lines(figure):
    """Colour, marker and style of each named line of the first panel."""
    named = [line for line in figure.axes[0].lines if not line.get_label().startswith("_")]
    return {line.get_label(): (line.get_color(), line.get_marker(), line.get_linestyle()) for line in named}


@pytest.mark.parametrize("draw", [lambda: schedule_figure(SCHEDULES, 75), lambda: training_figure(SCHEDULES)])
def test_a_law_of_ones_own_has_its_colour_and_unknown_ones_a_default(draw):
    looks = lines(draw())
    assert list(looks) == list(SCHEDULES)
    assert looks["unem-gaussian"] == (Gaussian.colour, "o", "-")
    assert looks["mine"] == ("#d62728", "s", "-")
    assert looks["mine, longer"] == ("#d62728", "s", "--")
    assert looks["elsewhere"][0] == looks["any"][0] == Law.colour
    assert len({marker for _, marker, _ in looks.values()}) == 4  # one for each law


def test_schedules_that_were_not_learned_have_no_training_to_show():
    with pytest.raises(InputError, match="no training history"):
        training_figure({"fixed": Schedule(law="gaussian")})


def test_shares_of_the_classes_add_up():
    from unem.core.em import gem
    from unem.core.task import Task

    labels = torch.arange(12) % 4
    task = Task(3 * torch.eye(4)[labels], labels, 3 * torch.eye(4)[labels % 2])
    trace = gem(task, Gaussian(), Schedule(layers=3), trace=True).trace
    figure = proportions_figure(trace, labels % 2, class_names=["a", "b", "c", "d"])
    drawn = [line for line in figure.axes[0].lines if len(line.get_xdata()) == 3]
    assert len(drawn) == 4
    assert sum(line.get_ydata()[-1] for line in drawn) == pytest.approx(100, abs=1e-3)


def test_pictures_are_the_same_every_time_and_follow_the_page():
    first, second = (figure_svg(schedule_figure(SCHEDULES, 75), name="x", description='a "<b>" line') for _ in range(2))
    assert first == second
    assert f"var(--blue, {Gaussian.colour})" in first
    assert "&quot;&lt;b&gt;&quot;" in first
