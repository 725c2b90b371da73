"""CLIP's text encoder for learned prompts."""

from __future__ import annotations

import copy
import hashlib
import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import normalize, scaled_dot_product_attention

from unem._extras import require
from unem.errors import InputError
from unem.methods.coop import random_context

__all__ = ["ClipPromptEncoder"]


class ClipPromptEncoder:
    """Unit embeddings of ``[context, class name]`` by the text encoder of a CLIP model of ``transformers``.

    Attention is causal, so nothing after a prompt's end is computed, and the context, which is the same before every
    name, is computed once per task instead of once per class.

    Args:
        model: a ``CLIPModel`` or ``CLIPTextModelWithProjection``; its text part is copied and never changed.
        class_names: in the order of the task's classes; an underscore counts as a space.
        tokenizer: the model's.
        ending: what follows a name; the paper's full stop.
        start_words: words whose embeddings the context starts from, such as "a photo of a"; random numbers if left out.
    """

    def __init__(
        self,
        model: Any,
        class_names: Sequence[str],
        tokenizer: Any,
        *,
        ending: str = ".",
        start_words: str | None = None,
    ) -> None:
        names = [name.replace("_", " ") + ending for name in _checked_names(class_names)]
        if not all(hasattr(model, part) for part in ("text_model", "text_projection")):
            raise InputError(
                "model: expected a CLIPModel or CLIPTextModelWithProjection of transformers, "
                f"got {type(model).__name__}"
            )
        if not callable(tokenizer):
            raise InputError(f"tokenizer: expected the model's tokenizer, got {type(tokenizer).__name__}")
        self.start_words = start_words
        self._source = str(getattr(model, "name_or_path", "")) or type(model).__name__
        with torch.inference_mode(False), torch.no_grad():
            self._text = _TextTower(model, [_tokens(tokenizer, name) for name in names])
            words = [] if start_words is None else _tokens(tokenizer, start_words)[1:-1]
            self._start = _embedded(model, words)
        self._elsewhere: _TextTower | None = None

    @classmethod
    def from_pretrained(
        cls, model: Any, class_names: Sequence[str], *, tokenizer: Any = None, **options: Any
    ) -> ClipPromptEncoder:
        """The encoder of a saved model (a folder, or a name that transformers can find), or of one loaded already."""
        if isinstance(model, (str, os.PathLike)):
            transformers = _transformers()
            path, model = model, _load(transformers, model)
            tokenizer = transformers.CLIPTokenizer.from_pretrained(path) if tokenizer is None else tokenizer
        elif tokenizer is None:
            raise InputError(
                "tokenizer: a model that is loaded already needs its tokenizer beside it, and none was given"
            )
        return cls(model, class_names, tokenizer, **options)

    def __repr__(self) -> str:
        start = "random" if self.start_words is None else repr(self.start_words)
        return f"ClipPromptEncoder({self._source!r}, digest={self._digest}, start={start})"

    @cached_property
    def _digest(self) -> str:
        """Names the weights, the class names and what follows them."""
        content = hashlib.sha256()
        for value in self._text.state_dict().values():
            content.update(value.double().cpu().numpy().tobytes())
        return content.hexdigest()[:16]

    @property
    def num_classes(self) -> int:
        return self._text.names.shape[0]

    @property
    def num_features(self) -> int:
        return int(self._text.projection.out_features)

    def start(self, length: int, seed: int) -> Float[Tensor, "length width"]:
        tower = self._text
        available = len(tower.positions) - 1 - tower.names.shape[1]
        if length > available:
            raise InputError(
                f"context_length: the encoder has {len(tower.positions)} positions, which leaves {available} beside "
                f"the longest class name, got {length}"
            )
        if self.start_words is None:
            return random_context(length, tower.names.shape[2], seed)
        if length != len(self._start):
            raise InputError(
                f"context_length: expected {len(self._start)}, the number of tokens of {self.start_words!r}, "
                f"got {length}"
            )
        return self._start

    def numbers_per_task(self, length: int) -> int:
        tower = self._text
        classes, own, width = tower.names.shape
        hidden = int(tower.blocks[0].mlp.fc1.out_features)
        per_token = 7 * width + 3 * hidden + 2 * tower.heads * (1 + length + own)
        return len(tower.blocks) * (1 + length + classes * own) * per_token

    def __call__(self, context: Float[Tensor, "task length width"]) -> Float[Tensor, "task class feature"]:
        embeddings: Tensor = self._tower_for(context)(context)
        return embeddings

    def _tower_for(self, context: Tensor) -> _TextTower:
        """The encoder in the context's precision and on its device; the original stays: rounding cannot be undone."""
        for tower in (self._text, self._elsewhere):
            if tower is not None and (tower.names.dtype, tower.names.device) == (context.dtype, context.device):
                return tower
        with torch.inference_mode(False):
            self._elsewhere = copy.deepcopy(self._text).to(context)
        return self._elsewhere


class _TextTower(nn.Module):
    """The frozen part of the computation, with the embeddings of the class names in place of all tokens'."""

    names: Tensor  # [class, token, width]: of each name and the end after it
    begin: Tensor  # [width]
    positions: Tensor  # [position, width]
    ends: Tensor  # [class]: where among the tokens of a name its end is

    def __init__(self, model: Any, names: list[list[int]]) -> None:
        super().__init__()
        text, longest = model.text_model, max(map(len, names)) - 1
        # What stands behind the end is never seen: any token will do.
        rows = [_embedded(model, (ids[1:] + ids[-1:] * longest)[:longest]) for ids in names]
        self.register_buffer("names", torch.stack(rows))
        self.register_buffer("begin", _embedded(model, names[0][:1])[0])
        self.register_buffer("positions", text.embeddings.position_embedding.weight.detach().clone())
        self.register_buffer("ends", torch.tensor([ids.index(ids[-1]) - 1 for ids in names], device=self.names.device))
        self.blocks = copy.deepcopy(text.encoder.layers)
        self.norm, self.projection = copy.deepcopy(text.final_layer_norm), copy.deepcopy(model.text_projection)
        self.heads = int(self.blocks[0].self_attn.num_heads)
        self.eval().requires_grad_(False)

    def forward(self, context: Float[Tensor, "task length width"]) -> Float[Tensor, "task class feature"]:
        (tasks, length, _), (classes, own, _) = context.shape, self.names.shape
        shared = 1 + length
        begin = torch.cat([self.begin.expand(tasks, 1, -1), context], 1) + self.positions[:shared]
        names = (self.names + self.positions[shared : shared + own]).flatten(0, 1)
        rows = torch.cat([begin, names.expand(tasks, -1, -1)], 1)
        for block in self.blocks:
            rows = rows + self._attended(block.self_attn, block.layer_norm1(rows), shared)
            rows = rows + block.mlp(block.layer_norm2(rows))
        ends = shared + own * torch.arange(classes, device=rows.device) + self.ends
        return normalize(self.projection(self.norm(rows[:, ends])), dim=-1)

    def _attended(self, attention: Any, rows: Tensor, shared: int) -> Float[Tensor, "task row width"]:
        """Causal attention within the beginning, and from each name to the beginning and to itself."""
        classes, own, _ = self.names.shape
        linear = (attention.q_proj, attention.k_proj, attention.v_proj)
        q, k, v = (f(rows).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in linear)  # [task, head, row, width]
        first_q, first_k, first_v = (x[:, :, :shared] for x in (q, k, v))
        name_q, name_k, name_v = (x[:, :, shared:].unflatten(2, (classes, own)) for x in (q, k, v))
        to_first = (name_q.flatten(2, 3) @ first_k.mT).unflatten(2, (classes, own))
        later = torch.ones(own, own, dtype=torch.bool, device=rows.device).triu(1)
        to_name = (name_q @ name_k.mT).masked_fill(later, -torch.inf)
        weights = (attention.scale * torch.cat([to_first, to_name], -1)).softmax(-1)
        names = (weights[..., :shared].flatten(2, 3) @ first_v) + (weights[..., shared:] @ name_v).flatten(2, 3)
        first = scaled_dot_product_attention(first_q, first_k, first_v, is_causal=True, scale=attention.scale)
        out: Tensor = attention.out_proj(torch.cat([first, names], 2).transpose(1, 2).flatten(2))
        return out


def _embedded(model: Any, tokens: list[int]) -> Float[Tensor, "token width"]:
    table: Tensor = model.text_model.embeddings.token_embedding.weight.detach()
    return table[torch.tensor(tokens, dtype=torch.long, device=table.device)]


def _tokens(tokenizer: Any, text: str) -> list[int]:
    """Beginning, words and end."""
    return list(tokenizer(text)["input_ids"])


def _checked_names(class_names: Sequence[str]) -> list[str]:
    if isinstance(class_names, str) or not all(isinstance(name, str) and name.strip() for name in class_names):
        raise InputError(f"class_names: expected a name for each class, got {class_names!r}")
    if not class_names:
        raise InputError("class_names: got none, at least one class is needed")
    return list(class_names)


def _load(transformers: Any, path: str | os.PathLike[str]) -> Any:
    kinds = {"clip": transformers.CLIPModel, "clip_text_model": transformers.CLIPTextModelWithProjection}
    try:
        kind = transformers.AutoConfig.from_pretrained(path).model_type
    except (OSError, ValueError) as error:
        raise InputError(f"model: {os.fspath(path)!r} is not a saved model that transformers can load") from error
    if kind not in kinds:
        raise InputError(f"model: expected a CLIP model, and {os.fspath(path)!r} holds one of type {kind!r}")
    return kinds[kind].from_pretrained(path)


def _transformers() -> Any:
    return require("transformers", "images", "model: loading one")
