"""Core: tasks as tensors, the laws, schedules and the one EM loop. It opens no file and knows no registry.

:class:`Task` is a batch of few-shot tasks, whose samples are :class:`Rows`; :func:`gem` classifies its queries jointly
under a law (:mod:`unem.core.laws`) with the numbers of a :class:`Schedule`. :mod:`unem.core.memory` splits work so that
it fits; :mod:`unem.core.numerics` is mathematics without few-shot learning.
"""

from unem.core.copies import row_numbers
from unem.core.em import Trace, gem, iterate
from unem.core.laws import Directions, Dirichlet, Gaussian, Law, law_by_name
from unem.core.memory import (
    SHARERS,
    Graph,
    GraphedMethod,
    PeakMemory,
    gpu_sharers,
    images_per_batch,
    in_parts,
    parts_of,
    tasks_per_batch,
)
from unem.core.rows import Rows
from unem.core.schedule import Schedule
from unem.core.task import PADDING, Inputs, Prediction, Task, as_floating, check_dense, check_finite

__all__ = [
    "PADDING",
    "SHARERS",
    "Directions",
    "Dirichlet",
    "Gaussian",
    "Graph",
    "GraphedMethod",
    "Inputs",
    "Law",
    "PeakMemory",
    "Prediction",
    "Rows",
    "Schedule",
    "Task",
    "Trace",
    "as_floating",
    "check_dense",
    "check_finite",
    "gem",
    "gpu_sharers",
    "images_per_batch",
    "in_parts",
    "iterate",
    "law_by_name",
    "parts_of",
    "row_numbers",
    "tasks_per_batch",
]
