"""What visitors send: names and bytes, never paths. Everything that is refused here is refused with a sentence.

Nothing is written to disk: archives are read in memory, member by member, and within limits that are checked before
anything is unpacked.
"""

from __future__ import annotations

import io
import re
import stat
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from unem.errors import InputError
from unem.vision.images import ENDINGS
from unem.web.limits import MB, Limits

__all__ = [
    "FEATURE_ENDINGS",
    "Archive",
    "Received",
    "check_kind",
    "class_folders",
    "opened_zip",
    "safe_name",
    "shown",
    "too_large",
]

FEATURE_ENDINGS = (".safetensors", ".npz")
ARCHIVES = (".zip", ".tar", ".gz", ".tgz", ".bz2", ".xz", ".7z", ".rar", ".zst", ".jar")
LONGEST_NAME = 400
SMALL = MB  # a member that unpacks to no more cannot do harm, however well it is compressed
ENTRY, END = b"PK\x01\x02", b"PK\x05\x06"  # begin each entry of an archive's table of contents, and its end
LONGEST_ENTRY = 2000  # bytes of an entry, on average


@dataclass(frozen=True)
class Received:
    """A file by its name, with forward slashes between folders, and its content."""

    name: str
    content: bytes


def check_kind(name: str) -> str:
    """The name of a file that may be sent, made safe.

    Example:
        >>> check_kind("cats/1.jpg")
        'cats/1.jpg'
        >>> check_kind("notes.docx")
        Traceback (most recent call last):
        ...
        unem.errors.InputError: notes.docx: expected images, a zip of images, or features as .safetensors or .npz
    """
    safe = safe_name(name)
    if safe.lower().endswith((".zip", *ENDINGS, *FEATURE_ENDINGS)):
        return safe
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
        raise InputError(f"{shown(name)}: is not a file name")
    return "/".join(kept)


def shown(name: str) -> str:
    """A name that fits into a sentence and has nothing invisible in it."""
    plain = "".join(c if c.isprintable() else "�" for c in name)
    return plain if len(plain) <= 80 else f"{plain[:40]}…{plain[-30:]}"


# -- archives ----------------------------------------------------------------------------------------------------------


class Archive:
    """The images of a zip; everything else in it is left out, and what looks like an attack refuses all of it.

    Its table of contents is checked when it is opened; nothing is unpacked before :meth:`unpack` asks for it.

    Attributes:
        size: bytes of the images, unpacked.
    """

    def __init__(self, file: Received, limits: Limits) -> None:
        self.name = shown(file.name)
        self._zip = opened_zip(self.name, file.content, limits)
        members = [m for m in self._zip.infolist() if not m.is_dir()]
        for member in members:
            _check_member(self.name, member, limits)
        self._images = [(safe, m) for m in members if _is_image(safe := safe_name(m.filename))]
        if not self._images:
            raise InputError(f"{self.name}: holds no images ({', '.join(ENDINGS[:4])} …)")
        if len(self) > limits.images:
            raise InputError(f"{self.name}: holds {len(self)} images, more than the {limits.images} that are allowed")
        self.size = sum(m.file_size for _, m in self._images)
        if self.size > limits.unpacked:
            raise InputError(
                f"{self.name}: would unpack to {self.size / MB:.0f} MB, "
                f"more than the {limits.unpacked / MB:.0f} MB that are allowed"
            )

    def __len__(self) -> int:
        return len(self._images)

    def unpack(self) -> Iterator[Received]:
        """One image after another."""
        for name, member in self._images:
            yield Received(name, _read(self.name, self._zip, member))


def opened_zip(name: str, content: bytes, limits: Limits) -> zipfile.ZipFile:
    """An archive whose table of contents is not too long: millions of entries, or endless names, would fill the memory
    as objects."""
    entries, end = content.count(ENTRY), content.rfind(END)
    if end >= 0 and int.from_bytes(content[end + 12 : end + 16], "little") > LONGEST_ENTRY * (entries + 1):
        raise InputError(f"{name}: refused, its table of contents is far too long")
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
        raise InputError(f"{archive}: {inside} in it is compressed in an unusual way; make an ordinary zip")
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
