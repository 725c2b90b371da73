"""Labels given by hand."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("PIL", reason="Pillow is not installed: pip install 'unem[images]'")

from helpers.photographs import labelled, truth
from unem.errors import InputError
from unem.inference import NONE_OF_THESE, label_features, read_corrections
from unem.inference.corrections import numbered_corrections


@pytest.fixture
def task():
    torch.manual_seed(0)
    labels = torch.arange(12) % 3
    support, query = (3 * torch.eye(8)[labels] + torch.randn(12, 8) for _ in range(2))
    return support, labels, query, ["ash", "elm", "oak"]


def test_what_is_given_stays_and_counts_as_labelled(task):
    support, labels, query, names = task
    answer = label_features(*task, corrections={1: 0, 4: 2})
    assert answer.labels[[1, 4]].tolist() == [0, 2]
    assert answer.probabilities[1].tolist() == [1, 0, 0]
    assert answer.by_hand.nonzero().squeeze(1).tolist() == [1, 4]
    rest = [i for i in range(12) if i not in (1, 4)]
    same = label_features(
        torch.cat([support, query[[1, 4]]]), torch.cat([labels, torch.tensor([0, 2])]), query[rest], names
    )
    assert torch.equal(answer.probabilities[rest], same.probabilities)
    balanced = label_features(*task, corrections={1: 0, 4: 2}, decision="balanced")
    assert balanced.labels[[1, 4]].tolist() == [0, 2]


def test_none_of_these_by_hand_is_left_out_of_the_task(task):
    support, labels, query, names = task
    answer = label_features(*task, corrections={0: NONE_OF_THESE})
    assert answer.none_of_these.nonzero().squeeze(1).tolist() == [0]
    assert torch.equal(answer.probabilities[1:], label_features(support, labels, query[1:], names).probabilities)
    both = label_features(*task, corrections={0: NONE_OF_THESE}, none_of_these=0.05)
    assert not torch.isnan(both.novelty).any()


@pytest.mark.parametrize(
    ("corrections", "words"),
    [({12: 0}, "queries in 0 … 11"), ({0: 3}, "classes in 0 … 2"), (dict.fromkeys(range(12), 0), "nothing left")],
)
def test_corrections_that_cannot_be_are_refused(task, corrections, words):
    with pytest.raises(InputError, match=words):
        label_features(*task, corrections=corrections)


def test_a_table_of_corrections(photos, tmp_path):
    file = tmp_path / "c.csv"
    file.write_text("path,label\nmany/deep/sky-1.png,rust\nleaf-0.png,none of these\n")
    found = labelled(photos, corrections=read_corrections(file))
    rows = {row.path: row for row in found.rows}
    assert (rows["deep/sky-1.png"].label, rows["deep/sky-1.png"].by_hand) == ("rust", True)
    assert rows["leaf-0.png"].none_of_these
    assert found.counts()["none of these"] == 1
    assert all(r.label == truth(r.path) for r in rows.values() if not r.by_hand)
    text = found.to_csv(tmp_path / "labels.csv")
    assert text.splitlines()[0] == "path,label,probability,runner_up,margin,none_of_these,novelty,by_hand"
    again = read_corrections(tmp_path / "labels.csv")  # a whole table serves, too
    assert again == {"deep/sky-1.png": "rust", "leaf-0.png": "none of these"}


def test_tables_of_corrections_that_cannot_be_used(tmp_path):
    file = tmp_path / "c.csv"
    for text, words in (
        ("file,label\n", "no column 'path'"),
        ("path,label\na,b\na,c\n", "'a' twice"),
    ):
        file.write_text(text)
        with pytest.raises(InputError, match=words):
            read_corrections(file)
    with pytest.raises(InputError, match="cannot read"):
        read_corrections(tmp_path / "none.csv")
    file.write_text("path,label\n'=1.png,'-x\n")
    assert read_corrections(file) == {"=1.png": "-x"}
    for given, words in (
        ({"x.png": "a"}, "is not among the images to label"),
        ({"1.png": "a"}, "several images"),
        ({"a/1.png": "z"}, "not a class"),
    ):
        with pytest.raises(InputError, match=words):
            numbered_corrections(given, ["a/1.png", "b/1.png"], ["a"])


def test_notes_are_on_the_answer_with_what_was_given():
    """A class that has an image by hand is not empty, whatever is said of the others."""
    g = torch.Generator().manual_seed(3)
    labels, truth = torch.arange(40) % 8, torch.zeros(60, dtype=torch.long)
    centres = 0.7 * torch.randn(8, 24, generator=g)
    support, query = (centres[y] + torch.randn(len(y), 24, generator=g) for y in (labels, truth))
    names = [f"kind {k}" for k in range(8)]
    before = label_features(support, labels, query, names)
    empty = before.emptied.tolist()
    assert empty
    given = int((before.independent == empty[0]).nonzero()[0])
    after = label_features(support, labels, query, names, corrections={given: empty[0]})
    assert empty[0] not in after.emptied.tolist()
    said = " ".join(note for note in after.notes if "leaves" in note)
    assert f"kind {empty[0]}" not in said
    assert all(f"kind {k}" in said for k in after.emptied.tolist()[:5])
