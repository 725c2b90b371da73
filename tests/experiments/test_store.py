"""The store: a row is whole or absent."""

from __future__ import annotations

import os
import time

from hypothesis import given, settings
from hypothesis import strategies as st

from unem.evaluation import value_digest
from unem.experiments import ResultsStore

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=5,
)


def test_a_damaged_row_is_no_row(tmp_path):
    store = ResultsStore(tmp_path)
    name = store.put({"a": 1}, {"accuracy": 1.0}, {})
    whole = store.path(name).read_text()
    for damage in (
        "",
        whole[: len(whole) // 2],
        "[]",
        "null",
        whole.replace('"a": 1', '"a": 2'),
        '{"format": "unem-row/1"}',
    ):
        store.path(name).write_text(damage)
        assert name not in store
        assert store.damaged() == [name]
        assert list(store) == []
    store.path(name).write_text(whole)
    assert store.get(name)["result"] == {"accuracy": 1.0}


@given(key=st.dictionaries(st.text(max_size=8), plain, max_size=4), result=st.dictionaries(st.text(max_size=8), plain))
@settings(max_examples=30)
def test_what_is_put_is_what_is_got(tmp_path_factory, key, result):
    store = ResultsStore(tmp_path_factory.mktemp("store"))
    name = store.put(key, result, {})
    assert name == value_digest(key)
    assert store.get(name)["result"] == result


def test_what_was_being_written_is_tidied_when_it_is_old(tmp_path):
    store = ResultsStore(tmp_path)
    old, new = tmp_path / ".a.json.x.part", tmp_path / ".b.json.y.part"
    for part in (old, new):
        part.write_text("{")
    os.utime(old, (time.time() - 7200,) * 2)
    store.tidy()
    assert (old.exists(), new.exists()) == (False, True)
