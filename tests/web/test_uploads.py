"""What may be sent, and what is refused with a sentence."""

from __future__ import annotations

import io
import string
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers import app_data
from helpers.app_data import SMALL
from unem.errors import InputError
from unem.web.limits import MB, Limits
from unem.web.sides import Side
from unem.web.uploads import Archive, Received, check_kind, class_folders, safe_name


def unpack(name, content, limits):
    return list(Archive(Received(name, content), limits).unpack())


def received(name, content, limits):
    """What a side makes of a file."""
    side = Side("query", limits)
    side.receive(Received(check_kind(name), content))
    (coming,) = side.waiting
    return list(coming.unpack()) if isinstance(coming, Archive) else [coming]


def test_a_zip_gives_its_images_and_leaves_out_the_rest():
    content = app_data.zipped(
        {
            "a/cat/1.PNG": b"1",
            "a/notes.txt": b"-",
            "__MACOSX/a/cat/1.png": b"-",
            "a/.hidden.png": b"-",
            "a\\dog\\2.jpg": b"2",
        }
    )
    files = unpack("photos.zip", content, SMALL)
    assert {f.name: f.content for f in files} == {"a/cat/1.PNG": b"1", "a/dog/2.jpg": b"2"}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (app_data.bomb(), "zip bomb"),
        (app_data.traversal(), "leads out of its folder"),
        (app_data.traversal("/etc/passwd.png"), "absolute path"),
        (app_data.traversal("C:\\windows\\1.png"), "absolute path"),
        (app_data.traversal("..\\..\\1.png"), "leads out of its folder"),
        (app_data.traversal("cat/\x1b[2J.png"), "cannot be shown"),
        (app_data.link(), "link or a device"),
        (app_data.zipped({"cat/more.zip": b"PK\x03\x04"}), "an archive itself"),
        (app_data.zipped({"cat/1.png": app_data.zipped({"x": b"y"})}), "an archive itself"),
        (app_data.zipped({f"{i}.png": b"x" for i in range(31)}), "31 images"),
        (app_data.zipped({f"{i}.txt": b"" for i in range(2000)}), "2000 files"),
        (app_data.zipped({"cat/1.png": b"x"}, zipfile.ZIP_LZMA), "unusual way"),
        (app_data.zipped({"readme.txt": b"x"}), "no images"),
        (b"PK\x03\x04 and then nothing", "not a readable zip"),
        (app_data.zipped({f"{i}{'x' * 60_000}.png": b"x" for i in range(30)}), "table of contents is far too long"),
        (b"", "is empty"),
    ],
)
def test_hostile_archives_are_refused_with_a_sentence(content, sentence, left_behind):
    with pytest.raises(InputError, match=sentence) as caught:
        received("upload.zip", content, SMALL)
    assert len(str(caught.value)) < 300
    assert "\x1b" not in str(caught.value)


def test_an_archive_whose_members_add_up_to_too_much_is_refused():
    noise = np.random.default_rng(0).integers(0, 256, 9 * MB, dtype=np.uint8).tobytes()
    content = app_data.zipped({f"{i}.png": noise for i in range(2)}, zipfile.ZIP_STORED)
    with pytest.raises(InputError, match="would unpack to 18 MB, more than the 10 MB"):
        unpack("large.zip", content, Limits(upload=20 * MB, unpacked=10 * MB))


def test_encrypted_and_lying_archives_are_refused():
    plain = bytearray(app_data.zipped({"cat/1.png": b"content of a picture"}, zipfile.ZIP_STORED))
    place = plain.index(b"PK\x01\x02")
    encrypted = plain.copy()
    encrypted[place + 8] |= 1
    with pytest.raises(InputError, match="encrypted"):
        unpack("x.zip", bytes(encrypted), SMALL)
    lying = plain.copy()
    lying[place + 24 : place + 28] = (10**6).to_bytes(4, "little")  # its size, which it has not
    with pytest.raises(InputError, match=r"is damaged"):
        unpack("x.zip", bytes(lying), SMALL)
    damaged = plain.copy()
    damaged[damaged.index(b"content")] ^= 1
    with pytest.raises(InputError, match=r"1\.png in it is damaged"):
        unpack("x.zip", bytes(damaged), SMALL)


parts = st.text(max_size=8) | st.sampled_from(["..", ".", "cat", "C:", "__MACOSX"])
names = st.builds(
    lambda folders, end: "/".join(folders) + end,
    st.lists(parts, max_size=4),
    st.sampled_from(["", ".png", ".jpg", ".zip"]),
)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(names, st.binary(max_size=60)), max_size=5))
def test_any_zip_gives_names_that_stay_inside_or_a_sentence(members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in members:
            try:
                archive.writestr(name, content)
            except (ValueError, IndexError):  # names that no zip can have
                continue
    try:
        files = received("some.zip", out.getvalue(), SMALL)
    except InputError:
        return
    inside = [content for _, content in members]
    for file in files:
        parts = file.name.split("/")
        assert ".." not in parts
        assert "" not in parts
        assert file.name.isprintable()
        assert file.content in inside


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_damaged_zip_gives_what_was_in_it_or_a_sentence(data):
    content = bytearray(app_data.zipped({"cat/1.png": b"first" * 20, "dog/2.png": b"second" * 20}))
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(content)))
    try:
        files = received("a.zip", bytes(content[:cut]), SMALL)
    except InputError:
        return
    assert all(f.content in (b"first" * 20, b"second" * 20) for f in files)  # sizes and checksums hold


@given(st.text(alphabet=string.ascii_letters + "./\\:~ \x00é", max_size=30))
def test_safe_names_stay_inside(name):
    try:
        safe = safe_name(name)
    except InputError:
        return
    folder = Path("/inside")
    assert folder in (folder / safe).resolve().parents
    assert safe_name(safe) == safe


def test_classes_are_folders():
    assert class_folders(["s/cat/1.jpg", "s/dog/1.jpg", "s/dog/b/2.jpg"]) == ["cat", "dog", "dog"]
    assert class_folders(["1.jpg", "2.jpg"]) == [None, None]
    assert class_folders([]) == []
