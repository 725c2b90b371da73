"""Extraction: every image is read or reported, and a run that was stopped ends as one that was not."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from typer.testing import CliRunner

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'unem[images]'")
pytest.importorskip("transformers", reason="transformers is not installed: pip install 'unem[images]'")

from helpers.image_data import picture, write_class_folders, write_clip
from unem import FeatureSet
from unem.cli import application
from unem.errors import InputError
from unem.vision.backbones import Preprocessing, create
from unem.vision.datasets import images_of
from unem.vision.extraction import LocalEngine, extract, extract_to_files, text_features
from unem.vision.extraction.pipeline import AT_A_TIME, decoded
from unem.vision.images import ImageError, ImageList, open_image


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clip")
    write_clip(folder)
    return folder


@pytest.fixture(scope="module")
def clip(clip_folder):
    return create(str(clip_folder))


@pytest.fixture
def photos(tmp_path):
    return write_class_folders(tmp_path / "photos", broken=2)


def run(*arguments):
    return CliRunner().invoke(application, [str(a) for a in arguments])


def test_features_are_those_of_the_images_alone(clip, photos):
    images = images_of(photos)
    made = extract(images, clip, shard_size=5, batch_size=3, workers=2)
    assert len(made) == 12
    assert [f.path for f in made.failures] == ["ash/x0.jpg", "ash/x1.jpg"]
    assert all(f.reason == "is not an image of a known format" for f in made.failures)
    assert sorted([*made.read.paths, *(f.path for f in made.failures)]) == list(images.paths)
    for row, path in enumerate(made.read.paths):
        alone = clip.encode_images(clip.preprocess(open_image(photos / path))[None])[0]
        assert torch.allclose(made.features[row], alone, atol=1e-5)
    assert not torch.allclose(made.features[0], made.features[1], atol=1e-2)
    other = extract(images, clip, shard_size=5, batch_size=3, workers=1)
    assert torch.equal(other.features, made.features)  # whoever decodes


def test_a_feature_set_with_texts(clip, photos, tmp_path):
    made = extract(images_of(photos), clip)
    prompts = ["a photo of a {}.", "a big {}."]
    features = made.to_feature_set(backbone=clip, prompts=prompts)
    assert features.class_names == ("ash", "birch", "elm")
    assert features.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    assert features.metadata["backbone"] == {"id": clip.id, "digest": clip.digest, "precision": "float32"}
    assert features.metadata["failures"] == 2
    assert features.metadata["prompts"] == prompts
    each = [clip.encode_texts([p.format(c) for c in features.class_names]) for p in prompts]
    mean = sum(e / e.norm(dim=1, keepdim=True) for e in each) / 2
    assert torch.allclose(features.text_features, mean / mean.norm(dim=1, keepdim=True), atol=1e-5)
    features.save(tmp_path / "f.safetensors")
    assert FeatureSet.load(tmp_path / "f.safetensors").digest == features.digest
    assert made.to_feature_set().text_features is None


def test_underscores_are_spaces(clip):
    assert torch.equal(text_features(clip, ["oak_tree"]), text_features(clip, ["oak tree"]))


@pytest.mark.parametrize("prompts", [["a photo"], ["{} {}"], ["{name}"], ["{"], [], "a {}", ["{0}"]])
def test_prompts_without_a_place_for_the_name(clip, prompts):
    with pytest.raises(InputError, match="prompts"):
        text_features(clip, ["cat"], prompts)


def test_unlabelled_images_keep_their_paths(clip, photos):
    made = extract(ImageList.from_folder(photos), clip)
    assert made.read.paths == tuple(p for p in made.images.paths if "x" not in p)
    with pytest.raises(InputError, match="12 of 12 have no class"):
        made.to_feature_set()


def test_nothing_to_read(clip, tmp_path):
    folder = write_class_folders(tmp_path / "p", ("a",), each=0, broken=2)
    made = extract(images_of(folder), clip)
    assert made.features.shape == (0, 12)
    with pytest.raises(InputError, match=r"none of 2 images could be read, for example a/x0.jpg"):
        made.to_feature_set()
    with pytest.raises(InputError, match="empty"):
        extract(ImageList(folder, []), clip)


@pytest.mark.parametrize("bad", [{"shard_size": 0}, {"batch_size": 0}, {"batch_size": 2.5}, {"workers": 0}])
def test_settings_are_checked(clip, photos, bad):
    with pytest.raises(InputError, match=next(iter(bad))):
        extract(images_of(photos), clip, **bad)


# -- shards ------------------------------------------------------------------------------------------------------------


class Stop(Exception):
    pass


def parts_of(folder):
    return {f.name: f.read_bytes() for f in sorted(folder.glob("*.safetensors"))}


def test_a_run_that_was_stopped_goes_on(clip, photos, tmp_path):
    images, work = images_of(photos), tmp_path / "work"
    whole = extract(images, clip, shard_size=4, batch_size=3, work_dir=tmp_path / "whole")

    def stop(progress):
        if progress.done >= 9:
            raise Stop

    with pytest.raises(Stop):
        extract(images, clip, shard_size=4, batch_size=3, work_dir=work, progress=stop)
    assert len(parts_of(work)) == 2
    seen = []
    again = extract(images, clip, shard_size=4, batch_size=3, work_dir=work, progress=seen.append)
    assert (seen[0].found, seen[0].done, seen[-1].done, seen[-1].total) == (8, 8, 14, 14)
    assert seen[-1].failed == 2
    assert torch.equal(again.features, whole.features)
    assert again.failures == whole.failures
    assert parts_of(work) == parts_of(tmp_path / "whole")


def test_shards_that_cannot_be_used_are_made_again(clip, photos, tmp_path):
    images = images_of(photos)
    options = {"shard_size": 4, "batch_size": 4, "work_dir": tmp_path / "w"}
    first = extract(images, clip, **options)
    content = parts_of(tmp_path / "w")
    one, two, *_ = content
    (tmp_path / "w" / one).write_bytes(content[one][:-7])
    (tmp_path / "w" / two).write_bytes(b"")
    again = extract(images, clip, **options)
    assert again.progress.found == 6
    assert torch.equal(again.features, first.features)
    assert parts_of(tmp_path / "w") == content


def test_what_determines_a_shard(clip, photos, tmp_path, clip_folder):
    images = images_of(photos)
    options = {"shard_size": 7, "work_dir": tmp_path / "w"}

    def found(backbone=clip, **changes):
        return extract(images, backbone, **(options | changes)).progress.found

    assert found() == 0
    assert found() == 14
    assert found(batch_size=2) == 0
    assert found(backbone=create(str(clip_folder), precision="bfloat16")) == 0
    picture(50, 50, seed=9).save(photos / "elm" / "00.jpg")
    assert found() == 7
    (photos / "elm" / "01.png").unlink()
    made = extract(images, clip, **options)
    assert made.progress.found == 7
    assert made.failures[-1].reason == "does not exist"


def test_features_that_are_not_finite_are_reported(clip_folder, photos):
    backbone = create(str(clip_folder))
    plain, count = backbone._images, []

    def spoiled(batch):
        features = plain(batch).clone()
        if not count:
            features[1] = float("nan")
        count.append(1)
        return features

    backbone._images = spoiled
    made = extract(images_of(photos), backbone, batch_size=4)
    assert len(made) == 11
    assert "not finite" in made.failures[0].reason


def test_an_error_in_the_model_does_not_hang(clip_folder, photos):
    backbone = create(str(clip_folder))

    def broken(batch):
        raise RuntimeError("no")

    backbone._images = broken
    with pytest.raises(RuntimeError, match="no"):
        extract(images_of(photos), backbone)


def test_decoding_keeps_the_order(clip):
    contents = []
    for i in range(40):
        file = io.BytesIO()
        picture(seed=i).save(file, "PNG")
        contents.append(file.getvalue() if i % 7 else ImageError(f"number {i}"))
    batches = [contents[i : i + 9] for i in range(0, 40, 9)]
    together = [
        row
        for b in decoded(batches, clip.preprocessing, workers=4, ahead=2)
        for row in zip(b.pixels, b.problems, strict=True)
    ]
    for i, (pixels, problem) in enumerate(together):
        if i % 7:
            assert np.array_equal(pixels, clip.pixels(open_image(contents[i])))
            assert problem is None
        else:
            assert problem == f"number {i}"
            assert pixels.max() == 0


def test_three_hundred_hostile_files(clip, tmp_path):
    from hostile_images import write_hostile

    write_hostile(tmp_path / "h", 300, seed=1)
    images = ImageList.from_folder(tmp_path / "h")
    assert len(images) == 300
    made = extract(images, clip, shard_size=128, work_dir=tmp_path / "w")
    assert len(made) + len(made.failures) == 300
    assert min(len(made), len(made.failures)) > 50
    assert set(made.read.paths) | {f.path for f in made.failures} == set(images.paths)
    assert torch.isfinite(made.features).all()


# -- processes ---------------------------------------------------------------------------------------------------------


def test_processes_make_the_same_shards_as_threads(clip, photos, tmp_path):
    from hostile_images import write_hostile

    write_hostile(photos / "ash" / "hostile", 60, seed=2)
    images = images_of(photos)
    made = {}
    for decoding in ("threads", "processes"):
        options = {"shard_size": 40, "batch_size": 32, "workers": 2, "work_dir": tmp_path / decoding}
        made[decoding] = extract(images, clip, decoding=decoding, **options)
    here, there = made.values()
    assert torch.equal(here.features, there.features)
    assert here.failures == there.failures
    assert min(len(here), len(here.failures)) > 10
    assert parts_of(tmp_path / "threads") == parts_of(tmp_path / "processes")


def test_a_killed_decoder_ends_the_run_which_goes_on_later(clip, photos, tmp_path, monkeypatch):
    images, started, plain = images_of(photos), [], subprocess.Popen

    def start(*arguments, **options):
        started.append(plain(*arguments, **options))
        return started[-1]

    def kill(progress):
        if progress.done >= 4:
            for process in started:
                process.kill()

    monkeypatch.setattr("unem.vision.decoding.processes.subprocess.Popen", start)
    options = {"shard_size": 2, "batch_size": 2, "workers": 1, "decoding": "processes"}
    whole = extract(images, clip, work_dir=tmp_path / "whole", **options)
    monkeypatch.setitem(AT_A_TIME, "processes", 1)  # the last images are not decoded ahead
    with pytest.raises(InputError, match=r"workers: a process that decodes images died \(signal 9\)"):
        extract(images, clip, work_dir=tmp_path / "w", progress=kill, **options)
    assert all(process.returncode is not None for process in started)
    kept = parts_of(tmp_path / "w")
    assert 1 <= len(kept) < 7
    assert not list((tmp_path / "w").glob(".*"))
    again = extract(images, clip, work_dir=tmp_path / "w", **options)
    assert again.progress.found == 2 * len(kept)
    assert torch.equal(again.features, whole.features)
    assert parts_of(tmp_path / "w") == parts_of(tmp_path / "whole")


def test_where_processes_decode(clip, monkeypatch):
    class OnGpu:
        size, preprocessing, device = clip.size, clip.preprocessing, torch.device("cuda")

    def chosen(backbone=OnGpu, images=1000, cores=16, **options):
        monkeypatch.setattr("unem.vision.extraction.engines.cores", lambda: cores)
        return LocalEngine(backbone, 4, **options)._decoding(images)

    assert chosen() == "processes"
    assert chosen(clip) == "threads"
    assert chosen(clip, decoding="processes") == "processes"
    assert chosen(decoding="threads") == "threads"
    assert {chosen(cores=3), chosen(workers=2), chosen(cores=2, workers=8), chosen(images=100)} == {"threads"}

    class Other(Preprocessing):
        pass

    monkeypatch.setattr(OnGpu, "preprocessing", Other())
    assert chosen() == "threads"
    with pytest.raises(InputError, match="decoding: expected auto, threads, processes, got 'magic'"):
        chosen(decoding="magic")


@pytest.mark.parametrize(
    ("number", "code", "word"), [("SIGINT", 130, "interrupted"), ("SIGTERM", 143, "ended on request")]
)
def test_stopped_while_processes_decode(tmp_path, clip_folder, number, code, word):
    """Ctrl-C of a terminal goes to all processes of its group."""
    photos = write_class_folders(tmp_path / "photos", ("a", "b"), each=300)
    output, parts = tmp_path / "f.safetensors", tmp_path / "f.safetensors.parts"
    options = ["--backbone", clip_folder, "--shard-size", 2, "--batch-size", 2, "-q", "-o", output]
    options += ["--decoding", "processes", "--workers", 2]
    command = [sys.executable, "-c", "from unem.cli import main; main()", "extract", photos, *options]
    process = subprocess.Popen(
        [str(c) for c in command],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    until = time.time() + 60
    while len(list(parts.glob("0*.safetensors"))) < 5 and time.time() < until and process.poll() is None:
        time.sleep(0.002)
    os.killpg(process.pid, getattr(signal, number))
    _, errors = process.communicate(timeout=60)  # ends when the last process that could write there has ended
    assert (process.returncode, errors) == (code, word + "\n")
    assert not output.exists()
    assert 5 <= len(list(parts.iterdir())) == len(parts_of(parts)) < 300


# -- which images ------------------------------------------------------------------------------------------------------


def test_folders_of_splits(tmp_path):
    write_class_folders(tmp_path / "train", ("a", "b"), each=2)
    write_class_folders(tmp_path / "Validation", ("c",), each=1)
    images = images_of(tmp_path)
    assert images.class_names == ("a", "b", "c")
    assert sorted(set(images.split_names)) == ["train", "val"]
    assert images.labels[images.split_names == "val"].tolist() == [2]


def test_a_class_may_be_called_test(tmp_path):
    write_class_folders(tmp_path, ("test", "other"), each=1)
    assert images_of(tmp_path).class_names == ("other", "test")


def test_csv_files(tmp_path):
    write_class_folders(tmp_path / "p", ("a", "b"), each=2)
    (tmp_path / "list.csv").write_text("path,label,split\np/a/00.jpg,x,train\np/b/00.jpg,y,test\np/b/01.png,,test\n")
    images = images_of(tmp_path / "list.csv")
    assert images.class_names == ("x", "y")
    assert images.labels.tolist() == [0, 1, -1]
    assert images.split_names.tolist() == ["train", "test", "test"]
    assert images.file(0).is_file()


@given(st.text(max_size=60) | st.lists(st.lists(st.text(max_size=5), max_size=4), max_size=4))
def test_any_csv_is_read_or_refused(tmp_path_factory, content):
    file = tmp_path_factory.mktemp("csv") / "a.csv"
    if isinstance(content, str):
        file.write_text("path,label\n" + content, encoding="utf-8", errors="replace")
    else:
        with open(file, "w", newline="", encoding="utf-8", errors="replace") as out:
            csv.writer(out).writerows(content)
    try:
        images = images_of(file)
    except InputError:
        pass
    else:
        assert len(images) > 0


def test_arguments_that_are_no_images(tmp_path):
    (tmp_path / "a.txt").touch()
    for argument in (tmp_path, tmp_path / "nowhere", tmp_path / "a.txt", tmp_path / "no.csv"):
        with pytest.raises(InputError, match="images"):
            images_of(argument)


# -- the command line --------------------------------------------------------------------------------------------------


def test_the_command(photos, tmp_path, clip_folder):
    output, errors = tmp_path / "f.safetensors", tmp_path / "errors.csv"
    done = run("extract", photos, "--backbone", clip_folder, "--prompt", "a {}.", "-o", output, "--errors", errors)
    assert done.exit_code == 0, done.output
    assert "12 images of 3 classes, 12 features" in done.output
    assert list(csv.reader(errors.open()))[1] == ["ash/x0.jpg", "is not an image of a known format"]
    features = FeatureSet.load(output)
    assert features.metadata["prompts"] == ["a {}."]
    assert features.text_features.shape == (3, 12)
    assert not (tmp_path / "f.safetensors.parts").exists()
    (tmp_path / "other").mkdir()
    again = run(
        "extract",
        photos,
        "--backbone",
        clip_folder,
        "--prompt",
        "a {}.",
        "-o",
        tmp_path / "other" / "f.safetensors",
        "-q",
    )
    assert again.exit_code == 0
    assert output.read_bytes() == (tmp_path / "other" / "f.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["-o", "{tmp}/f.npz"], ".safetensors"),
        (["-o", "{tmp}/f.safetensors", "--prompt", "no place"], "prompts"),
        (["-o", "{tmp}/f.safetensors", "--engine", "magic"], "--engine"),
        (["-o", "{tmp}/f.safetensors", "--address", "auto"], "--address"),
        (["-o", "{tmp}/f.safetensors", "--precision", "int3"], "precision"),
    ],
)
def test_the_command_says_what_is_wrong(photos, tmp_path, clip_folder, options, word):
    done = run("extract", photos, "--backbone", clip_folder, *(o.format(tmp=tmp_path) for o in options))
    assert done.exit_code == 2
    assert word in done.output


def test_the_list_of_backbones():
    listed = json.loads(run("backbones", "--json").output)
    assert {kind["prefix"] for kind in listed} >= {
        "transformers",
        "timm",
        "open_clip",
        "efficientnet-lite0",
        "resnet18",
    }
    assert "efficientnet-lite0" in run("backbones").output


def test_killed_and_started_again(tmp_path, clip_folder):
    photos = write_class_folders(tmp_path / "photos", ("a", "b"), each=60, broken=3)
    output, parts = tmp_path / "f.safetensors", tmp_path / "f.safetensors.parts"
    options = ["--backbone", clip_folder, "--shard-size", 2, "--batch-size", 2, "-q", "-o"]
    command = [sys.executable, "-c", "from unem.cli import main; main()", "extract", photos, *options, output]
    one = {**os.environ, "OMP_NUM_THREADS": "1"}  # as here: sums are rounded by how threads share them
    process = subprocess.Popen([str(c) for c in command], env=one)
    until = time.time() + 60
    while len(list(parts.glob("0*.safetensors"))) < 5 and time.time() < until and process.poll() is None:
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not output.exists()
    kept = {f: f.stat().st_mtime_ns for f in parts.glob("0*.safetensors")}
    assert len(kept) >= 5
    made = extract(images_of(photos), create(str(clip_folder)), shard_size=2, batch_size=2, work_dir=parts)
    assert made.progress.found == 2 * len(kept)
    assert all(f.stat().st_mtime_ns == when for f, when in kept.items())
    assert run("extract", photos, *options, output).exit_code == 0
    assert run("extract", photos, *options, tmp_path / "whole.safetensors").exit_code == 0
    assert output.read_bytes() == (tmp_path / "whole.safetensors").read_bytes()
    assert not parts.exists()


def test_features_that_stay_in_files(clip, tmp_path):
    photos = write_class_folders(tmp_path / "photos", each=5, broken=2)
    images = images_of(photos)
    whole = extract(images, clip, shard_size=4)
    made = extract_to_files(images, clip, tmp_path / "parts", shard_size=4)
    assert made.failures == whole.failures
    assert [path for _, paths in made.files for path in paths] == list(whole.read.paths)
    stored = torch.cat([load_file(file)["features"] for file, _ in made.files])
    assert torch.equal(stored, whole.features)
    again = extract_to_files(images, clip, tmp_path / "parts", shard_size=4)
    assert (again.progress.found, again.files) == (len(images), made.files)
