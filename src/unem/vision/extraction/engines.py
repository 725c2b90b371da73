"""Where shards are computed: the contract, and the engine of this machine; ``ray`` has that of a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, Protocol

from unem.core.memory import images_per_batch
from unem.errors import InputError
from unem.vision.backbones import Backbone, Preprocessing
from unem.vision.extraction.pipeline import Decoding, cores, encode_shards
from unem.vision.extraction.shards import Shard, ShardResult
from unem.vision.images import ImageList

__all__ = ["LocalEngine", "ShardEngine", "check_positive"]

DECODING = ("auto", "threads", "processes")
FEWEST_CORES, FEWEST_IMAGES = 4, 256  # below, processes do not repay their start


class ShardEngine(Protocol):
    """Something that computes shards: here, or elsewhere."""

    @property
    def settings(self) -> dict[str, Any]:
        """What features depend on besides backbone and files.

        ``precision``, ``device`` (a GPU rounds otherwise), ``runtime`` and ``batch``.
        """
        ...

    def compute(self, images: ImageList, shards: Sequence[Shard]) -> Iterator[int | tuple[Shard, ShardResult]]:
        """Results in any order; between them, how many images are done that belong to no result yet."""
        ...


class LocalEngine:
    """This machine: threads or processes decode, the model computes in this process.

    Args:
        decoding: ``"threads"``, ``"processes"``, or ``"auto"``: processes for a model on a GPU, where they pay.
    """

    def __init__(
        self,
        backbone: Backbone,
        batch_size: int | Literal["auto"] = "auto",
        workers: int | None = None,
        decoding: Literal["auto"] | Decoding = "auto",
    ) -> None:
        if batch_size == "auto":
            batch_size = images_per_batch(backbone.size, backbone.device)
        check_positive("batch_size", batch_size)
        self.backbone, self.batch_size, self.workers = backbone, batch_size, cores() if workers is None else workers
        check_positive("workers", self.workers)
        if decoding not in DECODING:
            raise InputError(f"decoding: expected {', '.join(DECODING)}, got {decoding!r}")
        self.decoding = decoding

    @property
    def settings(self) -> dict[str, Any]:
        model = self.backbone
        settings = {"precision": model.precision, "device": model.device.type, "runtime": model.runtime}
        return settings | {"batch": self.batch_size}

    def compute(self, images: ImageList, shards: Sequence[Shard]) -> Iterator[int | tuple[Shard, ShardResult]]:
        files = ([images.file(i) for i in range(s.start, s.stop)] for s in shards)
        coming = iter(shards)
        decoding = self._decoding(sum(map(len, shards)))
        for news in encode_shards(files, self.backbone, self.batch_size, self.workers, decoding):
            yield news if isinstance(news, int) else (next(coming), news)

    def _decoding(self, images: int) -> Decoding:
        """A CPU spends its time in the model, for which threads are enough; a GPU would wait for them."""
        if self.decoding != "auto":
            return self.decoding
        fitting = type(self.backbone.preprocessing) is Preprocessing  # plain data, which can be sent
        enough = min(self.workers, cores()) >= FEWEST_CORES and images >= FEWEST_IMAGES
        return "processes" if self.backbone.device.type == "cuda" and fitting and enough else "threads"


def check_positive(name: str, value: Any) -> None:
    """Refuse what is no whole number above 0."""
    if not isinstance(value, int) or value < 1:
        raise InputError(f"{name}: expected a whole number of at least 1, got {value!r}")
