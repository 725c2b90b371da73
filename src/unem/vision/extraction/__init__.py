"""Features of many image files: decoded in parallel, kept shard by shard, resumable."""

from unem.vision.extraction.extract import Extraction, Failure, Progress, extract
from unem.vision.extraction.texts import text_features

__all__ = ["Extraction", "Failure", "Progress", "extract", "text_features"]
