from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anytime.autoencoders.truncation import Full, Geometric, Mixture, Truncation, Uniform
from anytime.core.config import from_dict, override, read_json, to_dict
from anytime.core.errors import UserError, did_you_mean
from anytime.core.storage import write_json
from anytime.recipes.modify import with_scale
from anytime.recipes.presets import preset
from anytime.training.config import RunConfig
from anytime.training.stages import AutoencoderStage

FULL = Full()


@dataclass(frozen=True, kw_only=True)
class Leaf:
    count: int
    share: float = 0.5


@dataclass(frozen=True, kw_only=True)
class Tree:
    name: str
    leaf: Leaf
    distribution: Truncation = FULL
    sizes: tuple[int, ...] = ()
    pair: tuple[int, float] = (1, 2.0)
    mode: Literal["a", "b"] = "a"
    on: bool = False
    limit: int | None = None


laws = st.one_of(
    st.just(Full()),
    st.just(Uniform()),
    st.builds(Geometric, p=st.floats(1e-6, 0.999)),
    st.builds(Mixture, full=st.floats(0, 1)),
)
leaves = st.builds(Leaf, count=st.integers(-(2**63) + 1, 2**63 - 1), share=st.floats(allow_nan=False, allow_infinity=False))
trees = st.builds(
    Tree,
    name=st.text(),
    leaf=leaves,
    distribution=laws,
    sizes=st.lists(st.integers(-(2**63) + 1, 2**63 - 1)).map(tuple),
    pair=st.tuples(st.integers(-(2**63) + 1, 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)),
    mode=st.sampled_from(["a", "b"]),
    on=st.booleans(),
    limit=st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
)
TREE = Tree(name="x", leaf=Leaf(count=3))

RUNS = {
    f"{name}-{scale}": with_scale(preset(name, which, shape), scale)
    for name, which, shape in [
        ("mnist", "paper", (1, 28, 28)),
        ("cifar10", "paper", (3, 32, 32)),
        ("celeba", "paper", (3, 64, 64)),
        ("digits", "best", (1, 28, 28)),
        ("cifar10-original", "original", (3, 32, 32)),
    ]
    for scale in ("smoke", "short", "full")
}


@given(tree=trees)
def test_round_trip_through_json(tree: Tree) -> None:
    assert from_dict(Tree, json.loads(json.dumps(to_dict(tree)))) == tree


@pytest.mark.parametrize("name", RUNS)
def test_every_recipe_round_trips_through_a_file(name: str, tmp_path: Path) -> None:
    config = RUNS[name]
    write_json(tmp_path / "config.json", to_dict(config))
    assert from_dict(RunConfig, read_json(tmp_path / "config.json")) == config


def test_defaults_are_filled_in() -> None:
    assert from_dict(Tree, {"name": "x", "leaf": {"count": 3}}) == TREE


def test_whole_numbers_are_accepted_as_floats() -> None:
    leaf = from_dict(Leaf, {"count": 1, "share": 2})
    assert isinstance(leaf.share, float)
    assert json.dumps(to_dict(leaf)) == '{"count": 1, "share": 2.0}'


def message(data: Any) -> str:
    with pytest.raises(UserError) as error:
        from_dict(Tree, data, "config.json")
    text = str(error.value)
    assert "\n" not in text
    return text


def changed(**values: Any) -> dict[str, Any]:
    return to_dict(TREE) | values


def test_an_unknown_key_is_named_with_its_nearest() -> None:
    assert message(changed(nmae=1)).startswith("config.json has the unknown key 'nmae'; did you mean 'name'?")
    deep = message(changed(leaf={"count": 1, "shar": 0.1}))
    assert deep.startswith("config.json.leaf has the unknown key 'shar'; did you mean 'share'?")


def test_a_missing_key_is_named() -> None:
    assert message({"leaf": {"count": 3}}) == "config.json lacks the key 'name'"
    assert message(changed(leaf={})) == "config.json.leaf lacks the key 'count'"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"name": 3}, "config.json.name must be text, not 3"),
        ({"leaf": {"count": "3"}}, "config.json.leaf.count must be a whole number, not '3'"),
        ({"leaf": {"count": 3.0}}, "config.json.leaf.count must be a whole number, not 3.0"),
        ({"leaf": {"count": True}}, "config.json.leaf.count must be a whole number, not True"),
        ({"leaf": {"count": None}}, "config.json.leaf.count must be a whole number, not None"),
        ({"leaf": {"count": 1, "share": "0.5"}}, "config.json.leaf.share must be a number, not '0.5'"),
        ({"leaf": {"count": 1, "share": True}}, "config.json.leaf.share must be a number, not True"),
        ({"on": 1}, "config.json.on must be true or false, not 1"),
        ({"mode": "c"}, "config.json.mode must be 'a' or 'b', not 'c'"),
        ({"sizes": [1, "2"]}, "config.json.sizes[1] must be a whole number, not '2'"),
        ({"limit": "many"}, "config.json.limit must be a whole number, not 'many'"),
    ],
)
def test_a_wrong_type_is_named_with_its_key(values: dict[str, Any], expected: str) -> None:
    assert message(changed(**values)) == expected


@pytest.mark.parametrize(
    "values", [{"leaf": 3}, {"leaf": [1]}, {"pair": [1]}, {"pair": [1, 2, 3]}, {"sizes": 3}, {"distribution": "full"}]
)
def test_a_wrong_structure_is_named(values: dict[str, Any]) -> None:
    assert message(changed(**values)).startswith(f"config.json.{next(iter(values))} must be ")


@pytest.mark.parametrize("data", [[], 3, None, "text"])
def test_a_value_that_is_not_an_object_is_refused(data: Any) -> None:
    assert message(data) == f"config.json must be a JSON object, not {type(data).__name__}"


@pytest.mark.parametrize(
    "distribution",
    [Full(), Uniform(), Geometric(p=0.03), Mixture(full=0.25)],
    ids=lambda distribution: type(distribution).__name__,
)
def test_a_union_of_classes_is_written_with_its_kind(distribution: Truncation) -> None:
    data = to_dict(replace(TREE, distribution=distribution))["distribution"]
    assert data["kind"] == type(distribution).__name__.lower()
    assert from_dict(Tree, changed(distribution=data)).distribution == distribution


def test_only_a_union_is_written_with_a_kind() -> None:
    assert "kind" not in to_dict(TREE)["leaf"]


def test_an_unknown_kind_is_named_with_its_nearest() -> None:
    expected = (
        "config.json.distribution has the kind 'unifrom'; did you mean 'uniform'? Known: full, geometric, mixture, uniform"
    )
    assert message(changed(distribution={"kind": "unifrom"})) == expected
    assert message(changed(distribution={"p": 0.1})).startswith("config.json.distribution has the kind None; ")


def test_keys_of_one_kind_do_not_fit_another() -> None:
    assert message(changed(distribution={"kind": "uniform", "p": 0.1})).startswith(
        "config.json.distribution has the unknown key 'p'"
    )


def test_values_are_checked_by_their_owner() -> None:
    with pytest.raises(UserError, match="geometric needs a p between 0 and 1"):
        from_dict(Tree, changed(distribution={"kind": "geometric", "p": 3}))


# overrides


@pytest.fixture(scope="module")
def run() -> RunConfig:
    return preset("mnist", "paper", (1, 28, 28))


def test_override_reaches_nested_keys(run: RunConfig) -> None:
    made = override(
        run, ["seed=7", "ordered.epochs=3", "ordered.lr=0.01", "precision=bfloat16", "examples=null", "compile=true"]
    )
    expected = replace(run, seed=7, ordered=replace(run.ordered, epochs=3, lr=0.01), precision="bfloat16", compile=True)
    assert made == expected
    assert override(run, []) == run


def test_override_takes_whole_objects_and_text_with_equals_signs(run: RunConfig) -> None:
    made = override(run, ['ordered.truncation={"kind": "geometric", "p": 0.03}', "model.name=a=b"])
    assert made.ordered.truncation == Geometric(p=0.03)
    assert made.model.name == "a=b"


def test_the_last_assignment_wins(run: RunConfig) -> None:
    assert override(run, ["seed=1", "seed=2"]).seed == 2


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("seed", "`overrides` 'seed' must look like key=value, such as prior.epochs=20"),
        ("sead=1", "`overrides` names the unknown key 'sead'; did you mean 'seed'?"),
        ("ordered.epoch=1", "`overrides` names the unknown key 'epoch' in ordered; did you mean 'epochs'?"),
        ("orderd.epochs=1", "`overrides` names the unknown key 'orderd'; did you mean 'ordered'?"),
        ("model.prior.laiers=1", "`overrides` names the unknown key 'laiers' in model.prior; did you mean 'layers'?"),
        ("seed.low=1", "`overrides` names the unknown key 'low' in seed; "),
        ("=1", "`overrides` names the unknown key ''; "),
        ("ordered.epochs=ten", "`overrides` ordered.epochs must be a whole number, not 'ten'"),
        (
            "model.autoencoder.widths=32,64",
            "`overrides` model.autoencoder.widths must be whole numbers in brackets, such as [32,64], not '32,64'",
        ),
        ("precision=float64", "`overrides` precision must be 'float32' or 'bfloat16', not 'float64'"),
        ("seed=-1", "`seed` must be between 0 and 2^63 - 1, not -1"),
        ("model.prior.length=5", "the prior models 5 codes of 126, the autoencoder makes 16 of 126"),
    ],
)
def test_a_bad_override_is_one_sentence_that_names_the_key(run: RunConfig, assignment: str, expected: str) -> None:
    with pytest.raises(UserError) as error:
        override(run, [assignment])
    assert str(error.value).startswith(expected)
    assert "\n" not in str(error.value)


def test_override_does_not_change_its_argument(run: RunConfig) -> None:
    before = to_dict(run)
    override(run, ["ordered.epochs=3", "model.autoencoder.quantizer.commitment=0.5"])
    assert to_dict(run) == before


# files


@pytest.mark.parametrize("content", ["", "{", "[1]", '"text"', '{"seed": 1}', '{"format": 2}', "\0"])
def test_a_file_of_another_format_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(UserError, match=r"config\.json (cannot be read as JSON|has format)"):
        read_json(path)


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.json cannot be read as JSON"):
        read_json(tmp_path / "absent.json")
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"bytes\.json cannot be read as JSON"):
        read_json(tmp_path / "bytes.json")


def test_the_format_is_checked_and_removed(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"é": 1})
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == {"format": 1, "é": 1}
    assert read_json(tmp_path / "x.json") == {"é": 1}


def test_stages_and_configs_are_frozen() -> None:
    stage = AutoencoderStage(epochs=1, truncation=Full())
    with pytest.raises(AttributeError):
        stage.epochs = 2  # type: ignore[misc]


def test_without_a_near_match_all_known_names_are_listed() -> None:
    assert did_you_mean("zzz", ["b", "a"]) == "known: a, b"
