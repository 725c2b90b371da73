"""Figures of schedules, training and tasks, and the page that shows them."""

from unem.report.html import DemoReport, ShownTask, render_demo
from unem.report.plots import figure_svg, proportions_figure, schedule_figure, training_figure

__all__ = [
    "DemoReport",
    "ShownTask",
    "figure_svg",
    "proportions_figure",
    "render_demo",
    "schedule_figure",
    "training_figure",
]
