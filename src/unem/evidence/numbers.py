"""Every number of ``evidence``, in one place."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Numbers"]


@dataclass(frozen=True)
class Numbers:
    """What is fixed beforehand; all else is fitted to a task's own labelled samples and queries.

    "Plateau" means that values between those given, or of half and double the size, change the mean accuracy on the
    feature sets of ``benchmarks/situations.py`` by less than 0.2 points; "searched" that it is the best of a few round
    values there (``benchmarks/evidence_numbers.py``); "fitted" that it minimises the log-loss of the answers, and
    changes no label. *R* is the overlap of the classes, *n* the labelled samples of a class.
    """

    # -- directions ------------------------------------------------------------------------------------------------
    channel_shrink: float = 0.5
    """Share of the average in a channel's variance, with many samples. Plateau (0.3 to 0.7; 1: 0.6 less)."""
    channel_samples: float = 3.0
    """Degrees of freedom at which the channels' own variances count half as much as with many. By hand."""
    covariance_shrink: float = 0.85
    """Share of the identity in the within-class covariance. Plateau (0.7 to 0.9; 0.935: 0.4 less)."""

    # -- likelihood ------------------------------------------------------------------------------------------------
    scale: float = 20.0
    """Inverse variance *s* of whitened rows, a priori: a few held-out samples that are all right would say infinity."""
    scale_spread: float = 0.5
    """Standard deviation of ln *s*, a priori."""
    unknown_scale: float = 10.0
    """*s* where too few classes have a second sample that could be held out. By hand."""
    unknown_overlap: float = 8.0
    """*R* there: taken for high, so that means of one sample are believed little. By hand."""
    unknown_overlap_text: float = 4.0
    """*R* there, beside texts of the classes. By hand."""
    largest_overlap: float = 12.0
    """*R* at most: a few samples may be as near to other classes as to their own by chance."""
    trust: float = 2.0
    """By how much a mean of few samples is believed less: κ = trust · *R*. Plateau."""
    pivot: float = 0.2
    """Distance, in units of the separation Δ², at which a mean of few samples speaks neither for nor against its class.
    Searched (0: 0.1 less, 0.3 on few of many classes)."""
    moved: float = 0.5
    """Weight of the likelihood by means that queries have moved, beside that by the support's own. Plateau."""
    text_weight: float = 40.0
    """Factor γ of a cosine with a text beside labelled samples, in nats, a priori."""
    text_weight_spread: float = 0.7
    """Standard deviation of ln γ, a priori."""
    text_scale: float = 100.0
    """The same factor where there are texts alone: CLIP's own."""

    # -- domain shift ----------------------------------------------------------------------------------------------
    offset_error: float = 4.0
    """Factor of what unequal numbers add to the error of an offset: nearest means make them more equal than they are.
    Searched on changed photographs; by 1, the error of the class that has most queries passes for a shift."""
    offset_caution: float = 0.5
    """How much less the counts of the classes weigh in an answer where a shift is certain. Searched there as well."""

    # -- hypotheses about the class proportions ----------------------------------------------------------------------
    few: float = 0.1
    """Concentration *a*₀ of the hypothesis that few classes are present. Plateau (0.03 to 0.2)."""
    uneven: float = 1.0
    """Concentration of the hypothesis that classes are present in uneven numbers. Plateau (0.5 to 2; 4: 0.4 less)."""
    even: float = 100.0
    """Concentration of the hypothesis that all classes have about as many queries."""
    even_variance: float = 0.1
    """Variance, in squared nats, of what a class gains in every query alike by the error of its mean."""
    evidence: float = 0.2
    """Weight of the evidence, below 1 as errors of a likelihood are common to many queries. Plateau (0.15 to 0.3)."""
    uneven_bonus: float = 0.007
    """Nats for each query and unit of *R* that speak for uneven numbers and for a dominant class beforehand, not for
    few classes. Searched."""
    dominant_penalty: float = 0.2
    """Nats for each class that speak against a dominant class: of many means one is always nearer to all queries than
    the others, by its error. Searched (0: three points less on sixty classes that overlap)."""
    even_bonus: float = 0.009
    """The same for even numbers. Searched."""
    uneven_bonus_unknown: float = 0.0205
    """The first, where nothing is calibrated. Searched."""
    even_bonus_unknown: float = 0.0245
    """The second, where nothing is calibrated. Searched."""
    collision: float = 0.7
    """Nats for each labelled sample of a class and squared nat by which a hypothesis misses the collision probability.
    Plateau; without it, five classes of sixty that overlap lose ten points."""
    collision_excess: float = 2.0
    """Factor of what the collision probability exceeds chance by: with few samples Δ² is too large. By hand."""

    # -- linear classifier -------------------------------------------------------------------------------------------
    linear_sure: float = 0.8
    """Probability from which a query counts as labelled. Plateau."""
    linear_weight: float = 30.0
    """*C*: one over the weight of ½‖*W*‖². Plateau (10 to 100)."""
    linear_share: float = 8.0
    """Sure queries for each labelled sample at which it has 8/9 of the say. Searched (infinite: 0.4 less)."""

    # -- answer ------------------------------------------------------------------------------------------------------
    doubt: float = 0.49
    """Part of the doubt of the independent answer that the joint one keeps at least. By hand: the most that changes no
    label. With a class missing from the examples, a tenth leaves twice as many sure answers wrong."""
    certainty: float = -0.04
    """ln β at *R* = 4 and *n* = 4: probabilities are raised to the power β. Fitted."""
    certainty_overlap: float = -0.31
    """What ln *R*/4 adds to ln β. Fitted."""
    certainty_shots: float = 0.27
    """What ln *n*/4 adds to ln β. Fitted."""

    # -- copies, and what a person has said --------------------------------------------------------------------------
    copy_distance: float = 1e-3
    """Squared distance of rows, over the mean one from their centre, below which they are copies. An image compressed
    again a little is at 0.003 to 0.01, two photographs of one thing are at 0.07 and more."""
    known: float = 0.01
    """Weight in the class means of a query whose class a person has given, beside a labelled sample: what a person
    corrects is no fair sample. Searched on other feature sets."""
