"""The networks: their shapes, their sizes as known from elsewhere, and files that are whole or refused."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from unem.errors import InputError
from unem.vision.networks import create, digest, load_checkpoint, save_checkpoint

INFO = {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4], "classes": ["cat", "dog"], "epochs": 3, "note": "ours"}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A ResNet-18 and its file; made once, since writing 45 MB takes a moment."""
    path = tmp_path_factory.mktemp("networks") / "backbone.safetensors"
    torch.manual_seed(1)
    network = create("resnet18", 32)
    save_checkpoint(path, network, INFO)
    return path, network


@pytest.mark.parametrize(
    ("name", "dim", "parameters"),
    [
        # ResNet-18 of ImageNet has 11,689,512; less 1000 × 513 of the last layer and 64 · 3 · (49 − 9) of the first.
        ("resnet18", 512, 11_689_512 - 513_000 - 7_680),
        # WRN28-10 of CIFAR-10 has 36,479,194 (S. Zagoruyko's: 36.5 M); less its last layer.
        ("wrn28-10", 640, 36_479_194 - 6_410),
    ],
)
def test_sizes_are_those_known(name, dim, parameters):
    network = create(name)
    assert sum(p.numel() for p in network.parameters()) == parameters
    assert (network.name, network.dim, network.size) == (name, dim, 84)


@pytest.mark.parametrize(("name", "side"), [("resnet18", 4), ("wrn28-10", 8)])
def test_maps_and_features(name, side):
    network = create(name).eval()
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        maps, features = network.maps(images), network(images)
    assert maps.shape == (2, network.dim, side, side)
    torch.testing.assert_close(features, maps.flatten(2).mean(2))
    assert (features >= 0).all()  # after a rectifier
    assert features.std() > 0


def test_a_residual_block_is_the_sum_of_its_two_ways():
    """An independent account of the first block of ResNet-18, with torch's functional operations alone."""
    from torch.nn.functional import batch_norm, conv2d

    block = create("resnet18").blocks[2].eval()  # the first that halves the picture
    x = torch.randn(2, 64, 8, 8)

    def normed(y, norm):
        return batch_norm(y, norm.running_mean, norm.running_var, norm.weight, norm.bias)

    inner = normed(conv2d(x, block.first.weight, stride=2, padding=1), block.first_norm).clamp(min=0)
    inner = normed(conv2d(inner, block.second.weight, padding=1), block.second_norm)
    past = normed(conv2d(x, block.past[0].weight, stride=2), block.past[1])
    torch.testing.assert_close(block(x), (inner + past).clamp(min=0))


@pytest.mark.parametrize("name", ["resnet18", "wrn28-10"])
def test_gradients_reach_every_parameter(name):
    network = create(name)
    network(torch.randn(2, 3, 16, 16)).square().sum().backward()
    for key, parameter in network.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().sum() > 0, key


def test_unknown_names_and_sizes_are_refused():
    with pytest.raises(InputError, match=r"expected one of resnet18, wrn28-10, got 'resnet50'"):
        create("resnet50")
    with pytest.raises(InputError, match="size"):
        create("resnet18", 0)


def test_a_file_gives_back_the_network(small):
    path, network = small
    again, info = load_checkpoint(path)
    assert not again.training
    assert info == {**INFO, "name": "resnet18", "size": 32, "dim": 512, "digest": digest(network)}
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert torch.equal(again(images), network.eval()(images))
    assert again.size == 32


def test_equal_networks_are_equal_files(small, tmp_path):
    path, network = small
    for number in range(8):  # the order of a header's entries would be another one in half of them
        save_checkpoint(tmp_path / "again.safetensors", network, INFO)
        assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes(), number


def test_digests_name_the_weights(small):
    path, network = small
    again, _ = load_checkpoint(path)
    assert digest(again) == digest(network)
    with torch.no_grad():
        next(again.parameters())[0, 0, 0, 0] += 1e-3
    assert digest(again) != digest(network)


@settings(max_examples=15)
@given(st.integers(0, 2**31), st.integers(0, 7))
def test_any_flipped_bit_is_noticed(small, position, bit):
    """Where safetensors notices nothing, the digest does; what is in the header is JSON or a name that does not fit."""
    path, _ = small
    content = path.read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    position = length + position % (len(content) - length)  # within the weights
    broken = path.with_name("broken.safetensors")
    if not broken.exists():
        broken.write_bytes(content)
    with open(broken, "r+b") as file:
        file.seek(position)
        file.write(bytes([content[position] ^ 1 << bit]))
    try:
        with pytest.raises(InputError, match="damaged"):
            load_checkpoint(broken)
    finally:
        with open(broken, "r+b") as file:
            file.seek(position)
            file.write(content[position : position + 1])


@pytest.mark.parametrize("keep", [0, 4, 100, 5000, -1])
def test_a_file_that_was_cut_is_refused(small, tmp_path, keep):
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(small[0].read_bytes()[:keep])
    with pytest.raises(InputError, match="not a readable safetensors file"):
        load_checkpoint(cut)


def test_foreign_files_are_refused(small, tmp_path):
    path = tmp_path / "foreign.safetensors"
    with pytest.raises(InputError, match="does not exist"):
        load_checkpoint(path)
    with pytest.raises(InputError, match="is a folder"):
        load_checkpoint(tmp_path)
    save_file({"x": torch.zeros(2)}, path)
    with pytest.raises(InputError, match="not of 'unem-network/1'"):
        load_checkpoint(path)
    tensors = load_file(small[0])
    good = {**INFO, "format": "unem-network/1", "name": "resnet18", "size": 32, "digest": "0"}
    for header, message in [
        ("{", "damaged header"),
        (json.dumps([1]), "damaged header"),
        (json.dumps({**good, "name": "vgg"}), "expected one of"),
        (json.dumps({**good, "std": [0, 1, 1]}), "std: expected three numbers above 0"),
        (json.dumps({**good, "mean": "abc"}), "mean: expected three numbers"),
        (json.dumps({k: v for k, v in good.items() if k != "digest"}), "no 'digest'"),
        (json.dumps({**good, "name": "wrn28-10"}), "does not hold the weights of wrn28-10"),
        (json.dumps(good), "weights are not those"),
    ]:
        save_file(tensors, path, metadata={"unem": header})
        with pytest.raises(InputError, match=message):
            load_checkpoint(path)


def test_saving_says_what_is_missing(small, tmp_path):
    with pytest.raises(InputError, match="mean: expected three numbers, got None"):
        save_checkpoint(tmp_path / "a.safetensors", small[1], {"std": [1, 1, 1]})
    with pytest.raises(InputError, match=r"ends in \.safetensors"):
        save_checkpoint(tmp_path / "a.pt", small[1], INFO)
    assert not list(tmp_path.iterdir())
