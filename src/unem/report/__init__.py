"""Pages and figures of what the library found: HTML files that need nothing else.

``demo_page`` is the page of the demonstration, ``results`` that of a folder of results with the plots of
``result_plots``, and ``contact_sheet`` that of labelled images. ``plots`` draws schedules, training and tasks;
``style`` says how all figures look, ``laws`` how a law is shown (a user's own too), ``templates`` reads the ``.j2``
files.
"""

from unem.report.demo_page import DemoReport, ShownLaw, ShownTask, render_demo
from unem.report.plots import proportions_figure, schedule_figure, training_figure
from unem.report.style import figure_svg

__all__ = [
    "DemoReport",
    "ShownLaw",
    "ShownTask",
    "figure_svg",
    "proportions_figure",
    "render_demo",
    "schedule_figure",
    "training_figure",
]
