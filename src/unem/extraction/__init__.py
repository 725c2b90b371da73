"""Features of many image files: decoded in parallel, kept shard by shard, resumable."""

from unem.extraction.extract import Extraction, Failure, Progress, extract
from unem.extraction.texts import text_features

__all__ = ["Extraction", "Failure", "Progress", "extract", "text_features"]
