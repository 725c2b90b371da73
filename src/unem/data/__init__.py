"""Tables of frozen features: reading, writing, splitting."""

from unem.data.features import FeatureSet

__all__ = ["FeatureSet"]
