"""Plots of rows: each with the numbers it shows, so that they can be drawn again elsewhere."""

from collections.abc import Sequence

from unem.report.result_plots.confusion import confusion_plot
from unem.report.result_plots.plot import Plot, Row, pairs_of
from unem.report.result_plots.protocols import depth_plots, protocol_plots
from unem.report.result_plots.quality import cost_plots, reliability_plots
from unem.report.result_plots.schedules import schedule_plots
from unem.report.result_plots.sensitivity import sensitivity_plots

__all__ = ["Plot", "all_plots", "confusion_plot"]


def all_plots(rows: Sequence[Row]) -> list[Plot]:
    """Every plot that the rows have the numbers for."""
    pairs = pairs_of(rows)
    return [
        *sensitivity_plots(pairs),
        *schedule_plots(pairs),
        *protocol_plots(pairs),
        *depth_plots(pairs),
        *reliability_plots(pairs),
        *cost_plots(pairs),
    ]
