"""What visitors send: names and bytes, never paths. Everything that is refused here is refused with a sentence.

Nothing is written to disk: archives are read in memory, member by member, and within limits that are checked before
anything is unpacked.
"""

from __future__ import annotations

import io
import re
import stat
import tempfile
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from unem.data import FeatureSet
from unem.errors import InputError
from unem.vision.images import ENDINGS

__all__ = ["FEATURE_ENDINGS", "Limits", "Received", "class_folders", "read_features", "received", "safe_name", "unpack"]

FEATURE_ENDINGS = (".safetensors", ".npz")
ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".zst", ".jar")
MB = 1_000_000
LONGEST_NAME = 400
SMALL = MB  # a member that unpacks to no more cannot do harm, however well it is compressed
ENTRY = b"PK\x01\x02"  # begins each entry of an archive's table of contents


@dataclass(frozen=True)
class Limits:
    """How much one visitor may send.

    Args:
        upload: bytes of one file, and of all files of one side (support or query) together.
        images: images of one side.
        pixels: pixels of one image.
        unpacked: bytes that the archives of one side may unpack to.
        ratio: how many times its size a member of an archive may unpack to; photographs do not compress.
        held: bytes of all visitors together.
    """

    upload: int = 200 * MB
    images: int = 2000
    pixels: int = 50 * MB
    unpacked: int = 400 * MB
    ratio: int = 100
    held: int = 4000 * MB

    @classmethod
    def of(cls, upload_mb: int, images: int, megapixels: float = 50) -> Limits:
        """From what the command line says."""
        for name, value in (("max-upload-mb", upload_mb), ("max-images", images), ("max-megapixels", megapixels)):
            if not value > 0:
                raise InputError(f"{name}: expected more than 0, got {value}")
        upload = upload_mb * MB
        return cls(upload, images, int(megapixels * MB), 2 * upload, held=max(4000 * MB, 4 * upload))


@dataclass(frozen=True)
class Received:
    """A file by its name, with forward slashes between folders, and its content."""

    name: str
    content: bytes


def received(name: str, content: bytes, limits: Limits) -> list[Received]:
    """The images, or the feature file, that a file of a visitor's holds.

    Example:
        >>> [file.name for file in received("cats/1.jpg", b"...", Limits())]
        ['cats/1.jpg']
        >>> received("notes.docx", b"...", Limits())
        Traceback (most recent call last):
        ...
        unem.errors.InputError: notes.docx: expected images, a zip of images, or features as .safetensors or .npz
    """
    safe = safe_name(name)
    if not content:
        raise InputError(f"{shown(safe)}: is empty")
    if len(content) > limits.upload:
        raise InputError(f"{shown(safe)}: {too_large(len(content), limits)}")
    ending = PurePosixPath(safe.lower()).suffix
    if ending == ".zip":
        return unpack(safe, content, limits)
    if ending in ENDINGS or ending in FEATURE_ENDINGS:
        return [Received(safe, content)]
    raise InputError(f"{shown(safe)}: expected images, a zip of images, or features as {' or '.join(FEATURE_ENDINGS)}")


def too_large(size: int | None, limits: Limits) -> str:
    """The end of a sentence; ``size`` is None where it is not known how much more would have come."""
    has = "has" if size is None else f"has {size / MB:.0f} MB,"
    return f"{has} more than the {limits.upload / MB:g} MB that may be sent"


def safe_name(name: str) -> str:
    r"""A name that stays in its folder, with forward slashes; another is refused.

    Example:
        >>> safe_name("photos\\cats/./1.jpg")
        'photos/cats/1.jpg'
        >>> safe_name("../../etc/passwd")
        Traceback (most recent call last):
        ...
        unem.errors.InputError: ../../etc/passwd: leads out of its folder
    """
    parts = name.replace("\\", "/").split("/")
    if not name.strip() or len(name) > LONGEST_NAME:
        raise InputError(f"{shown(name)}: has a name of {len(name)} characters; expected 1 … {LONGEST_NAME}")
    if any(not c.isprintable() for c in name):
        raise InputError(f"{shown(name)}: has characters in its name that cannot be shown")
    if parts[0] == "" or re.match(r"[A-Za-z]:", name):
        raise InputError(f"{shown(name)}: is an absolute path; names inside a folder were expected")
    if ".." in parts:
        raise InputError(f"{shown(name)}: leads out of its folder")
    kept = [p for p in parts if p not in ("", ".")]
    if not kept:
        raise InputError(f"{shown(name)}: is no name of a file")
    return "/".join(kept)


def shown(name: str) -> str:
    """A name that fits into a sentence and has nothing invisible in it."""
    plain = "".join(c if c.isprintable() else "�" for c in name)
    return plain if len(plain) <= 80 else f"{plain[:40]}…{plain[-30:]}"


# -- archives ----------------------------------------------------------------------------------------------------------


def unpack(name: str, content: bytes, limits: Limits) -> list[Received]:
    """The images of a zip; everything else in it is left out, and what looks like an attack refuses all of it."""
    name = shown(name)
    with _archive(name, content, limits) as archive:
        members = [m for m in archive.infolist() if not m.is_dir()]
        for member in members:
            _check_member(name, member, limits)
        images = [(safe, m) for m in members if _is_image(safe := safe_name(m.filename))]
        if not images:
            raise InputError(f"{name}: holds no images ({', '.join(ENDINGS[:4])} …)")
        if len(images) > limits.images:
            raise InputError(f"{name}: holds {len(images)} images, more than the {limits.images} that are allowed")
        total = sum(m.file_size for _, m in images)
        if total > limits.unpacked:
            raise InputError(
                f"{name}: would unpack to {total / MB:.0f} MB, "
                f"more than the {limits.unpacked / MB:.0f} MB that are allowed"
            )
        return [Received(safe, _read(name, archive, m)) for safe, m in images]


def _archive(name: str, content: bytes, limits: Limits) -> zipfile.ZipFile:
    entries = content.count(
        ENTRY
    )  # before the table of contents becomes objects: millions of them would fill the memory
    if entries > 4 * limits.images + 1000:
        raise InputError(f"{name}: holds {entries} files, far more than the {limits.images} images that are allowed")
    try:
        return zipfile.ZipFile(io.BytesIO(content))
    except Exception as error:  # a damaged table of contents leads zipfile into many kinds of errors
        raise InputError(f"{name}: is not a readable zip ({_first_line(error)})") from None


def _check_member(archive: str, member: zipfile.ZipInfo, limits: Limits) -> None:
    try:
        safe = safe_name(member.filename)
    except InputError as error:
        raise InputError(f"{archive}: refused, a file in it is not to be trusted: {error}") from None
    inside = shown(safe)
    mode = member.external_attr >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
        raise InputError(f"{archive}: refused, {inside} in it is a link or a device, not a file")
    if safe.lower().endswith(ARCHIVES):
        raise InputError(f"{archive}: refused, {inside} in it is an archive itself; unpack it first")
    if member.flag_bits & 1:
        raise InputError(f"{archive}: {inside} in it is encrypted")
    if not _is_image(safe):
        return
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{archive}: {inside} in it is compressed in an unusual way; make a usual zip")
    if member.file_size > max(SMALL, limits.ratio * member.compress_size):
        raise InputError(
            f"{archive}: refused, {inside} in it would unpack from {member.compress_size / MB:.2g} MB to "
            f"{member.file_size / MB:.0f} MB (a zip bomb?)"
        )


def _read(archive: str, opened: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    try:
        with opened.open(member) as stream:
            content = stream.read(member.file_size + 1)  # never more than was declared, and checked above
    except Exception as error:  # zipfile, zlib and struct raise their own kinds
        raise InputError(f"{archive}: {shown(member.filename)} in it is damaged ({_first_line(error)})") from None
    if len(content) != member.file_size:
        raise InputError(f"{archive}: {shown(member.filename)} in it is damaged (it is shorter than it says)")
    if content.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        raise InputError(f"{archive}: refused, {shown(member.filename)} in it is an archive itself; unpack it first")
    return content


def _is_image(name: str) -> bool:
    """By its ending; what systems leave in folders (``__MACOSX``, hidden files) is none."""
    parts = name.split("/")
    return name.lower().endswith(ENDINGS) and not any(p.startswith(".") or p == "__MACOSX" for p in parts)


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:100]


# -- what names say ----------------------------------------------------------------------------------------------------


def class_folders(names: Sequence[str]) -> list[str | None]:
    """The class that the folder of each file stands for: the first folder below those that all files share.

    Files outside any folder have none.

    Example:
        >>> class_folders(["task/support/cat/1.jpg", "task/support/dog/a/2.jpg"])
        ['cat', 'dog']
        >>> class_folders(["cat/1.jpg", "cat/2.jpg"]), class_folders(["1.jpg", "cat/2.jpg"])
        (['cat', 'cat'], [None, 'cat'])
    """
    folders = [name.split("/")[:-1] for name in names]
    shared = _shared(folders)
    if folders and any(len(f) == shared for f in folders):  # of one class, or some lie beside the folders
        shared = max(shared - 1, 0) if all(len(f) == shared for f in folders) else shared
    return [f[shared] if len(f) > shared else None for f in folders]


def _shared(folders: Iterable[Sequence[str]]) -> int:
    count = 0
    for level in zip(*folders, strict=False):
        if len(set(level)) > 1:
            break
        count += 1
    return count


# -- feature files -----------------------------------------------------------------------------------------------------


def read_features(file: Received, limits: Limits) -> FeatureSet:
    """A feature file. The library reads files, so it becomes one for that moment, in a folder of its own."""
    ending = PurePosixPath(file.name.lower()).suffix
    if ending == ".npz":
        _check_arrays(shown(file.name), file.content, limits)
    with tempfile.TemporaryDirectory(prefix="unem-app-") as folder:
        path = Path(folder) / f"features{ending}"
        path.write_bytes(file.content)
        try:
            return FeatureSet.load(path)
        except InputError as error:
            raise InputError(f"{shown(file.name)}: {_without(str(error), path)}") from None
        except Exception as error:
            raise InputError(f"{shown(file.name)}: is damaged ({_first_line(error)})") from None


def _check_arrays(name: str, content: bytes, limits: Limits) -> None:
    """An ``.npz`` is a zip, and may be a bomb like any other."""
    with _archive(name, content, limits) as archive:
        total = sum(member.file_size for member in archive.infolist())
        if total > limits.unpacked:
            raise InputError(
                f"{name}: would unpack to {total / MB:.0f} MB, "
                f"more than the {limits.unpacked / MB:.0f} MB that are allowed"
            )


def _without(message: str, path: Path) -> str:
    """A message that does not tell where our temporary folder is."""
    for said in (f"{str(path)!r} ", f"{path.name!r} ", f"{path.name}: "):
        message = message.replace(said, "")
    return message.removeprefix("features: ")
