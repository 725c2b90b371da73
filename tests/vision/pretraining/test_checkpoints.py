"""Runs that stop and go on, and files that are no checkpoint of theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from helpers.small_networks import coloured
from unem.errors import InputError
from unem.vision.networks import digest
from unem.vision.pretraining import PretrainingConfig, pretrain


class _Stop:
    """Raises Ctrl-C in the middle of an epoch."""

    def __init__(self, epoch):
        self.epoch = epoch

    def __call__(self, now):
        if now.epoch == self.epoch:
            raise KeyboardInterrupt


@pytest.mark.parametrize("validated", [True, False])
def test_a_resumed_run_is_the_uninterrupted_one(tiny, tmp_path, validated):
    images = coloured(30, 3)
    validation = coloured(24, 4, seed=5) if validated else None
    whole = pretrain(images, tiny, validation=validation)
    path = tmp_path / "checkpoint.safetensors"
    for epoch in (2, 4):  # stopped twice
        stopped = pretrain(images, tiny, validation=validation, checkpoint=path, on_progress=_Stop(epoch))
        assert stopped.interrupted
        assert len(stopped.history) == epoch - 1
    resumed = pretrain(images, tiny, validation=validation, checkpoint=path)
    assert not resumed.interrupted
    assert digest(resumed.network) == digest(whole.network)
    timeless = [[replace(e, seconds=0) for e in r.history] for r in (resumed, whole)]
    assert str(timeless[0]) == str(timeless[1])  # as text: NaN is not equal to itself
    assert resumed.info == whole.info
    again = pretrain(images, tiny, validation=validation, checkpoint=path)  # nothing left to do
    assert digest(again.network) == digest(whole.network)


def test_a_resumed_resnet_is_bit_identical(tmp_path):
    """With the real network: its momenta and running means must come back in the layout they had."""
    images = coloured(12, 3)
    config = PretrainingConfig(size=16, epochs=2, batch_size=6)
    path = tmp_path / "checkpoint.safetensors"
    pretrain(images, config, checkpoint=path, on_progress=_Stop(2))
    resumed = pretrain(images, config, checkpoint=path)
    assert digest(resumed.network) == digest(pretrain(images, config).network)


def test_checkpoints_of_others_are_refused(tiny, tmp_path):
    images, path = coloured(24, 3), tmp_path / "checkpoint.safetensors"
    pretrain(images, tiny, epochs=1, checkpoint=path)
    with pytest.raises(InputError, match=r"other settings \(different: epochs, seed\)"):
        pretrain(images, tiny, seed=3, checkpoint=path)
    with pytest.raises(InputError, match=r"different: images"):
        pretrain(coloured(24, 3, seed=1), tiny, epochs=1, checkpoint=path)
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    with pytest.raises(InputError, match="is not the checkpoint of a pre-training"):
        pretrain(images, tiny, epochs=1, checkpoint=path)
    path.write_bytes(content)
    with safe_open(path, "pt") as stored:
        metadata = stored.metadata()
    tensors = load_file(path)
    save_file({k: v for k, v in tensors.items() if "conv" not in k}, path, metadata=metadata)
    with pytest.raises(InputError, match="is damaged"):
        pretrain(images, tiny, epochs=1, checkpoint=path)
    save_file(tensors, path)
    with pytest.raises(InputError, match="no checkpoint"):
        pretrain(images, tiny, epochs=1, checkpoint=path)
    assert len(pretrain(images, tiny, epochs=1, checkpoint=path, resume=False).history) == 1
