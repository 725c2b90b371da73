"""Small models and pictures for tests of backbones and extraction."""

from __future__ import annotations

import json

import numpy as np
import torch

SIZE = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2, "num_attention_heads": 4}


def picture(width=40, height=30, seed=0):
    """A smooth random picture: noise alone would be all rounding after it is resized."""
    from PIL import Image

    small = np.random.default_rng(seed).integers(0, 256, (4, 5, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


def shaken(model):
    """Weights, biases and statistics that are not 0 and 1, as trained ones are not."""
    torch.manual_seed(0)
    with torch.no_grad():
        for value in model.state_dict().values():
            if value.is_floating_point():
                value += 0.1 * torch.rand_like(value)
    return model.eval()


def letters(clip):
    """A tokenizer whose tokens are letters."""
    alphabet = "abcdefghijklmnopqrstuvwxyz-.,"
    tokens = [*alphabet, *(c + "</w>" for c in alphabet), "<|startoftext|>", "<|endoftext|>"]
    return clip.CLIPTokenizer(vocab={t: i for i, t in enumerate(tokens)}, merges=[])


def write_clip(folder, image_size=32):
    """A CLIP of random weights in a folder, as transformers saves it."""
    import transformers as clip

    tokenizer = letters(clip)
    text = {"vocab_size": len(tokenizer), "max_position_embeddings": 60, "bos_token_id": 58, "eos_token_id": 59}
    vision = {**SIZE, "image_size": image_size, "patch_size": 8}
    config = clip.CLIPConfig(text_config={**SIZE, **text}, vision_config=vision, projection_dim=12)
    model = shaken(clip.CLIPModel(config))
    side = {"height": image_size, "width": image_size}
    processor = clip.CLIPImageProcessorPil(size={"shortest_edge": image_size}, crop_size=side)
    for part in (model, tokenizer, processor):
        part.save_pretrained(folder)
    return model, tokenizer, processor


def write_siglip(folder):
    import transformers as hub

    text = {**SIZE, "vocab_size": 60, "max_position_embeddings": 30}
    model = shaken(
        hub.SiglipModel(hub.SiglipConfig(text_config=text, vision_config={**SIZE, "image_size": 32, "patch_size": 8}))
    )
    processor = hub.SiglipImageProcessorPil(size={"height": 32, "width": 32})
    tokenizer = letters(hub)
    for part in (model, tokenizer, processor):
        part.save_pretrained(folder)
    return model, tokenizer, processor


def write_vision(folder, kind):
    """A model for images alone: dinov2, vit, resnet or convnext."""
    import transformers as hub

    network = {"image_size": 32, "patch_size": 8}
    stages = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    made = {
        "dinov2": lambda: hub.Dinov2Model(hub.Dinov2Config(**SIZE, **network, mlp_ratio=2)),
        "vit": lambda: hub.ViTForImageClassification(hub.ViTConfig(**SIZE, **network, num_labels=3)),
        "resnet": lambda: hub.ResNetModel(hub.ResNetConfig(**stages, layer_type="basic")),
        "convnext": lambda: hub.ConvNextModel(hub.ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2)),
    }[kind]()
    model = shaken(made)
    side = {"height": 32, "width": 32}
    processor = {
        "dinov2": lambda: hub.BitImageProcessorPil(size={"shortest_edge": 36}, crop_size=side, resample=3),
        "vit": lambda: hub.ViTImageProcessorPil(size=side, resample=2),
        "resnet": lambda: hub.ConvNextImageProcessorPil(size={"shortest_edge": 32}, crop_pct=0.875, resample=3),
        "convnext": lambda: hub.ConvNextImageProcessorPil(size={"shortest_edge": 400}, crop_pct=0.875, resample=3),
    }[kind]()
    for part in (model, processor):
        part.save_pretrained(folder)
    return model, processor


def write_class_folders(folder, classes=("ash", "birch", "elm"), each=4, broken=0):
    """Pictures in one folder per class, some of which are none."""
    for number, name in enumerate(classes):
        (folder / name).mkdir(parents=True)
        for i in range(each):
            file = folder / name / f"{i:02d}.{'png' if i % 2 else 'jpg'}"
            picture(30 + 3 * (i % 8), 50 - 2 * (i % 8), seed=100 * number + i).save(file)
    for i in range(broken):
        (folder / classes[0] / f"x{i}.jpg").write_text(json.dumps(i))
    return folder
