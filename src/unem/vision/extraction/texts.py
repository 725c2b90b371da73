"""Text features of classes, from their names and prompts."""

from __future__ import annotations

import string
from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from unem.errors import InputError
from unem.vision.backbones import Backbone

__all__ = ["DEFAULT_PROMPTS", "check_prompts", "text_features"]

DEFAULT_PROMPTS = ("a photo of a {}.",)


def text_features(
    backbone: Backbone, class_names: Sequence[str], prompts: Sequence[str] = DEFAULT_PROMPTS
) -> Float[Tensor, "class feature"]:
    """One vector of unit length per class; of several prompts, the mean of their unit vectors.

    Args:
        class_names: an underscore counts as a space.
        prompts: each with ``{}`` where the name goes.
    """
    check_prompts(prompts)
    names = [name.replace("_", " ") for name in class_names]
    texts = [prompt.format(name) for prompt in prompts for name in names]
    each = normalize(backbone.encode_texts(texts), dim=-1).view(len(prompts), len(names), -1)
    return normalize(each.mean(0), dim=-1).cpu()


def check_prompts(prompts: Sequence[str]) -> None:
    """Refuse what has no place for a name, or several kinds of them.

    Example:
        >>> check_prompts(["a photo of a {}, a type of food."])
        >>> check_prompts(["a photo"])
        Traceback (most recent call last):
        ...
        unem.errors.InputError: prompts: expected a text with one {} for the class name, got 'a photo'
    """
    if isinstance(prompts, str) or not prompts:
        raise InputError(f"prompts: expected a list of at least one text with {{}}, got {prompts!r}")
    for prompt in prompts:
        try:
            fields = [field for _, field, _, _ in string.Formatter().parse(prompt) if field is not None]
        except ValueError:
            fields = []
        if fields != [""]:
            raise InputError(f"prompts: expected a text with one {{}} for the class name, got {prompt!r}")
