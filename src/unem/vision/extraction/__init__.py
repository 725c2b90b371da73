"""Features of many image files: decoded in parallel, kept shard by shard, resumable.

``extract`` in ``features``; the file of a shard in ``shards``; where shards are computed in ``engines`` (this process)
and ``ray`` (a cluster), both by ``pipeline``, which decodes while the model computes; text features of classes in
``texts``.
"""

from unem.vision.extraction.engines import LocalEngine, ShardEngine
from unem.vision.extraction.features import (
    SHARD,
    Extraction,
    Failure,
    FilesOfShards,
    Progress,
    extract,
    extract_to_files,
)
from unem.vision.extraction.pipeline import cores, decoded, encode_shards
from unem.vision.extraction.ray import RayShards
from unem.vision.extraction.texts import DEFAULT_PROMPTS, check_prompts, text_features

__all__ = [
    "DEFAULT_PROMPTS",
    "SHARD",
    "Extraction",
    "Failure",
    "FilesOfShards",
    "LocalEngine",
    "Progress",
    "RayShards",
    "ShardEngine",
    "check_prompts",
    "cores",
    "decoded",
    "encode_shards",
    "extract",
    "extract_to_files",
    "text_features",
]
