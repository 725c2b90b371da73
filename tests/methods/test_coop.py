"""CoOp, against torch's own optimiser on one task at a time, and CLIP's text encoder, against transformers."""

from __future__ import annotations

import json
import math
import sys

import pytest
import torch
from torch.nn.functional import cross_entropy, normalize

import unem
from helpers.tasks import image_text_task
from unem import InputError
from unem.methods import ClipPromptEncoder, PromptEncoder, method_info
from unem.methods.coop import CoOp, random_context

TASK, TRUTH = image_text_task(features=7, noise=0.8)
FEW = {"context_length": 3, "iterations": 9, "learning_rate": 0.002, "feature_scale": 10.0}


class TinyEncoder:
    """A name turns the context, and a layer mixes the two."""

    def __init__(self, classes=4, features=7, width=5):
        generator = torch.Generator().manual_seed(3)
        self.names, self.layer = (
            torch.randn(*shape, generator=generator, dtype=torch.float64)
            for shape in ((classes, width), (2 * width, features))
        )
        self.num_classes, self.num_features, self.largest = classes, features, 0

    def __repr__(self):
        return "TinyEncoder()"

    def start(self, length, seed):
        return random_context(length, self.names.shape[1], seed)

    def numbers_per_task(self, length):
        return 1000

    def __call__(self, context):
        self.largest = max(self.largest, len(context))
        names, layer = self.names.to(context), self.layer.to(context)
        seen = (context.unsqueeze(1) * names.unsqueeze(1)).sin().sum(2)  # [task, class, width]
        return normalize(torch.cat([seen, names.expand_as(seen)], -1).tanh() @ layer, dim=-1)


def one_hot(task):
    return (task.support_labels.unsqueeze(-1) == torch.arange(task.num_classes)).to(task.dtype)


def coop(**options):
    return unem.create_method("coop", **{"text_encoder": TinyEncoder(), **FEW, **options})


def learned(encoder, task, i, *, length, steps, rate, scale, seed=0):
    """Context and losses of one task, by torch's SGD."""
    real = task.support_labels[i] >= 0
    images, labels = normalize(task.support[i][real], dim=-1), task.support_labels[i][real]
    context = encoder.start(length, seed).to(images).clone().requires_grad_()
    optimiser = torch.optim.SGD([context], lr=rate, momentum=0.9, weight_decay=5e-4)
    cosine, losses = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps), []
    for step in range(steps):
        loss = cross_entropy(scale * images @ encoder(context.unsqueeze(0))[0].T, labels)
        (context.grad,) = torch.autograd.grad(loss, context)
        losses.append(float(loss.detach()))
        if step == 0:
            optimiser.param_groups[0]["lr"] = 1e-5
            optimiser.step()
            optimiser.param_groups[0]["lr"] = rate
        else:
            optimiser.step()
            cosine.step()
    return context.detach(), losses


@pytest.mark.parametrize("seed", [0, 5])
def test_a_batch_is_torch_sgd_on_each_task(seed):
    encoder, u = TinyEncoder(), coop(context_seed=seed).predict(TASK).probabilities
    assert u.shape == (len(TASK), TASK.num_queries, TASK.num_classes)
    for i in range(len(TASK)):
        context, losses = learned(encoder, TASK, i, length=3, steps=9, rate=0.002, scale=10.0, seed=seed)
        expected = (10 * TASK.query[i] @ encoder(context.unsqueeze(0))[0].T).softmax(-1)
        torch.testing.assert_close(u[i], expected, atol=1e-12, rtol=1e-10)
        assert losses[-1] < losses[0]
    assert not torch.equal(u, coop(context_seed=seed + 1).predict(TASK).probabilities)


def test_the_loss_decreases():
    def loss(steps):
        method = coop(iterations=steps)
        return method._loss(method.learned_context(TASK), normalize(TASK.support, dim=-1), one_hot(TASK))

    values = torch.stack([loss(steps) for steps in (0, 10, 100)])
    assert (values.diff(dim=0) < -0.01).all()


def test_without_steps_it_is_zero_shot_with_the_start():
    encoder = TinyEncoder()
    text = encoder(encoder.start(3, 0).unsqueeze(0))[0]
    u = coop(iterations=0).predict(TASK).probabilities
    torch.testing.assert_close(u, (10 * TASK.query @ text.T).softmax(-1))


def test_tasks_do_not_see_each_other(monkeypatch):
    together = coop().predict(TASK).probabilities
    for i in range(len(TASK)):
        torch.testing.assert_close(together[i : i + 1], coop().predict(TASK[i]).probabilities, atol=1e-12, rtol=1e-10)
    monkeypatch.setattr("unem.core.memory.NUMBERS_AT_ONCE", {"cpu": 3000})
    encoder = TinyEncoder()
    in_parts = coop(text_encoder=encoder).predict(TASK).probabilities
    assert encoder.largest < len(TASK)
    torch.testing.assert_close(in_parts, together, atol=1e-12, rtol=1e-10)


def test_queries_are_classified_one_by_one():
    some = coop().predict(TASK.with_features(TASK.support, TASK.query[:, 3:5])).probabilities
    torch.testing.assert_close(some, coop().predict(TASK).probabilities[:, 3:5])
    assert not method_info("coop").transductive


def test_only_the_direction_of_an_image_counts():
    scaled = coop().predict(TASK.with_features(7 * TASK.support, 0.1 * TASK.query)).probabilities
    torch.testing.assert_close(scaled, coop().predict(TASK).probabilities)


def test_single_precision_inference_mode_and_single_tasks():
    expected = coop().predict(TASK).probabilities
    with torch.inference_mode():
        u = coop().predict(TASK.to(torch.float32)).probabilities
    assert u.dtype == torch.float32
    assert not u.requires_grad
    torch.testing.assert_close(u.double(), expected, atol=1e-3, rtol=1e-3)
    real = TASK.support_labels[1] >= 0
    one = unem.Task(TASK.support[1][real], TASK.support_labels[1][real], TASK.query[1], num_classes=TASK.num_classes)
    torch.testing.assert_close(coop().predict(one).probabilities, expected[1], atol=1e-12, rtol=1e-10)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_both_devices():
    there = coop().predict(TASK.to("cuda")).probabilities
    assert there.is_cuda
    torch.testing.assert_close(there.cpu(), coop().predict(TASK).probabilities, atol=1e-10, rtol=1e-8)


def test_evaluation_needs_no_cached_texts():
    labels = torch.arange(4).repeat_interleave(30)
    features = unem.FeatureSet(TASK.text[labels].float() + 0.1 * torch.randn(120, 7), labels)
    result = unem.evaluate(coop(), features, unem.Protocol(shots=2, effective_classes=2, queries=10), tasks=5)
    row = json.loads(json.dumps(result.row()))
    assert row["text_encoder"] == "TinyEncoder()"
    assert row["context_length"] == 3


# What a user can mend


@pytest.mark.parametrize(
    "options",
    [
        {"context_length": 0},
        {"context_length": 2.5},
        {"iterations": -1},
        {"learning_rate": 0},
        {"learning_rate": math.inf},
        {"feature_scale": -1},
        {"context_seed": -1},
        {"text_encoder": "openai/clip-vit-base-patch32"},
    ],
)
def test_bad_settings(options):
    (option,) = options
    with pytest.raises(InputError, match=option):
        coop(**options)


def test_an_encoder_must_fit_the_task():
    with pytest.raises(InputError, match="text_encoder: it knows 5 classes and the task has 4"):
        coop(text_encoder=TinyEncoder(classes=5)).predict(TASK)
    with pytest.raises(InputError, match="its embeddings have 8 features and the task's images 7"):
        coop(text_encoder=TinyEncoder(features=8)).predict(TASK)
    with pytest.raises(InputError, match="text_encoder: expected a PromptEncoder, got int"):
        CoOp(3)


def test_the_start_must_have_the_length_of_the_context():
    encoder = TinyEncoder()
    encoder.start = lambda length, seed: torch.zeros(2, 5)
    with pytest.raises(InputError, match=r"its start must be \[3, width\].* got shape \(2, 5\)"):
        coop(text_encoder=encoder)


def test_a_rate_that_is_far_too_large_is_named():
    with pytest.raises(InputError, match="learning_rate: the context grew beyond all bounds with 1e\\+30"):
        coop(learning_rate=1e30, iterations=60).predict(TASK)


def test_a_saved_model_needs_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(InputError, match=r"transformers: pip install '\.\[images\]'"):
        ClipPromptEncoder.from_pretrained("somewhere", ["cat"])


@pytest.mark.parametrize("names", ["cat", ["cat", 3], ["cat", " "], []])
def test_bad_class_names(names):
    with pytest.raises(InputError, match="class_names"):
        ClipPromptEncoder(None, names, None)


# CLIP's text encoder

NAMES = ["cat", "oak_tree", "x-ray fish", "b"]
WORDS = "a photo of a"


@pytest.fixture(scope="module")
def clip():
    return pytest.importorskip("transformers", reason="transformers is not installed")


@pytest.fixture(scope="module", params=["gelu", "quick_gelu"])
def saved(clip, request, tmp_path_factory):
    """A folder with a CLIP of random weights, whose tokens are letters, and the model."""
    letters = "abcdefghijklmnopqrstuvwxyz-."
    tokens = [*letters, *(c + "</w>" for c in letters), "<|startoftext|>", "<|endoftext|>"]
    tokenizer = clip.CLIPTokenizer(vocab={t: i for i, t in enumerate(tokens)}, merges=[])
    size = {"hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = clip.CLIPConfig(
        text_config={
            **size,
            "vocab_size": len(tokens),
            "max_position_embeddings": 40,
            "hidden_act": request.param,
            "projection_dim": 7,
            "bos_token_id": len(tokens) - 2,
            "eos_token_id": len(tokens) - 1,
        },
        vision_config={**size, "image_size": 8, "patch_size": 8},
        projection_dim=7,
    )
    torch.manual_seed(0)
    model = clip.CLIPModel(config).eval()
    with torch.no_grad():  # biases and gains that are not 0 and 1, as trained ones are not
        for parameter in model.text_model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    path = tmp_path_factory.mktemp("clip")
    model.save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path, model, tokenizer


def text_features(model, tokens):
    with torch.no_grad():
        found = model.get_text_features(**tokens)
    return normalize(getattr(found, "pooler_output", found), dim=-1)  # a tensor before transformers 5


@pytest.mark.parametrize("ending", ["", "."])
def test_words_as_context_are_the_plain_prompt(saved, ending):
    path, model, tokenizer = saved
    encoder = ClipPromptEncoder.from_pretrained(path, NAMES, ending=ending, start_words=WORDS)
    assert isinstance(encoder, PromptEncoder)
    assert (encoder.num_classes, encoder.num_features) == (4, 7)
    prompts = [f"{WORDS} {name.replace('_', ' ')}{ending}" for name in NAMES]
    expected = text_features(model, tokenizer(prompts, padding=True, return_tensors="pt"))
    length = len(tokenizer(WORDS)["input_ids"]) - 2
    found = encoder(encoder.start(length, 0).expand(2, -1, -1))
    torch.testing.assert_close(found, expected.expand(2, -1, -1), atol=1e-5, rtol=0)


def test_any_context_is_what_transformers_computes(saved):
    """Context vectors are put into its table of tokens, as letters that no name has."""
    _, model, tokenizer = saved
    unused = tokenizer.convert_tokens_to_ids(["g", "j", "q", "u", "v"])
    encoder = ClipPromptEncoder(model, NAMES, tokenizer, ending="")
    contexts = torch.randn(3, len(unused), 24)
    found, table = encoder(contexts), model.text_model.embeddings.token_embedding.weight
    before = table.detach().clone()
    for context, row in zip(contexts, found, strict=True):
        table.data[unused] = context
        for name, embedding in zip(NAMES, row, strict=True):
            ids = tokenizer(name.replace("_", " "))["input_ids"]
            expected = text_features(model, {"input_ids": torch.tensor([[ids[0], *unused, *ids[1:]]])})
            torch.testing.assert_close(embedding, expected[0], atol=1e-5, rtol=0)
    table.data.copy_(before)


def test_learning_through_clip(saved):
    _, model, tokenizer = saved
    encoder = ClipPromptEncoder(model, NAMES, tokenizer)
    u = coop(text_encoder=encoder).predict(TASK).probabilities
    assert u.dtype == torch.float64
    for i in range(len(TASK)):
        context, losses = learned(encoder, TASK, i, length=3, steps=9, rate=0.002, scale=10.0)
        expected = (10 * TASK.query[i] @ encoder(context.unsqueeze(0))[0].T).softmax(-1)
        torch.testing.assert_close(u[i], expected, atol=1e-10, rtol=1e-8)
        assert losses[-1] < losses[0]
    assert all(p.grad is None and p.requires_grad for p in model.parameters())
    single = coop(text_encoder=encoder).predict(TASK.to(torch.float32)).probabilities
    torch.testing.assert_close(single.double(), u, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(coop(text_encoder=encoder).predict(TASK).probabilities, u)  # the original is kept


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_clip_on_both_devices(saved):
    _, model, tokenizer = saved
    method = coop(text_encoder=ClipPromptEncoder(model, NAMES, tokenizer))
    there = method.predict(TASK.to("cuda")).probabilities.cpu()
    torch.testing.assert_close(there, method.predict(TASK).probabilities, atol=1e-9, rtol=1e-7)


def test_an_encoder_made_in_inference_mode_can_learn(saved):
    path, _, tokenizer = saved
    with torch.inference_mode():
        encoder = ClipPromptEncoder.from_pretrained(path, NAMES, tokenizer=tokenizer)
        inside = coop(text_encoder=encoder).predict(TASK).probabilities
    torch.testing.assert_close(coop(text_encoder=encoder).predict(TASK).probabilities, inside)


def test_a_text_model_alone_serves_too(clip, saved, tmp_path):
    path, _, tokenizer = saved
    clip.CLIPTextModelWithProjection.from_pretrained(path).save_pretrained(tmp_path)
    both = [ClipPromptEncoder.from_pretrained(p, NAMES, tokenizer=tokenizer) for p in (path, tmp_path)]
    context = torch.randn(1, 2, 24)
    torch.testing.assert_close(both[0](context), both[1](context))


def test_an_encoder_says_what_determines_its_embeddings(saved):
    _, model, tokenizer = saved
    made = [
        ClipPromptEncoder(model, NAMES, tokenizer),
        ClipPromptEncoder(model, NAMES[::-1], tokenizer),
        ClipPromptEncoder(model, NAMES, tokenizer, ending=""),
        ClipPromptEncoder(model, NAMES, tokenizer, start_words="a"),
    ]
    assert len({repr(encoder) for encoder in made}) == 4
    assert repr(ClipPromptEncoder(model, NAMES, tokenizer)) == repr(made[0])


def test_what_clip_needs(clip, saved, tmp_path):
    _, model, tokenizer = saved
    with pytest.raises(InputError, match="tokenizer: a model that is loaded already needs its tokenizer"):
        ClipPromptEncoder.from_pretrained(model, NAMES)
    with pytest.raises(InputError, match="tokenizer: expected the model's tokenizer, got int"):
        ClipPromptEncoder(model, NAMES, 3)
    with pytest.raises(InputError, match=r"model: expected a CLIPModel .* got CLIPTextModel"):
        ClipPromptEncoder(model.text_model, NAMES, tokenizer)
    with pytest.raises(InputError, match=r"context_length: the encoder has 40 positions, which leaves 28 .* got 29"):
        coop(text_encoder=ClipPromptEncoder(model, NAMES, tokenizer), context_length=29)
    with pytest.raises(InputError, match="context_length: expected 9, the number of tokens of 'a photo of a', got 3"):
        coop(text_encoder=ClipPromptEncoder(model, NAMES, tokenizer, start_words=WORDS))
    with pytest.raises(InputError, match="is not a saved model that transformers can load"):
        ClipPromptEncoder.from_pretrained(tmp_path, NAMES)
    clip.BertConfig().save_pretrained(tmp_path)
    with pytest.raises(InputError, match=r"expected a CLIP model, and .* holds one of type 'bert'"):
        ClipPromptEncoder.from_pretrained(tmp_path, NAMES)


def test_nothing_stays_behind_on_another_device(saved):
    """The device "meta" computes nothing, but refuses to be mixed with others."""
    _, model, tokenizer = saved
    encoder = ClipPromptEncoder(model, NAMES, tokenizer)
    context = encoder.start(3, 0).to("meta", torch.float32).expand(2, -1, -1)
    task = TASK.to(torch.float32)
    images, labels = task.support[:2].to("meta"), one_hot(task)[:2].to("meta")
    assert encoder(context).shape == (2, 4, 7)
    assert coop(text_encoder=encoder)._gradient(context, images, labels).is_meta
