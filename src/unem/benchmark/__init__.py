"""How fast this library is on a machine, and how far from what the machine could do at best.

Forms that are compared run interleaved in one process, round after round, so that whatever else the machine does meets
them alike; the ratio is taken within each round. Reported are medians and the range of the ratio. Each row also has
the ``floor``, the least time that the case could take on this machine, and its ``distance`` from it
(:mod:`unem.benchmark.floor` says how it is counted).

``cases`` says what is timed, ``machine`` and ``floor`` what would be possible, ``timing`` how time is taken, ``rows``
what is written down, ``measurements`` puts them together, and ``short_run`` is what ``summary`` shows. The folder
``benchmarks/`` of the repository adds the paper's algorithms written out directly, to compare with.
"""

from unem.benchmark.cases import EFFECTIVE_CLASSES, Case, Mode, library_call, training_step
from unem.benchmark.floor import Work, least_work
from unem.benchmark.machine import Machine
from unem.benchmark.measurements import (
    compare,
    compiled_forms,
    fitted_exponent,
    growth,
    many_queries,
    pipeline,
    thread_scaling,
)
from unem.benchmark.rows import COLUMNS, Row, write_csv
from unem.benchmark.short_run import summary
from unem.benchmark.timing import Contender, Measured, interleave

__all__ = [
    "COLUMNS",
    "EFFECTIVE_CLASSES",
    "Case",
    "Contender",
    "Machine",
    "Measured",
    "Mode",
    "Row",
    "Work",
    "compare",
    "compiled_forms",
    "fitted_exponent",
    "growth",
    "interleave",
    "least_work",
    "library_call",
    "many_queries",
    "pipeline",
    "summary",
    "thread_scaling",
    "training_step",
    "write_csv",
]
