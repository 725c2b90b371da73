"""Tables of frozen features: reading, writing, splitting."""

from unem.features.store import FeatureSet

__all__ = ["FeatureSet"]
