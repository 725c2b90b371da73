"""Queries that do not fit into one memory: features in shards, labelled by map and reduce, here or on a cluster.

``label_shards`` in ``labelling``, for images in ``images``; the files of features in ``files``; what is done with one
of them in ``passes``, and where in ``engines`` (this process, or Ray); the folder of tables that comes out in
``tables``.
"""

from unem.inference.shards.engines import LocalMap, MapEngine, RayMap
from unem.inference.shards.files import FeatureFile, feature_files
from unem.inference.shards.images import label_image_shards
from unem.inference.shards.labelling import ShardedLabelling, label_shards

__all__ = [
    "FeatureFile",
    "LocalMap",
    "MapEngine",
    "RayMap",
    "ShardedLabelling",
    "feature_files",
    "label_image_shards",
    "label_shards",
]
