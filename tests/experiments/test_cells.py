"""A cell is named by what determines it, and survives being written and read."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

import unem
from unem.experiments import Cell, Images, job_from_key

images = st.builds(
    Images,
    features=st.text(min_size=1, max_size=20),
    digest=st.text("0123456789abcdef", min_size=16, max_size=16),
    support_split=st.none() | st.sampled_from(["train", "val", "test", "train+val"]),
    query_split=st.none() | st.just("test"),
    query_classes=st.none() | st.sampled_from(["even", "odd", "0-3,7"]),
)
plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)
protocols = st.builds(
    unem.Protocol,
    shots=st.integers(1, 20),
    effective_classes=st.integers(1, 9) | st.tuples(st.integers(1, 3), st.integers(4, 9)) | st.just("all"),
    queries=st.integers(1, 99),
)
cells = st.builds(
    Cell,
    method=st.sampled_from(["paddle", "prototypes"]),
    images=images,
    protocol=protocols,
    tasks=st.integers(1, 1000),
    seed=st.integers(0, 2**40),
    settings=st.dictionaries(st.text(max_size=5), plain, max_size=3),
)


@given(cells)
def test_a_cell_survives_being_written_and_read(cell):
    again = job_from_key(json.loads(json.dumps(cell.key)))
    assert again.name == cell.name
    assert again.key == cell.key


@given(cells, st.data())
def test_whatever_changes_changes_the_name(cell, data):
    change = data.draw(
        st.sampled_from(
            [
                {"tasks": cell.tasks + 1},
                {"seed": cell.seed + 1},
                {"method": "simpleshot"},
                {"code": "another"},
                {"settings": {**cell.settings, "another": 1}},
                {"protocol": replace(cell.protocol, queries=cell.protocol.queries + 1)},
                {"images": replace(cell.images, digest="f" * 15 + "g")},
                {"images": replace(cell.images, support_split="elsewhere")},
            ]
        )
    )
    assert replace(cell, **change).name != cell.name
