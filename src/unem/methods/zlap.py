"""ZLaP: label propagation on a graph of images and texts."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from unem._checks import check_count, check_number
from unem.core.task import Task
from unem.methods._common import one_hot
from unem.methods._graphs import largest, without_loops
from unem.methods._image_text import ImageTextMethod, real_support
from unem.methods._registry import register_method


@register_method(
    "zlap",
    reference="V. Stojnić et al., Label propagation for zero-shot classification with vision-language models, "
    "CVPR 2024",
    inputs="image+text",
    grid={"damping": (0.3, 0.6, 0.9), "use_support": (False, True)},
)
@dataclass(frozen=True)
class ZLaP(ImageTextMethod):
    r"""ZLaP: labels propagate from the class texts to the images over a graph of both; support only if asked for.

    Each image is joined to its nearest images, with weight ``max(0, cos)``, and, separately, to its nearest texts
    (across modalities similarities are lower and must not compete), with weight ``max(0, cos)^γ``, γ = ``power``. As
    published, an image is the first of its own ``neighbours``, so that one fewer are others, and two images that choose
    each other are joined twice as strongly. With ``S = D^{-½} W D^{-½}`` and Y the texts' labels

        ``Z = (I − α S)⁻¹ Y``,   α = ``damping``,

    and each query's row of Z, divided by its sum, is the prediction. ``use_support``, which the paper does not have,
    adds the support as labelled images.
    """

    neighbours: int = 5
    power: float = 5.0
    damping: float = 0.3
    use_support: bool = False

    def __post_init__(self) -> None:
        check_count(1, neighbours=self.neighbours)
        check_number("power", self.power, lower=0.0, strict=True)
        check_number("damping", self.damping, lower=0.0, strict=True, upper=1.0)

    def probabilities(self, task: Task, text: Tensor) -> Tensor:
        images = torch.cat([real_support(task), task.query], 1) if self.use_support else task.query
        classes = torch.eye(task.num_classes, dtype=task.dtype, device=task.device).expand(len(task), -1, -1)
        known = torch.cat([classes, one_hot(task)], 1) if self.use_support else classes
        seeds = torch.nn.functional.pad(known, (0, 0, 0, task.num_queries))
        scores = self._propagated(self._graph(images, text), seeds)[:, -task.num_queries :].clamp_min(0.0)
        # A query whose similarities are all negative has no edge, and nothing is known about it.
        floor = torch.finfo(task.dtype).tiny
        scores = scores + floor
        return scores / scores.sum(-1, keepdim=True)

    def _graph(self, images: Tensor, text: Tensor) -> Float[Tensor, "task node node"]:
        """Texts first: edges from each image to its nearest images and to its nearest texts, never among texts."""
        among = largest(without_loops(images @ images.mT), self.neighbours - 1)
        across = largest(images @ text.mT, self.neighbours).pow(self.power)
        none = across.new_zeros(len(images), len(text), len(text))
        return torch.cat([torch.cat([none, across.mT], 2), torch.cat([across, among + among.mT], 2)], 1)

    def _propagated(self, graph: Tensor, seeds: Tensor) -> Float[Tensor, "task node class"]:
        degree = graph.sum(-1)
        scale = torch.where(degree > 0, degree, 1.0).rsqrt()  # a node without edges keeps none
        normalised = scale.unsqueeze(-1) * graph * scale.unsqueeze(1)
        system = torch.eye(graph.shape[-1], dtype=graph.dtype, device=graph.device) - self.damping * normalised
        return torch.cholesky_solve(seeds, torch.linalg.cholesky_ex(system).L)
