"""Processes decode as threads do, to the bit, and end with whoever started them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'unem[images]'")

from PIL import ImageFile  # noqa: E402

from helpers.image_data import picture  # noqa: E402
from unem.errors import InputError  # noqa: E402
from unem.vision.decoding import DecodingProcesses, ImageError, Preprocessing, decode, prepare  # noqa: E402

SMALL = Preprocessing(16, 20)


def is_running(pid):
    """Not when it is dead and nobody has asked yet how it ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def gone(pids, seconds=30.0):
    until = time.monotonic() + seconds
    while any(map(is_running, pids)) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(map(is_running, pids))


def both(files, preprocessing=SMALL, workers=1):
    """What processes make of files, and what this thread does."""
    made = []
    with DecodingProcesses(preprocessing, workers) as processes:
        for order in (processes.prepare, lambda *given: prepare(*given, preprocessing)):
            pixels = np.zeros((len(files), preprocessing.size, preprocessing.size, 3), np.uint8)
            made.append((order(files, pixels), pixels))
    return made


@pytest.fixture
def files(tmp_path):
    """Images of several kinds and sizes, and what is none."""
    picture(60, 40, seed=1).save(tmp_path / "a.jpg", quality=80)
    picture(300, 500, seed=2).save(tmp_path / "b.jpg")
    picture(33, 44, seed=3).convert("LA").save(tmp_path / "c.png")
    picture(20, 20, seed=4).save(tmp_path / "line\nend é.webp")
    picture(5, 90, seed=5).save(tmp_path / "d.tif")
    picture(7, 9, seed=6).save(os.fsencode(tmp_path) + b"/\xff.bmp")
    (tmp_path / "e.jpg").write_bytes((tmp_path / "b.jpg").read_bytes()[:900])
    (tmp_path / "f.png").write_text("<html>")
    (tmp_path / "g.png").touch()
    (tmp_path / "h.png").mkdir()
    return [*sorted(tmp_path.iterdir()), tmp_path / "nowhere.png", Path("zero\0.png")]


@pytest.mark.parametrize("preprocessing", [SMALL, Preprocessing(24, 20, "square", resample="bilinear")])
def test_the_same_pixels_and_the_same_problems(files, preprocessing):
    (problems, pixels), (expected, here) = both(files, preprocessing)
    assert problems == expected
    assert problems.count(None) == 6
    assert np.array_equal(pixels, here)
    assert pixels.any((1, 2, 3)).tolist() == [problem is None for problem in problems]


def test_relative_names_and_contents_that_are_here(tmp_path, monkeypatch):
    picture(seed=1).save(tmp_path / "a.png")
    with DecodingProcesses(SMALL, 1) as processes:
        monkeypatch.chdir(tmp_path)
        pixels = np.zeros((3, 16, 16, 3), np.uint8)
        assert processes.prepare([Path("a.png")], pixels[:1]) == [None]
        content = (tmp_path / "a.png").read_bytes()
        assert processes.prepare([content, ImageError("is lost")], pixels[1:]) == [None, "is lost"]
    assert np.array_equal(pixels[0], pixels[1])
    assert not pixels[2].any()


def test_settings_of_pillow_count(files, monkeypatch):
    (problems, _), _ = both(files[:5])
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 300 * 500 // 2 - 1)
    (lenient, pixels), (expected, here) = both(files[:5])
    assert lenient == expected != problems
    assert np.array_equal(pixels, here)


class Turns:
    """Counts who is inside."""

    def __init__(self):
        self.lock, self.inside, self.most, self.taken = threading.Semaphore(), 0, 0, 0

    def __enter__(self):
        self.lock.acquire()
        self.inside, self.taken = self.inside + 1, self.taken + 1
        self.most = max(self.most, self.inside)

    def __exit__(self, *_):
        self.inside -= 1
        self.lock.release()


def test_large_images_wait_for_each_other(tmp_path, monkeypatch):
    turns = Turns()
    monkeypatch.setattr(decode, "one_large", turns)
    large, small = tmp_path / "large.png", tmp_path / "small.png"
    Image.new("1", (4200, 4200), 1).save(large)
    picture(seed=1).save(small)
    large.with_name("cut.png").write_bytes(large.read_bytes()[:-300])
    pixels = np.zeros((2, 3, 16, 16, 3), np.uint8)
    files = [large, small, large.with_name("cut.png")]
    with DecodingProcesses(SMALL, 2) as processes:
        threads = [threading.Thread(target=processes.prepare, args=(files, part)) for part in pixels]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (turns.taken, turns.most, turns.inside) == (4, 1, 0)
    assert pixels[:, 0].min() == 255
    assert pixels[:, 1].any()
    assert not pixels[:, 2].any()


def test_a_killed_process_is_told_of(files):
    pixels = np.zeros((2, 16, 16, 3), np.uint8)
    with DecodingProcesses(SMALL, 1) as processes:
        processes.prepare(files[:2], pixels)
        os.kill(processes._all[0].process.pid, signal.SIGKILL)
        read = r"while it read 2 images from '.*a\.jpg' on"
        with pytest.raises(InputError, match=rf"workers: .* died \(signal 9\) {read}"):
            processes.prepare(files[:2], pixels)


def test_a_process_killed_in_its_turn_gives_it_back(tmp_path, monkeypatch):
    Image.new("1", (4200, 4200), 1).save(tmp_path / "large.png")
    turns = Turns()
    monkeypatch.setattr(decode, "one_large", turns)
    with DecodingProcesses(SMALL, 1) as processes:
        process = processes._all[0].process
        plain = turns.__class__.__enter__

        def enter(self):
            plain(self)
            os.kill(process.pid, signal.SIGKILL)

        monkeypatch.setattr(Turns, "__enter__", enter)
        with pytest.raises(InputError, match="signal 9"):
            processes.prepare([tmp_path / "large.png"], np.zeros((1, 16, 16, 3), np.uint8))
    assert (turns.taken, turns.inside) == (1, 0)


def test_a_preprocessing_of_its_own_class_is_refused():
    class Other(Preprocessing):
        pass

    with pytest.raises(InputError, match=r"decoding: .*Other"):
        DecodingProcesses(Other(), 1)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc to look for processes in")
@pytest.mark.parametrize("busy", [False, True])
def test_no_process_outlives_the_one_that_started_it(tmp_path, busy):
    """Killed without a chance to say goodbye, while its processes wait or work; and none hears Ctrl-C itself."""
    picture(2000, 2000).save(tmp_path / "a.png")
    program = """
        import sys, threading, numpy, pathlib
        from unem.vision.decoding import DecodingProcesses, Preprocessing
        processes = DecodingProcesses(Preprocessing(16, 20), 2).__enter__()
        pixels = numpy.zeros((100, 16, 16, 3), numpy.uint8)
        files = [pathlib.Path(sys.argv[1])]
        processes.prepare(files, pixels[:1])
        if sys.argv[2] == "True":
            threading.Thread(target=processes.prepare, args=(files * 100, pixels), daemon=True).start()
        print(*(p.process.pid for p in processes._all), flush=True)
        threading.Event().wait()
    """
    command = [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "a.png"), str(busy)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) == 2
        assert all(map(is_running, pids))
        assert {os.getpgid(pid) for pid in pids}.isdisjoint({os.getpgid(process.pid)})
        process.kill()
        assert process.stderr.read() == ""
    assert gone(pids)
