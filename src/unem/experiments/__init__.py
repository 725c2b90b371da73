"""Many results at once: cells that are data, a store of rows, engines that compute what is missing."""

from unem.experiments.cells import Cell, Preparation, code_version
from unem.experiments.execute import Execution, Progress, execute
from unem.experiments.images import FeatureFolder, Images
from unem.experiments.spec import LeftOut, Plan, Spec, expand, read_spec
from unem.experiments.store import ResultsStore

__all__ = [
    "Cell",
    "Execution",
    "FeatureFolder",
    "Images",
    "LeftOut",
    "Plan",
    "Preparation",
    "Progress",
    "ResultsStore",
    "Spec",
    "code_version",
    "execute",
    "expand",
    "read_spec",
]
