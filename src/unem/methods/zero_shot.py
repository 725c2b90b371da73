"""Zero-shot classification by text."""

from dataclasses import dataclass
from typing import ClassVar

from unem.core.task import Inputs, Prediction, Task
from unem.errors import InputError
from unem.methods._registry import register


@dataclass(frozen=True)
class ZeroShot:
    """The class whose text is most similar; the support is not used."""

    feature_scale: float = 100.0
    name: ClassVar[str] = "zero-shot"
    inputs: ClassVar[Inputs] = "similarities"

    def describe(self) -> dict[str, float]:
        return {"feature_scale": self.feature_scale}

    def predict(self, task: Task) -> Prediction:
        if task.num_features != task.num_classes:
            raise InputError(
                f"query: zero-shot classification needs one similarity per class ({task.num_classes}), "
                f"got {task.num_features}"
            )
        probabilities = (self.feature_scale * task.query).softmax(-1)
        return Prediction(probabilities.squeeze(0) if task.single else probabilities)


@register(
    "zero-shot",
    reference="A. Radford et al., Learning transferable visual models from natural language supervision, ICML 2021",
    inputs="similarities",
    transductive=False,
)
def zero_shot(*, feature_scale: float = 100.0) -> ZeroShot:
    r"""The class whose text is nearest, ``softmax(T_z · cos)`` with CLIP's T_z = 100; no support is used."""
    return ZeroShot(feature_scale)
