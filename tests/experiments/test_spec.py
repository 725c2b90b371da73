"""Sweeps as data: lists are swept, and what cannot be computed is left out with a reason."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import unem
from helpers.experiment_data import plan, write_features
from unem.experiments.spec import BLOCK_DEFAULTS


def test_lists_are_swept_and_nothing_is_twice(folder):
    block = {"features": "toy__*", "methods": ["paddle", "unem-gaussian"], "shots": [1, 2], "training_seeds": [0, 1]}
    made = plan(folder, block, block)
    assert len(made.cells) == 2 * (2 + 2 * 2)  # training seeds only matter where something is learned
    assert len({c.name for c in made.cells}) == len(made.cells)
    assert {c.preparation.learning["epochs"] for c in made.cells if c.preparation} == {1}


def test_what_cannot_be_drawn_or_needs_text_is_left_out_with_the_reason(folder):
    made = plan(folder, {"features": "*", "methods": ["em-dirichlet", "prototypes", "coop"], "shots": [2, 100]})
    assert {(c.images.features, c.method) for c in made.cells} == {
        ("toy__one", "em-dirichlet"),
        ("toy__one", "prototypes"),
        ("toy__two", "prototypes"),
    }
    reasons = {(x.features, x.method, x.reason.split(":")[0]): x.reason for x in made.left_out}
    assert ("toy__two", "em-dirichlet", "'toy__two' has no text features, which em-dirichlet needs") in reasons
    assert "text encoder" in reasons["toy__one", "coop", "method 'coop'"]
    assert "100 support images" in reasons["toy__two", "prototypes", "shots"]


def test_tuning_and_learning_elsewhere(folder):
    tuned, *_ = plan(folder, {"features": "toy__one", "methods": "paddle", "tune": 5}).cells
    assert tuned.preparation.tasks == 5
    (plain_one,) = plan(folder, {"features": "toy__one", "methods": "prototypes", "tune": 5}).cells
    assert plain_one.preparation is None
    block = {"features": "toy__one", "methods": "unem-gaussian", "learned_at": {"effective_classes": 3}}
    (elsewhere,) = plan(folder, block).cells
    assert elsewhere.preparation.protocol.effective_classes == 3
    assert elsewhere.protocol.effective_classes == 2


def test_a_family_is_learned_at_the_shots_of_its_protocol(tmp_path):
    """Its settings hold shots and classes too; those that a block does not give come from the protocol."""
    write_features(tmp_path, "many", images=600)
    block = {"features": "many", "methods": "unem-plus", "shots": [1, 2], "learning": {}}
    one, two = (cell.preparation for cell in plan(tmp_path, block).cells)
    assert (one.protocol.shots, two.protocol.shots) == (1, 2)
    assert "shots" not in one.learning
    assert one.learning["queries"]
    lists = {"shots": [1, 5], "queries": [10], "tasks": [4], "batch": [2], "gate_tasks": [3]}
    (given_,) = plan(tmp_path, {**block, "shots": 2, "learning": lists}).cells
    assert given_.preparation.learning["shots"] == (1, 5)
    assert given_.preparation.key["learning"]["queries"] == [10]


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"features": "toy__one"}, "methods: a block needs some"),
        ({"methods": "paddle"}, "features: a block needs some"),
        ({"features": "nothing", "methods": "paddle"}, "'nothing' is not among the files"),
        ({"features": "toy__one", "methods": "padle"}, "no method is called 'padle'"),
        ({"features": "toy__one", "methods": "padl*"}, "none matches"),
        ({"features": "toy__one", "methods": "paddle", "shot": 5}, "'shot' is not known"),
        ({"features": "toy__one", "methods": "paddle", "shots": []}, "shots: got an empty list"),
        ({"features": "toy__one", "methods": "paddle", "shots": "five"}, "shots"),
        ({"features": "toy__one", "methods": "paddle", "tasks": 0}, "tasks"),
        ({"features": "toy__one", "methods": "paddle", "seed": -1}, "seed"),
        ({"features": "toy__one", "methods": "paddle", "settings": {"lambda": 1}}, "no setting 'lambda'"),
        ({"features": "toy__one", "methods": "unem-gaussian", "variants": "best"}, "variant"),
        ({"features": "toy__one", "methods": "unem-gaussian", "recipe": "best"}, "recipe"),
        ({"features": "toy__one", "methods": "unem-gaussian", "learning": {"epoch": 3}}, "learning"),
        ({"features": "toy__one", "methods": "paddle", "learned_at": {"shot": 3}}, "learned_at: 'shot'"),
        ({"features": "toy__one", "methods": "paddle", "settings": 3}, "settings: expected names and values"),
        ({"features": ["toy__one", 3], "methods": "paddle"}, "features: expected a name"),
    ],
)
def test_messages(folder, block, message):
    with pytest.raises(unem.InputError, match=message.replace("(", r"\(")):
        plan(folder, block)


values = st.recursive(
    st.booleans()
    | st.integers(-3, 30)
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.sampled_from(["all", "2-3"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["tasks", "shots", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(
    st.dictionaries(
        st.sampled_from([*BLOCK_DEFAULTS, "features", "methods", "nonsense"]) | st.text(max_size=5), values, max_size=4
    )
)
@settings(max_examples=150)
def test_any_block_is_a_plan_or_a_sentence(folder, block):
    try:
        made = plan(folder, {"features": "toy__one", "methods": ["prototypes", "unem-gaussian"], **block})
    except unem.InputError as error:
        assert str(error)
    else:
        assert all(cell.name for cell in made.cells)
