"""Models of transformers: CLIP and its kin with images and texts, and networks for images alone."""

from __future__ import annotations

import inspect
import os
import socket
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from unem.errors import InputError
from unem.vision.backbones.base import Backbone, register
from unem.vision.decoding.preprocessing import FILTERS, Preprocessing

__all__ = ["Transformers"]


class Transformers(Backbone):
    """A model of transformers.

    With a text tower, images and texts are embedded in the common space. Others give their pooled output, or the class
    token where pooling is a dense layer: that layer belongs to a head, and checkpoints often lack it.
    """

    def __init__(self, id: str, module: nn.Module, preprocessing: Preprocessing, tokenizer: Any) -> None:
        super().__init__(id, module, preprocessing, 0)
        self.tokenizer = tokenizer
        self.has_text = tokenizer is not None
        model: Any = module
        self._joint = hasattr(model, "get_image_features")
        self._class_token = _dense_pooler(model)
        own = _own_size(model.config)
        takes = inspect.signature(model.get_image_features if self._joint else model.forward).parameters
        self._options: dict[str, Any] = {}
        if own not in (None, preprocessing.size) and "interpolate_pos_encoding" in takes:
            self._options["interpolate_pos_encoding"] = True
        with torch.inference_mode():
            self.dim = self._images(torch.zeros(1, 3, self.size, self.size)).shape[1]

    def _images(self, batch: Tensor) -> Tensor:
        model: Any = self.module
        if self._joint:
            return _tensor(model.get_image_features(pixel_values=batch, **self._options))
        output = model(pixel_values=batch, **self._options)
        if self._class_token or getattr(output, "pooler_output", None) is None:
            hidden: Tensor = output.last_hidden_state
            return hidden[:, 0] if hidden.ndim == 3 else hidden.mean((2, 3))
        return _tensor(output).flatten(1)  # a ResNet's is [image, feature, 1, 1]

    def _texts(self, texts: list[str]) -> Tensor:
        model: Any = self.module
        config = model.config
        siglip = "siglip" in config.model_type  # trained on texts of one length, whose padding it sees
        tokens = self.tokenizer(
            texts,
            padding="max_length" if siglip else True,
            truncation=True,
            max_length=getattr(config.text_config, "max_position_embeddings", None),
            return_tensors="pt",
        ).to(self.device)
        return _tensor(model.get_text_features(**({"input_ids": tokens["input_ids"]} if siglip else tokens)))


def _tensor(output: Any) -> Tensor:
    """transformers 4 returns the features, 5 an output that holds them."""
    return output if isinstance(output, Tensor) else output.pooler_output


def _dense_pooler(model: Any) -> bool:
    pooler = getattr(model, "pooler", None)
    return pooler is not None and any(isinstance(part, nn.Linear) for part in pooler.modules())


def _own_size(config: Any) -> int | None:
    size = getattr(getattr(config, "vision_config", config), "image_size", None)
    return size if isinstance(size, int) else None


# -- loading -----------------------------------------------------------------------------------------------------------


@register(
    "transformers", example="transformers:openai/clip-vit-base-patch32", text=True, packages=("transformers", "PIL")
)
def transformers(argument: str = "", size: int | None = None) -> Backbone:
    """CLIP, SigLIP, DINOv2, ViT, ResNet …: a Hub id or a folder."""
    import transformers as package

    if not argument:
        raise InputError("backbone: expected transformers:MODEL such as transformers:openai/clip-vit-base-patch32")
    source = _source(argument)
    with _quiet(package):
        _check_reachable(package, argument, source)
        model = _model(package, argument, source)
        processor = _processor(package, argument, source)
        tokenizer = _tokenizer(package, source) if hasattr(model, "get_text_features") else None
    return Transformers(f"transformers:{argument}", model, preprocessing_of(processor, size), tokenizer)


def _source(argument: str) -> str:
    """A folder, or the id of a model on the Hub."""
    folder = Path(argument).expanduser()
    if folder.is_dir():
        return str(folder)
    if folder.is_file() or argument.startswith((".", "/", "~")) or argument.count("/") > 1:
        problem = "is a file" if folder.is_file() else "does not exist"
        raise InputError(
            f"backbone: {argument!r} {problem}; expected a folder with a model of transformers, or a Hub id"
        )
    return argument


def _check_reachable(package: Any, argument: str, source: str) -> None:
    """Say at once that there is no hub; its client would try for half a minute."""
    proxies = any(name in os.environ for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"))
    if Path(source).is_dir() or proxies:  # with a proxy, names are not resolved here
        return
    try:
        package.AutoConfig.from_pretrained(source, local_files_only=True)
    except Exception:  # not in the cache
        host = urllib.parse.urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
        try:
            socket.getaddrinfo(host, 443)
        except OSError:
            raise InputError(
                _why(argument, OSError("the Hub cannot be reached, and the model is not in its cache"))
            ) from None


def _model(package: Any, argument: str, source: str) -> nn.Module:
    # Weights come from safetensors alone: the other format of the Hub is a pickle, which can run code.
    options = {"use_safetensors": True, "trust_remote_code": False, "output_loading_info": True}
    try:
        model, loaded = package.AutoModel.from_pretrained(source, dtype=torch.float32, **options)
    except Exception as error:  # transformers, the Hub and safetensors each have their kinds
        raise InputError(_why(argument, error)) from error
    missing = [key for key in loaded["missing_keys"] if not (_dense_pooler(model) and key.startswith("pooler."))]
    if missing:
        raise InputError(f"backbone: {argument!r} lacks weights of its model: {', '.join(sorted(missing)[:3])} …")
    if not hasattr(model, "get_image_features") and "pixel_values" not in inspect.signature(model.forward).parameters:
        raise InputError(f"backbone: {argument!r} is a {type(model).__name__}, which does not take images")
    return model  # type: ignore[no-any-return]


def _processor(package: Any, argument: str, source: str) -> Any:
    try:
        return package.AutoImageProcessor.from_pretrained(source, use_fast=False, trust_remote_code=False)
    except Exception as error:
        raise InputError(
            f"backbone: {argument!r} has no image processor (preprocessor_config.json) that can be read: {_line(error)}"
        ) from error


def _tokenizer(package: Any, source: str) -> Any:
    try:
        return package.AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception:  # a model without its tokenizer is still good for images
        return None


def _why(argument: str, error: Exception) -> str:
    text = str(error)
    if Path(argument).expanduser().is_dir():
        if "safetensors" in text:
            return (
                f"backbone: {argument!r} has no weights in safetensors, or they are damaged; "
                "pickled weights are never loaded. model.save_pretrained(folder) of transformers writes safetensors"
            )
        return f"backbone: {argument!r} is not a model that transformers can load: {_line(error)}"
    return (
        f"backbone: transformers cannot load {argument!r} ({_line(error)}). "
        "Without a connection, give a folder that holds the model, as `hf download` makes it, "
        "or use efficientnet-lite0, which needs none"
    )


def _line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__).rstrip(".")


@contextmanager
def _quiet(package: Any) -> Iterator[None]:
    """Without reports of layers that are not used (a classifier's) and bars for weights."""
    logging = package.utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


# -- preprocessing -----------------------------------------------------------------------------------------------------


def preprocessing_of(processor: Any, size: int | None = None) -> Preprocessing:
    """What an image processor of transformers does, as data.

    Example:
        >>> from types import SimpleNamespace
        >>> crop = {"height": 224, "width": 224}
        >>> clip = SimpleNamespace(size={"shortest_edge": 224}, crop_size=crop, do_center_crop=True, resample=3)
        >>> preprocessing_of(clip)
        Preprocessing(size=224, resize=224, fit='shortest', mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0),
                      resample='bicubic')
    """
    resize, fit = _resize(processor)
    crop = _side(processor, "crop_size") if getattr(processor, "do_center_crop", None) else None
    seen = crop or resize
    share = getattr(processor, "crop_pct", None)
    if (
        share and fit == "shortest"
    ):  # ConvNeXt: a part of the centre where images are small, all of it where they are large
        seen, crop = resize, resize
        resize, fit = (int(resize / share), "shortest") if resize < 384 else (resize, "square")
    if fit == "shortest" and crop is None:
        raise InputError(
            "backbone: its image processor keeps the proportions and does not crop; expected square images"
        )
    mean, std = _channels(processor)
    if size is not None:
        resize, seen = max(1, round(resize * size / seen)), size
    resample = FILTERS[int(getattr(processor, "resample", None) or 2)]
    return Preprocessing(seen, resize, "square" if fit == "square" else "shortest", mean, std, resample)


def _resize(processor: Any) -> tuple[int, str]:
    size = processor.size
    if not getattr(processor, "do_resize", True):
        raise InputError("backbone: its image processor does not resize; expected one that does")
    if isinstance(size, int):
        return size, "square" if getattr(processor, "default_to_square", True) else "shortest"
    if size.get("shortest_edge"):
        return int(size["shortest_edge"]), "shortest"
    return _side(processor, "size"), "square"


def _side(processor: Any, name: str) -> int:
    value = getattr(processor, name)
    if isinstance(value, int):
        return value
    height, width = value.get("height"), value.get("width")
    if not height or height != width:
        raise InputError(f"backbone: expected square images, its image processor has {name} = {dict(value)}")
    return int(height)


def _channels(processor: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and spread on the scale 0 … 1, whatever the processor multiplies pixels by before."""
    scale = float(getattr(processor, "rescale_factor", 1 / 255)) if getattr(processor, "do_rescale", True) else 1.0
    mean, std = [0.0] * 3, [1.0] * 3
    if getattr(processor, "do_normalize", False):
        mean, std = list(processor.image_mean), list(processor.image_std)
    unit = scale * 255
    return tuple(m / unit for m in mean), tuple(s / unit for s in std)
