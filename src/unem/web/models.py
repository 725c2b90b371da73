"""What visitors may choose from: backbones, which they share, and methods."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence

import torch
from torch import Tensor

from unem.errors import InputError
from unem.methods import list_methods
from unem.vision.backbones import Backbone
from unem.web.pool import Step
from unem.web.uploads import shown

__all__ = ["Models", "methods_for"]

CHUNK = 16  # images of one step: the next visitor has a turn after less than a second or so
FIRST = ("auto", "evidence", "unem-plus", "unem-gaussian", "whitened-mean")
SLOW = (
    "alpha-am",
    "alpha-tim",
    "tim-adm",
    "tim-gd",
    "lr-ici",
    "coop",
    "stata-online",
    "tip-adapter-f",
    "lp++",
    "logistic",
)
"""Methods that take minutes for a large task, or need more than a task: they would keep other visitors waiting."""


class Models:
    """The backbones that visitors may choose from; loaded when first wanted, and used by one visitor at a time."""

    def __init__(self, names: Sequence[str] = ("auto",), device: str = "cpu") -> None:
        if not names:
            raise InputError("backbone: expected at least one name, got none")
        self.names, self.device = tuple(dict.fromkeys(names)), device
        self._loaded: dict[str, Backbone] = {}
        self._lock = threading.Lock()

    @property
    def may_know_texts(self) -> bool:
        """Whether some of them may be vision-language models; they are not loaded to find out."""
        from unem.vision.backbones import list_backbones, parse_name

        knowing = {kind.prefix for kind in list_backbones() if kind.text}
        return any(parse_name(name)[0] in knowing for name in self.names)

    def features(self, name: str, contents: Sequence[bytes]) -> Generator[Step, None, tuple[Tensor, list[str | None]]]:
        """Features of images, and for each what is wrong with it, or None; a few images in each step."""
        from unem.vision.extraction import cores, encode_shards

        self.check(name)
        if name not in self._loaded:
            yield Step("model", 0, 1)
            with self._lock:
                self._get(name)
        tables, problems = [], list[str | None]()
        for start in range(0, len(contents), CHUNK):
            yield Step("features", start, len(contents))
            part = contents[start : start + CHUNK]
            with self._lock:
                backbone = self._get(name)
                result = next(r for r in encode_shards([part], backbone, 16, cores()) if not isinstance(r, int))
            table = torch.zeros(len(part), backbone.dim)
            table[result.rows] = result.features
            tables.append(table)
            failed = dict(result.failures)
            problems += [failed.get(i) for i in range(len(part))]
        return torch.cat(tables), problems

    def texts(self, name: str, class_names: Sequence[str]) -> Tensor | None:
        """Features of the classes' names, if the backbone knows texts."""
        from unem.vision.extraction import DEFAULT_PROMPTS, text_features

        with self._lock:
            backbone = self._get(name)
            return text_features(backbone, class_names, list(DEFAULT_PROMPTS)) if backbone.has_text else None

    def check(self, name: str) -> None:
        """Whatever a page sends: only what the owner of the server has named is opened."""
        if name not in self.names:
            raise InputError(f"backbone: {shown(str(name))} is not offered here, only {', '.join(self.names)}")

    def _get(self, name: str) -> Backbone:
        from unem.vision.backbones import create

        self.check(name)
        if name not in self._loaded:
            self._loaded[name] = create(name, device=self.device)
        return self._loaded[name]


def methods_for(text: bool = False) -> list[str]:
    """Methods that work on features as they come, without having learned anything first, in seconds.

    Example:
        >>> methods_for()[:2]
        ['auto', 'evidence']
    """
    wanted = ("features", "image+text", "similarities") if text else ("features",)
    known = [m.name for m in list_methods() if m.inputs in wanted and m.name not in SLOW]
    return [*FIRST, *(name for name in known if name not in FIRST)]
