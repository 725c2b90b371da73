"""Images out of the Hugging Face form, and downloads from the Hub."""

import json
from collections import Counter
from pathlib import Path

import pytest

from helpers.hub_server import hub, run_against
from helpers.image_folders import hub_data, png, triples
from unem import InputError
from unem.vision import datasets
from unem.vision.datasets import dataset, export, get, read


def test_a_saved_dataset_is_written_out_and_read(tmp_path):
    datasets = pytest.importorskip("datasets")
    names = ["中", 'odd, "name"\n1']
    saved = datasets.DatasetDict({"train": hub_data(names, [1, 0, 1]), "validation": hub_data(names, [0])})
    saved.save_to_disk(str(tmp_path / "saved"))
    with pytest.raises(InputError, match="inside arrow files; write them out first: unem datasets export"):
        read(tmp_path / "saved")
    seen = []
    images = export(tmp_path / "saved", tmp_path / "out", progress=lambda done, total: seen.append((done, total)))
    assert images.class_names == tuple(names)  # in the order of the labels
    assert seen[-1][0] == 4
    assert Counter(images.split_names.tolist()) == {"train": 3, "val": 1}
    by_content = {images.file(i).read_bytes(): images.class_names[images.labels[i]] for i in range(3)}
    assert [by_content[png(i)] for i in range(3)] == [names[1], names[0], names[1]]  # byte for byte
    assert triples(read(tmp_path / "out")) == triples(images)


def test_an_export_goes_on_where_it_was(tmp_path):
    hub_data(["a", "b"], [0, 1, 0]).save_to_disk(str(tmp_path / "saved"))
    images = export(tmp_path / "saved", tmp_path / "out")
    assert images.split_names is None
    files = [images.file(i) for i in range(3)]
    first = files[0].stat().st_mtime_ns
    files[1].unlink()
    files[2].write_bytes(b"half")
    (tmp_path / "out" / "index.csv").unlink()
    again = export(tmp_path / "saved", tmp_path / "out")
    assert files[0].stat().st_mtime_ns == first
    assert files[1].is_file()
    assert files[2].read_bytes() == png(2)
    assert triples(again) == triples(images)


def test_saved_datasets_that_cannot_be_used(tmp_path):
    datasets = pytest.importorskip("datasets")
    with pytest.raises(InputError, match="neither a saved dataset"):
        export(tmp_path, tmp_path / "out")
    datasets.Dataset.from_dict({"text": ["a"]}).save_to_disk(str(tmp_path / "text"))
    with pytest.raises(InputError, match="expected columns of images and labels, got 'text'"):
        export(tmp_path / "text", tmp_path / "out")
    hub_data(["a"], [0]).save_to_disk(str(tmp_path / "saved"))
    state = json.loads((tmp_path / "saved/state.json").read_text())
    arrow = tmp_path / "saved" / state["_data_files"][0]["filename"]
    whole = arrow.read_bytes()
    arrow.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match="not a whole arrow file"):
        export(tmp_path / "saved", tmp_path / "out")
    arrow.unlink()
    with pytest.raises(InputError, match="the saved dataset lacks 1 file"):
        export(tmp_path / "saved", tmp_path / "out")
    state["_data_files"] = [{"filename": "../../secret.arrow"}]
    (tmp_path / "saved/state.json").write_text(json.dumps(state))
    with pytest.raises(InputError, match="refused"):
        export(tmp_path / "saved", tmp_path / "out")


def test_an_image_that_is_only_a_path_is_not_fetched(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")

    secret = tmp_path / "secret.png"
    secret.write_bytes(png())
    table = arrow.table({"image": [{"bytes": None, "path": str(secret)}], "label": ["a"]})
    (tmp_path / "in").mkdir()
    parquet.write_table(table, tmp_path / "in/train-00000-of-00001.parquet")
    with pytest.raises(InputError, match="the image is not in the file"):
        export(tmp_path / "in", tmp_path / "out")


def test_the_hubs_imagenet_has_clips_names(tmp_path):
    long = ["tench, Tinca tinca", *(f"synset {i}" for i in range(998)), "toilet tissue, toilet paper"]
    hub_data(long, list(range(1000))).save_to_disk(str(tmp_path / "saved"))
    images = export(tmp_path / "saved", tmp_path / "out", name="imagenet")
    assert images.class_names == dataset("imagenet").class_names
    assert export(tmp_path / "saved", tmp_path / "own").class_names == tuple(long)


def test_classes_that_are_not_used_and_images_without_a_label_are_left_out(tmp_path):
    names = ["airplanes", "faces", "faces_easy"]
    hub_data(names, [0, 1, 2, -1]).save_to_disk(str(tmp_path / "saved"))
    images = export(tmp_path / "saved", tmp_path / "out", name="caltech101")
    assert images.class_names == ("airplane", "face")
    assert [images.file(i).read_bytes() for i in range(len(images))] == [png(0), png(1)]
    assert export(tmp_path / "saved", tmp_path / "all").class_names == tuple(names)


def test_get_downloads_writes_out_and_checks(tmp_path, small_eurosat):
    report = get("eurosat", tmp_path / "eurosat")
    assert small_eurosat == [("timm/eurosat-rgb", "dataset", ("*.parquet",))]
    assert report.ok
    assert report.verdict == "complete, with other splits"
    images = read(tmp_path / "eurosat")
    assert set(images.class_names) == set(
        dataset("eurosat").class_names
    )  # the Hub's AnnualCrop is the paper's Annual Crop Land
    assert len(images) == 20
    (tmp_path / "eurosat").rename(tmp_path / "fields")  # the names are in the index, not in the name of the folder
    assert read(tmp_path / "fields").class_names == images.class_names
    (tmp_path / "fields").rename(tmp_path / "eurosat")
    assert not (tmp_path / "eurosat/.hub").exists()
    assert get("eurosat", tmp_path / "eurosat").ok  # again, over what is there


def test_get_notices_a_partial_download(tmp_path, small_eurosat):
    served = tmp_path / "served/data"
    (served / "train-00000-of-00001.parquet").rename(served / "train-00000-of-00003.parquet")
    with pytest.raises(InputError, match="train should have 3 parquet files"):
        get("eurosat", tmp_path / "eurosat")


def test_get_without_a_network_says_what_to_do(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")

    def unreachable(*args, **more):
        raise ConnectionError("no route to host\nand more")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    with pytest.raises(InputError, match=r"cannot download .*timm/eurosat-rgb: no route to host\. By hand: .*phelber"):
        get("eurosat", tmp_path / "e")
    with pytest.raises(InputError, match="terms must be accepted"):
        get("imagenet", tmp_path / "i")
    with pytest.raises(InputError, match="no copy of UCF101 is known on the Hub; download it from"):
        get("ucf101", tmp_path / "u")
    with pytest.raises(InputError, match="no dataset is called"):
        get("no such", tmp_path / "n")


def test_no_code_from_elsewhere_is_run():
    here = Path(datasets.__file__).parent
    text = "".join(f.read_text(encoding="utf-8") for f in here.rglob("*.py"))
    assert "trust_remote_code" not in text
    assert "import pickle" not in text
    assert "load_dataset(" not in text


def test_a_download_that_broke_goes_on_with_what_is_missing(tmp_path):
    """Against a server that speaks the Hub's HTTP: the connection breaks in one of three files, then does not."""
    pytest.importorskip("huggingface_hub")
    names = [f"data/train-0000{i}-of-00003.parquet" for i in range(3)]
    files = {}
    for name in names:
        hub_data(["a", "b"], [0, 1]).to_parquet(str(tmp_path / "x.parquet"))
        files[name] = (tmp_path / "x.parquet").read_bytes()
    with hub({**files, "README.md": b"a card"}) as server:
        command = ["-m", "unem.cli", "datasets", "get", "dtd", str(tmp_path / "out"), "--quiet"]
        server.breaks[names[1]] = 0
        broken = run_against(server, tmp_path / "cache", *command)
        assert broken.returncode == 2, broken.stderr
        assert "error: cannot download" in broken.stderr
        assert "Traceback" not in broken.stderr
        server.breaks.clear()
        server.sent.clear()
        again = run_against(server, tmp_path / "cache", *command)
        assert server.sent == [(names[1], 0)]  # nothing twice, and no file that holds no images
    assert again.returncode == 1, again.stderr  # it is not the whole of that dataset, and that is said
    assert "6 images; DTD has 5640" in again.stderr
    assert len(list((tmp_path / "out").rglob("*.png"))) == 6
