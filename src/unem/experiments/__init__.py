"""Experiments: many results at once.

A sweep (:class:`Spec`) expands into cells, which are data; an engine computes those that a :class:`ResultsStore` does
not have (:func:`execute`). :mod:`unem.experiments.paper` has the paper's tables and figures as such sweeps.
"""

from unem.evaluation import code_version
from unem.experiments.cells import Cell, Job, Preparation, job_from_key
from unem.experiments.engines import LocalEngine
from unem.experiments.execution import Engine, Execution, Outcome, Progress, execute
from unem.experiments.images import FeatureFolder, Images, parse_classes, usual_images
from unem.experiments.run import run_job
from unem.experiments.seeds import held_out_accuracy, seed_file, spread, typical
from unem.experiments.spec import LeftOut, Plan, Spec, expand, parse_spec, read_spec
from unem.experiments.store import COLUMNS, ResultsStore, columns_of, in_order, record_of, to_csv

__all__ = [
    "COLUMNS",
    "Cell",
    "Engine",
    "Execution",
    "FeatureFolder",
    "Images",
    "Job",
    "LeftOut",
    "LocalEngine",
    "Outcome",
    "Plan",
    "Preparation",
    "Progress",
    "ResultsStore",
    "Spec",
    "code_version",
    "columns_of",
    "execute",
    "expand",
    "held_out_accuracy",
    "in_order",
    "job_from_key",
    "parse_classes",
    "parse_spec",
    "read_spec",
    "record_of",
    "run_job",
    "seed_file",
    "spread",
    "to_csv",
    "typical",
    "usual_images",
]
