"""Zero-shot classification by text."""

from dataclasses import dataclass

from unem.core.task import Prediction, Task, predicted
from unem.errors import InputError
from unem.methods._common import Settings
from unem.methods._registry import register_method


@register_method(
    "zero-shot",
    reference="A. Radford et al., Learning transferable visual models from natural language supervision, ICML 2021",
    inputs="similarities",
    transductive=False,
    needs_support=False,
)
@dataclass(frozen=True)
class ZeroShot(Settings):
    r"""The class whose text is nearest, ``softmax(T_z · cos)`` with CLIP's T_z = 100; no support is used."""

    feature_scale: float = 100.0

    def predict(self, task: Task) -> Prediction:
        if task.num_features != task.num_classes:
            raise InputError(
                f"query: zero-shot classification needs one similarity per class ({task.num_classes}), "
                f"got {task.num_features}"
            )
        return predicted(task, (self.feature_scale * task.query).softmax(-1))
