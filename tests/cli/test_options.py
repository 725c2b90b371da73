"""The options that commands share."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest
from typer.main import get_command

import unem.cli._options as shared
from helpers.command_line import said
from unem.cli import application
from unem.errors import InputError


def parameters(command):
    return {p.name: p for p in get_command(application).commands[command].params}


@pytest.mark.parametrize(
    ("command", "groups"),
    [
        ("train", [shared.PoolOptions, shared.ProtocolOptions]),
        ("eval", [shared.PoolOptions, shared.ProtocolOptions, shared.TaskOptions]),
        ("calibrate", [shared.PoolOptions, shared.ProtocolOptions, shared.TaskOptions]),
        ("tune", [shared.PoolOptions, shared.ProtocolOptions, shared.TaskOptions]),
        ("compare", [shared.PoolOptions, shared.DrawOptions, shared.TaskOptions]),
        ("sweep", [shared.EngineOptions]),
        ("reproduce", [shared.EngineOptions]),
        ("extract", [shared.EngineOptions]),
    ],
)
def test_commands_have_all_options_of_their_groups(command, groups):
    names = {f.name for group in groups for f in fields(group)} - {"given"}
    assert names <= parameters(command).keys()


def test_defaults_that_differ():
    splits = {command: parameters(command)["query_split"].default for command in ("train", "calibrate", "tune")}
    assert splits == {"train": "val", "calibrate": "val", "tune": "val"}
    assert {parameters(command)["query_split"].default for command in ("eval", "compare")} == {"test"}
    assert {c: parameters(c)["tasks"].default for c in ("eval", "tune")} == {"eval": 1000, "tune": 100}


# -- pools -------------------------------------------------------------------------------------------------------------


def pools(path, **options):
    return shared.PoolOptions(features=path, given=frozenset(options), **options)


def test_pools_of_splits(features):
    support, query = pools(features).read()
    assert (support.name, query) == ("toy/test", None)
    support, query = pools(features, support_split="train+val").read()
    assert (support.name, query.name) == ("toy/train+val", "toy/test")
    support, query = pools(features, support_split="val+train", query_split="train+val").read()
    assert query is None  # the same images


def test_pools_without_splits(unsplit):
    support, query = pools(unsplit).read()
    assert (len(support), query) == (20, None)
    with pytest.raises(InputError, match=r"--query-split: 'nosplit.npz' has no splits"):
        pools(unsplit, query_split="test").read()
    with pytest.raises(InputError, match=r"--support-split: 'nosplit.npz' has no splits"):
        pools(unsplit, query_split="test", support_split="train").read()


def test_missing_default_split_says_what_there_is(tmp_path):
    np.savez(tmp_path / "f.npz", features=np.ones((20, 3)), labels=np.arange(20) % 2, split=np.array(["train"] * 20))
    message = said("train", tmp_path / "f.npz", "-o", tmp_path / "s.json")
    assert "has no split 'val', which is the default here; it has train" in message
    message = said("train", tmp_path / "f.npz", "-o", tmp_path / "s.json", "--query-split", "val")
    assert "has no split 'val', only train" in message
    assert "default" not in message


def test_splits_that_share_images(features):
    with pytest.raises(InputError, match=r"--support-split train.test and --query-split test share test"):
        pools(features, support_split="train+test").read()
    with pytest.raises(InputError, match=r"--support-split train.val and --tune-split val share val"):
        pools(features, support_split="train+val").read_for_tuning("val")


def test_tuning_needs_a_split_of_its_own(unsplit, features):
    message = said("compare", unsplit, "--tune", "2")
    assert "--tune-split: 'nosplit.npz' has no splits" in message
    assert pools(features).read_for_tuning("val").support.name == "toy/val"


def test_labels_go_with_bare_arrays(features):
    with pytest.raises(InputError, match=r"--labels: goes with a .npy file"):
        pools(features, labels=features).load()


# -- others ------------------------------------------------------------------------------------------------------------


def test_protocol(features):
    support, _ = pools(features).read()
    protocol = shared.ProtocolOptions(shots=2, effective_classes="1-3", query_classes="even").for_(support)
    assert (protocol.shots, protocol.effective_classes, protocol.query_classes) == (2, (1, 3), (0, 2, 4))


def test_settings():
    assert shared.parse_settings(["a=1", "b-c=[1, 2]", "d=True", "e=text", "f="]) == {
        "a": 1, "b_c": [1, 2], "d": True, "e": "text", "f": "",
    }  # fmt: skip
    assert shared.parse_settings(None) == {}
    with pytest.raises(InputError, match=r"--set: expected NAME=VALUE, got '=1'"):
        shared.parse_settings(["=1"])


def test_devices():
    assert shared.check_device("cpu") == "cpu"
    with pytest.raises(InputError, match=r"--device: 'abacus' cannot be used here"):
        shared.check_device("abacus")


def test_engines():
    assert not shared.EngineOptions().uses_ray()
    assert shared.EngineOptions(engine="ray", address="auto").uses_ray()
    with pytest.raises(InputError, match=r"--engine: expected local or ray, got 'steam'"):
        shared.EngineOptions(engine="steam").uses_ray()
    with pytest.raises(InputError, match=r"--address: goes with --engine ray"):
        shared.EngineOptions(address="auto").uses_ray()
