"""What visitors may choose from: backbones, which they share, and methods."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import torch
from torch import Tensor

from unem.errors import InputError
from unem.methods import list_methods
from unem.vision.backbones import Backbone
from unem.web.tell import Tell, silent
from unem.web.uploads import shown

__all__ = ["Models", "methods_for"]


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

    def features(self, name: str, contents: Sequence[bytes], tell: Tell = silent) -> tuple[Tensor, list[str | None]]:
        """Features of images, and for each what is wrong with it, or None."""
        from unem.vision.extraction import cores, encode_shards

        with self._lock:
            backbone, done = self._get(name), 0
            for step in encode_shards([contents], backbone, 16, cores()):
                if isinstance(step, int):
                    done += step
                    tell("Looking at the images", done, len(contents))
                    continue
                problems = dict(step.failures)
                table = torch.zeros(len(contents), backbone.dim)
                table[step.rows] = step.features
                return table, [problems.get(i) for i in range(len(contents))]
        raise AssertionError("a shard always has a result")

    def texts(self, name: str, class_names: Sequence[str]) -> Tensor | None:
        """Features of the classes' names, if the backbone knows texts."""
        from unem.vision.extraction import DEFAULT_PROMPTS, text_features

        with self._lock:
            backbone = self._get(name)
            return text_features(backbone, class_names, list(DEFAULT_PROMPTS)) if backbone.has_text else None

    def _get(self, name: str) -> Backbone:
        from unem.vision.backbones import create

        if name not in self.names:  # whatever a page sends: only what the owner of the server has named is opened
            raise InputError(f"backbone: {shown(str(name))} is not offered here, only {', '.join(self.names)}")
        if name not in self._loaded:
            self._loaded[name] = create(name, device=self.device)
        return self._loaded[name]


def methods_for(text: bool = False) -> list[str]:
    """Methods that work on features as they come, without having learned anything first.

    Example:
        >>> methods_for()[:2]
        ['auto', 'evidence']
    """
    first = ["auto", "evidence", "unem-plus", "unem-gaussian"]
    wanted = ("features", "image+text", "similarities") if text else ("features",)
    known = [m.name for m in list_methods() if m.inputs in wanted and m.name not in ("coop", "stata-online")]
    return first + [name for name in known if name not in first]
