"""Class means of different numbers of samples, in directions that were whitened by these samples."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

__all__ = ["UnevenMeans"]


@dataclass(frozen=True)
class UnevenMeans:
    """How much longer the means of few samples are.

    Rows have length one, and so has the mean of a single sample; those of more samples are hardly shorter, since the
    metric takes the residuals within a class away. So ‖m‖² does not grow with the variance of the mean, v = 1/n, by the
    squared distance of a sample to the true mean, as it would for Gaussian errors, but by the slope of a line through
    the classes. Where all classes have as many samples there is no line, and no difference.

    Attributes:
        slope: of ‖m‖² over v, between 0 and 1: means are not longer than rows, and more is chance.
        variances: v of each class, less their mean; 0 for classes without samples.
    """

    slope: Float[Tensor, "task 1"]
    variances: Float[Tensor, "task class"]

    @classmethod
    def of(cls, squares: Float[Tensor, "task class"], counts: Float[Tensor, "task class"]) -> UnevenMeans:
        """From ``‖sum‖²`` of each class and its samples."""
        there, sizes = (counts > 0).to(squares), counts.clamp_min(1)

        def centred(values: Tensor) -> Tensor:
            return there * (values - (there * values).sum(1, keepdim=True) / there.sum(1, keepdim=True).clamp_min(1))

        variances, lengths = centred(sizes.reciprocal()), centred(squares / sizes.square())
        slope = (variances * lengths).sum(1, keepdim=True) / variances.square().sum(1, keepdim=True).clamp_min(1e-9)
        return cls(slope.clamp(0, 1), variances)

    def farther(self, slope: Float[Tensor, "task 1"]) -> Float[Tensor, "task 1 class"]:
        """By how much rows are farther from means of few samples, where squared distances have a slope over v."""
        return (slope * self.variances).unsqueeze(1)
