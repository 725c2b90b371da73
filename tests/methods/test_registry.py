"""The registry: every method is a frozen dataclass whose fields are its settings, written once."""

from __future__ import annotations

import json
from dataclasses import FrozenInstanceError, dataclass, fields, is_dataclass

import pytest
import torch

import unem
from helpers.families import FAMILIES, some_family
from helpers.reference import random_task
from unem import InputError
from unem.learning import LayeredMethod
from unem.methods import create_for, create_method, grid_points, list_methods, method_for, method_info, register_method

NAMES = [info.name for info in list_methods()]
SCHEDULE = unem.Schedule((1.0, 3.0), (1.5, 1.1), 2.0)


class NoEncoder:
    """A text encoder in name only."""

    num_classes, num_features = 3, 5

    def __repr__(self):
        return "NoEncoder()"

    def start(self, length, seed):
        return torch.zeros(length, 2)

    def numbers_per_task(self, length):
        return 1

    def __call__(self, context):
        raise AssertionError("never asked")


def needed(name):
    """The settings without which a method cannot be made."""
    if name in FAMILIES:
        return {"schedule": some_family(method_info(name).law)[1]}
    if name == "coop":
        return {"text_encoder": NoEncoder()}
    return {"schedule": SCHEDULE} if method_info(name).learned else {}


@pytest.fixture
def a_registry_of_its_own(monkeypatch):
    monkeypatch.setattr("unem.methods._registry._registry", {info.name: info for info in list_methods()})


# -- what every method is --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_method_is_a_frozen_dataclass_with_a_docstring(name):
    info = method_info(name)
    assert is_dataclass(info.method)
    assert info.summary == info.method.__doc__.strip().partition("\n")[0]
    assert info.summary.endswith((".", ":"))
    assert info.reference
    method = create_method(name, **needed(name))
    assert type(method) is info.method
    assert (method.name, method.inputs) == (name, info.inputs)
    for setting in info.options:
        with pytest.raises(FrozenInstanceError):
            setattr(method, setting, None)


def test_each_name_has_a_class_of_its_own():
    assert len({info.method for info in list_methods()}) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_settings_survive_being_read_and_given_again(name):
    method = create_method(name, **needed(name))
    settings = {f.name: getattr(method, f.name) for f in fields(method)}
    assert list(settings) == list(method_info(name).options)
    again = create_method(name, **settings)
    assert again.describe() == method.describe()
    assert {f.name: getattr(again, f.name) for f in fields(again)} == settings


@pytest.mark.parametrize("name", NAMES)
def test_defaults_may_be_given_explicitly(name):
    defaults = method_info(name).options | needed(name)
    assert create_method(name, **defaults).describe() == create_method(name, **needed(name)).describe()


@pytest.mark.parametrize("name", NAMES)
def test_a_description_is_plain_and_tells_every_setting(name):
    description = create_method(name, **needed(name)).describe()
    assert json.loads(json.dumps(description, allow_nan=False)) == description
    assert set(description) >= set(method_info(name).options)


def test_a_tensor_is_described_by_its_digest():
    one, same, other = (
        create_method("simpleshot", base_mean=m) for m in (torch.ones(3), torch.ones(3), torch.zeros(3))
    )
    assert one.describe() == same.describe() != other.describe()
    assert json.dumps(one.describe())


@pytest.mark.parametrize("name", [info.name for info in list_methods() if info.grid])
def test_a_grid_holds_settings_of_the_method_around_its_default(name):
    info = method_info(name)
    assert set(info.grid) <= set(info.options)
    for setting, values in info.grid.items():
        assert len(set(values)) == len(values) > 1
        assert not info.learned
        method = create_method(name, **{setting: values[0]})
        assert getattr(method, setting) == values[0]
    assert len(list(grid_points(name))) == torch.tensor([len(v) for v in info.grid.values()]).prod()


@pytest.mark.filterwarnings("ignore:some classes are more concentrated:unem.errors.UnemWarning")
def test_what_needs_no_support_ignores_it():
    """Those that work from class texts alone say the same whatever the support is."""
    alone = [info for info in list_methods() if not info.needs_support]
    assert {info.name for info in alone} >= {"zero-shot", "otter", "stata", "zero-shot-unem-joint"}
    text = torch.nn.functional.normalize(torch.randn(4, 5, dtype=torch.float64), dim=-1)
    for info in alone:
        assert info.inputs != "features"
        task = random_task(similarities=info.inputs == "similarities")
        if info.inputs == "image+text":
            support, query = (torch.nn.functional.normalize(z, dim=-1) for z in (task.support, task.query))
            task = unem.Task(support, task.support_labels, query, text=text)
        other = task.with_features(task.support.flip(1), task.query)
        method = create_method(info.name, **needed(info.name))
        assert torch.equal(method.predict(task).probabilities, method.predict(other).probabilities), info.name


@pytest.mark.parametrize("name", [info.name for info in list_methods() if info.law is not None])
def test_a_law_belongs_to_a_method_with_layers(name):
    info, method = method_info(name), create_method(name, **needed(name))
    assert isinstance(method, LayeredMethod)
    assert method.law == info.law
    assert method.inputs == info.law.inputs


@pytest.mark.parametrize("name", [info.name for info in list_methods() if info.learned])
def test_the_registry_knows_what_a_schedule_is_for(name):
    info = method_info(name)
    schedule = some_family(info.law)[1] if name in FAMILIES else unem.Schedule(law=info.law.name)
    assert method_for(schedule).name == name
    assert create_method(name, schedule=schedule).schedule == schedule


# -- settings that are given -----------------------------------------------------------------------------------------


def test_a_whole_number_becomes_the_number_that_is_declared():
    whole, real = create_method("tip-adapter", sharpness=4), create_method("tip-adapter", sharpness=4.0)
    assert json.dumps(whole.describe()) == json.dumps(real.describe())
    assert json.dumps(create_method("em-dirichlet", class_balance=3).describe()["class_balance"]) == "3.0"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("paddle", {"iterations": 2.0}, "iterations: expected int, got 2.0"),
        ("paddle", {"iterations": True}, "iterations: expected int, got True"),
        ("paddle", {"class_balance": "1"}, "class_balance: expected float, got '1'"),
        ("paddle", {"channel_scaling": 1}, "channel_scaling: expected bool, got 1"),
        ("em-dirichlet", {"solver": "newton"}, r"solver: expected one of \('exact', 'mm'\), got 'newton'"),
        ("otter", {"prior": "uniform"}, "prior: expected one positive number per class, got 'uniform'"),
        ("unem-gaussian", {"schedule": 3}, "schedule: expected .*Schedule"),
        ("paddle", {"name": "mine"}, "has no setting 'name'; its settings are: iterations, class_balance"),
        ("tim-gd", {"marginal_alpha": 2.0}, "has no setting 'marginal_alpha'"),
    ],
)
def test_settings_have_the_declared_type(name, options, message):
    with pytest.raises(InputError, match=message):
        create_method(name, **options)


def test_a_misspelt_method_gets_a_suggestion():
    with pytest.raises(InputError, match=r"no method is called 'tip-adaptor'; perhaps tip-adapter"):
        create_method("tip-adaptor")


def test_names_by_pattern():
    assert [info.name for info in list_methods("tim-*,alpha-tim,!*-adm")] == ["alpha-tim", "tim-gd"]
    assert list_methods("nothing*") == []


def test_a_rule_is_told_the_number_of_effective_classes():
    protocol = unem.Protocol(effective_classes=3)
    assert create_for("em-dirichlet", protocol, 10).effective_classes == 3
    assert create_for("em-dirichlet", protocol, 10, effective_classes=7).effective_classes == 7
    assert create_for("paddle", protocol, 10) == create_method("paddle")


# -- one of your own -------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("a_registry_of_its_own")
def test_a_dataclass_is_all_it_takes():
    @register_method("guess", reference="mine", transductive=False, grid={"favourite": (0, 1)})
    @dataclass(frozen=True)
    class Guess:
        """The same class for every query.

        Whatever it is.
        """

        favourite: int = 0

        def predict(self, task):
            labels = torch.full((len(task), task.num_queries), self.favourite)
            return unem.Prediction(torch.nn.functional.one_hot(labels, task.num_classes).double())

    info = method_info("guess")
    assert (info.summary, info.options, info.inputs) == (
        "The same class for every query.",
        {"favourite": 0},
        "features",
    )
    assert list(grid_points("guess")) == [{"favourite": 0}, {"favourite": 1}]
    method = create_method("guess", favourite=2)
    assert (method.name, method.inputs) == ("guess", "features")
    assert (method.predict(random_task()).labels == 2).all()
    with pytest.raises(InputError, match="a method 'guess' is registered already"):
        register_method("guess", reference="again")(Guess)


@pytest.mark.usefixtures("a_registry_of_its_own")
def test_a_factory_is_no_method():
    with pytest.raises(InputError, match="method 'mine': expected a dataclass"):

        @register_method("mine", reference="mine")
        def mine():
            return None

    with pytest.raises(InputError, match="expected a dataclass"):

        @register_method("mine", reference="mine")
        class Plain:
            pass

    assert "mine" not in {info.name for info in list_methods()}
