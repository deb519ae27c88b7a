"""docs/statement.schema.json accepts what `dppl show --json` prints of every model, and no damaged statement."""

import copy
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from jsonschema import Draft202012Validator

from command_line import invoke
from dppl import (
    ZCDP,
    ApproxDP,
    GaussianDP,
    LatticeOptions,
    Ledger,
    MeanPrototypes,
    PrivateSearch,
    PublicData,
    PublicPrototypes,
    PureDP,
    RenyiDP,
    SoftmaxPrototypes,
    lab,
)
from dppl.continual import ContinualPrototypes
from dppl.io import EmbeddingTable
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.terms import Norm, Unit
from dppl.methods import LinearProbe
from dppl.methods.model_file import describe

DOCS = Path(__file__).parents[3] / "docs"
SCHEMA = json.loads((DOCS / "statement.schema.json").read_text(encoding="utf-8"))
VALIDATOR = Draft202012Validator(SCHEMA)
RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 8))
P = RNG.normal(size=(20, 8))
Y = RNG.integers(0, 3, 30)
REPLACE = {"adjacency": "replace-one"}
MODELS = {
    "mean-gaussian": MeanPrototypes(GaussianDP(1.0), [0, 1, 2]),
    "mean-zcdp": MeanPrototypes(ZCDP(1.0), [0, 1, 2]),
    "mean-renyi": MeanPrototypes(RenyiDP(8.0, 4.0), [0, 1, 2]),
    "mean-approx": MeanPrototypes(
        ApproxDP(1.0, 1e-6),
        [0.0, 1.0, 2.0],
        lattice=LatticeOptions(center="public", pool=2, rotation=9),
    ),
    "mean-replace-one": MeanPrototypes(ZCDP(1.0), ["0", "1", "2", "é"], **REPLACE),
    "coinpress-zcdp": MeanPrototypes(ZCDP(1.0), [0, 1, 2], coinpress="dppl", **REPLACE),
    "coinpress-approx": MeanPrototypes(
        ApproxDP(1.0, 1e-6), [0, 1, 2], coinpress=(0.25, 0.75), **REPLACE
    ),
    "coinpress-gaussian": MeanPrototypes(
        GaussianDP(1.0), [0, 1, 2], coinpress="dppl", **REPLACE
    ),
    "public-gaussian": PublicPrototypes(GaussianDP(1.0), [0, 1, 2], n_prototypes=2),
    "public-pure": PublicPrototypes(PureDP(1.0), [0, 1, 2], random_state=0),
    "public-zcdp": PublicPrototypes(
        ZCDP(1.0), [0, 1, 2], n_prototypes=3, clip=(0.5, 1.5), unknown_labels="ignore"
    ),
    "public-approx": PublicPrototypes(ApproxDP(1.0, 1e-6), [0, 1, 2], **REPLACE),
    "softmax-zcdp": SoftmaxPrototypes(ZCDP(1.0), [0, 1, 2]),
    "softmax-approx": SoftmaxPrototypes(ApproxDP(1.0, 1e-6), [0, 1, 2]),
    "softmax-gaussian": SoftmaxPrototypes(GaussianDP(1.0), [0, 1, 2]),
    "hardly private": MeanPrototypes(GaussianDP(1000.0), [0, 1, 2]),
    "probe": LinearProbe(ZCDP(1.0), [0, 1, 2]),
    "sampled-probe": LinearProbe(
        ApproxDP(1.0, 1e-6), [0, 1, 2], sampling_rate=0.1, batch_size=3, steps=3
    ),
    "global-adapt": lab.GlobalAdapt(ZCDP(1.0), [0, 1, 2]),
    "least-squares": lab.LeastSquares(ApproxDP(1.0, 1e-6), [0, 1, 2], class_grams=True),
    "feature-covariance": lab.FeatureCovariance(ZCDP(1.0), [0, 1, 2]),
    "continual": ContinualPrototypes(ZCDP(1.0), [0, 1, 2]),
    "continual-overlapping": ContinualPrototypes(
        ApproxDP(1.0, 1e-6), [0, 1, 2], tasks="overlapping"
    ),
    "continual-toeplitz": ContinualPrototypes(
        GaussianDP(1.0), [0, 1, 2], noise="toeplitz", max_tasks=9
    ),
    "newton": lab.Newton(ZCDP(1.0), [0, 1, 2]),
    "search-mean": PrivateSearch(
        MeanPrototypes(ApproxDP(5.0, 1e-6), [0, 1, 2]),
        {"lattice__pool": [1, 2]},
        mean_runs=2,
    ),
    "search-public": PrivateSearch(
        PublicPrototypes(ApproxDP(5.0, 1e-6), [0, 1, 2]),
        {"n_prototypes": [1, 2]},
        mean_runs=2,
        scoring="balanced",
    ),
}


def statement(estimator, folder, **options):
    """Fit and save, and return what `dppl show --json` prints, as a reader gets it."""
    path = folder / "model.safetensors"
    given = estimator.get_params()  # that of a search is its estimator's
    public = {
        name: PublicData(P)
        for name in ("public", "estimator__public")
        if given.get(name, P) is None
    }
    classes = np.asarray(given.get("classes", [0]))
    labels = Y.astype(str) if classes.dtype.kind == "U" else Y
    estimator.set_params(**public).fit(X, labels, **options)
    estimator.save(path, overwrite=True)
    return shown(path)


def shown(path):
    content = describe(path)
    content["implied"] = Guarantee.from_dict(content["guarantee"]).implied()
    content["file_sha256"] = hashlib.sha256(path.read_bytes()).hexdigest()
    return json.loads(json.dumps(content))


@pytest.fixture(scope="module")
def statements(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {name: statement(estimator, folder) for name, estimator in MODELS.items()}


def test_the_schema_is_one():
    Draft202012Validator.check_schema(SCHEMA)


def test_the_schema_of_skip_reports_is_one():
    schema = json.loads((DOCS / "skipped.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator.check_schema(schema)


def test_the_schema_has_all_units_and_norms():
    guarantee = SCHEMA["$defs"]["guarantee"]["properties"]
    assert guarantee["unit"]["enum"] == [*Unit]
    assert SCHEMA["$defs"]["release"]["properties"]["norm"]["enum"] == [*Norm]


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_statements_of_all_models_are_valid(name, statements):
    VALIDATOR.validate(statements[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["softmax-gaussian", "hardly private", "global-adapt", "newton"]
)
def test_a_reader_can_compute_mu_from_the_releases(name, statements):
    content = statements[name]
    squared = sum(
        one.get("times", 1) * (one["sensitivity"] / one["parameters"]["noise_std"]) ** 2
        for one in content["guarantee"]["releases"]
    )
    assert squared**0.5 == pytest.approx(content["implied"]["mu"], rel=1e-9)


def test_what_the_command_prints_is_valid(tmp_path):
    MeanPrototypes(GaussianDP(1.0), [0, 1, 2]).fit(X, Y).save(
        tmp_path / "model.safetensors"
    )
    result = invoke(["show", str(tmp_path / "model.safetensors"), "--json"])
    content = json.loads(result.stdout)
    assert content == shown(tmp_path / "model.safetensors")
    VALIDATOR.validate(content)


def test_the_file_itself_holds_nothing_that_is_computed_anew(statements):
    for name in ("implied", "file_sha256"):
        VALIDATOR.validate(
            {
                field: value
                for field, value in statements["mean-zcdp"].items()
                if field != name
            }
        )


def test_a_statement_with_a_charge_is_valid(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", ZCDP(1.0))
    content = statement(MeanPrototypes(ZCDP(1.0), [0, 1, 2]), tmp_path, ledger=ledger)
    assert content["guarantee"]["charges"] == [{"dataset": "wards", "number": 1}]
    VALIDATOR.validate(content)


def test_ids_of_public_rows_are_valid_beside_public_rows_alone(statements):
    ids = {"public_ids": [["p1"], ["p2"], ["p3"]]}
    assert VALIDATOR.is_valid(statements["public-pure"] | ids)
    assert not VALIDATOR.is_valid(
        statements["public-pure"] | {"public_ids": [[1], [2], [3]]}
    )
    assert not VALIDATOR.is_valid(statements["mean-zcdp"] | ids)


def with_examples(folder, texts=None):
    rows = EmbeddingTable.of(P[:3], texts=texts)
    public = PublicData(P, rows, [0, 0, 2])
    return statement(SoftmaxPrototypes(ZCDP(1.0), [0, 1, 2], public=public), folder)


def test_examples_of_the_classes_are_valid(tmp_path):
    for texts, kept in ((None, None), ("abc", [["a", "b"], [], ["c"]])):
        content = with_examples(tmp_path, texts)
        VALIDATOR.validate(content)
        assert content["examples"] == {"counts": [2, 0, 1], "texts": kept}
    for wrong in (
        {"counts": [2]},
        {"counts": [-1], "texts": None},
        {"counts": [1], "texts": [[1]]},
    ):
        assert not VALIDATOR.is_valid(content | {"examples": wrong})


def objects(content, path=()):
    """Yield the path of every object in a statement."""
    if isinstance(content, dict):
        yield path
    for name, value in (
        content.items() if isinstance(content, dict) else enumerate(content)
    ):
        if isinstance(value, dict | list):
            yield from objects(value, (*path, name))


def at(content, path):
    for step in path:
        content = content[step]
    return content


@pytest.mark.parametrize(
    "name", ["public-zcdp", "mean-approx", "mean-gaussian", "search-mean"]
)
def test_every_field_must_be_there_and_no_other_may(name, statements):
    content = statements[name]
    closed = [
        path
        for path in objects(content)
        if path[-1:] not in [("parameters",), ("software",)]
    ]
    assert len(closed) >= 6
    for path in closed:
        unheard_of = copy.deepcopy(content)
        at(unheard_of, path)["unheard_of"] = 1
        assert not VALIDATOR.is_valid(unheard_of), path
        for field in at(content, path):
            missing = copy.deepcopy(content)
            del at(missing, path)[field]
            # Gaussian noise has no epsilon, and what is computed anew is not in the
            # file.
            optional = (*path, field) in [
                ("guarantee", "releases", 0, "cost", "epsilon"),
                ("implied",),
                ("file_sha256",),
            ]
            assert VALIDATOR.is_valid(missing) == optional, (path, field)


def described(node):
    """Yield every named field of a schema, without the alternatives that only narrow it."""
    for name, field in node.get("properties", {}).items():
        if field:  # false forbids a name
            yield (
                name,
                SCHEMA["$defs"][field["$ref"].rsplit("/", 1)[1]]
                if "$ref" in field
                else field,
            )
            yield from described(field)
    if isinstance(node.get("items"), dict):
        yield from described(node["items"])


def test_every_field_is_described():
    found = [
        field
        for node in (SCHEMA, *SCHEMA["$defs"].values())
        for field in described(node)
    ]
    assert len(found) > 30
    assert [name for name, field in found if not field.get("description")] == []


def release(content):
    return content["guarantee"]["releases"][0]


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("mean-zcdp", lambda d: d.update(format=1)),  # it states mu
        ("mean-zcdp", lambda d: d.update(format=3)),
        ("mean-zcdp", lambda d: d.update(estimator="os.system")),
        ("mean-zcdp", lambda d: d.update(classes=[])),
        ("mean-zcdp", lambda d: d.update(classes=[1, 1])),
        ("mean-zcdp", lambda d: d.update(classes=[None])),
        ("mean-zcdp", lambda d: d["parameters"].update(random_state=0)),
        ("mean-zcdp", lambda d: d["lattice"].update(n_features=0)),
        ("mean-zcdp", lambda d: d["guarantee"].update(notion="pure DP")),
        ("mean-zcdp", lambda d: d["guarantee"].update(notion="DP")),
        ("mean-zcdp", lambda d: d["guarantee"].update(budget={})),
        ("mean-zcdp", lambda d: d["guarantee"]["budget"].update(rho=0)),
        ("mean-zcdp", lambda d: d["guarantee"]["budget"].update(rho="1.0")),
        ("mean-zcdp", lambda d: d["guarantee"]["budget"].update(epsilon=1.0)),
        (
            "mean-zcdp",
            lambda d: d["guarantee"].update(notion="pure DP", budget={"epsilon": 1.0}),
        ),  # Gaussian noise
        ("mean-gaussian", lambda d: d["guarantee"]["budget"].update(mu=0)),
        ("mean-gaussian", lambda d: d["guarantee"]["budget"].update(mu=-1.0)),
        ("mean-gaussian", lambda d: d["guarantee"]["budget"].update(rho=0.5)),
        ("mean-gaussian", lambda d: d["guarantee"]["budget"].update(epsilon=1.0)),
        ("mean-gaussian", lambda d: d["guarantee"].update(budget={"rho": 0.5})),
        ("mean-gaussian", lambda d: d["guarantee"].update(notion="zCDP")),
        ("mean-gaussian", lambda d: release(d)["cost"].pop("mu")),
        ("mean-gaussian", lambda d: release(d)["cost"].pop("rho")),
        ("mean-gaussian", lambda d: release(d)["cost"].update(mu=0)),
        ("mean-gaussian", lambda d: d.update(format=1)),
        ("mean-zcdp", lambda d: d["guarantee"]["budget"].update(mu=1.0)),
        ("mean-zcdp", lambda d: release(d)["cost"].pop("mu")),
        ("mean-approx", lambda d: d["guarantee"]["budget"].update(mu=1.0)),
        ("public-pure", lambda d: d["guarantee"]["budget"].update(mu=1.0)),
        (
            "search-mean",
            lambda d: d["guarantee"].update(notion="Gaussian DP", budget={"mu": 1.0}),
        ),
        ("mean-gaussian", lambda d: d["implied"].update(mu=0)),
        ("mean-gaussian", lambda d: d["implied"].update(best_guess=1.01)),
        ("mean-gaussian", lambda d: d["implied"].update(best_guess=0.4)),
        ("mean-gaussian", lambda d: d["implied"].update(epsilon=4.887)),
        ("mean-gaussian", lambda d: d["implied"]["epsilon"][0].update(delta=0)),
        (
            "mean-gaussian",
            lambda d: d["implied"]["tests"][0].update(true_positive_rate=1.01),
        ),
        ("mean-gaussian", lambda d: d["implied"].update(tests=[])),
        ("mean-approx", lambda d: d["guarantee"]["budget"].pop("delta")),
        ("mean-approx", lambda d: d["guarantee"]["budget"].update(delta=1.0)),
        ("public-pure", lambda d: d["guarantee"]["budget"].update(delta=1e-6)),
        ("public-pure", lambda d: d["guarantee"]["budget"].update(epsilon=-1.0)),
        ("public-pure", lambda d: release(d)["cost"].pop("epsilon")),
        ("search-mean", lambda d: release(d)["cost"].update(mean_runs=1)),
        ("search-mean", lambda d: release(d)["cost"].update(rho=0.1)),
        (
            "search-mean",
            lambda d: d["guarantee"].update(notion="zCDP", budget={"rho": 1.0}),
        ),
        ("public-pure", lambda d: d["public_indices"][0].append(-1)),
        ("public-pure", lambda d: d["public_indices"].append([])),
        ("mean-zcdp", lambda d: d["guarantee"].update(adjacency="swap")),
        ("mean-zcdp", lambda d: d["guarantee"].update(releases=[])),
        ("mean-zcdp", lambda d: release(d)["cost"].pop("rho")),
        ("mean-zcdp", lambda d: release(d)["parameters"].update(noise_std="wide")),
        ("mean-zcdp", lambda d: release(d).update(sensitivity=0)),
        ("mean-zcdp", lambda d: d["guarantee"].update(secure_noise="yes")),
        ("mean-zcdp", lambda d: d["guarantee"]["software"].pop("dppl")),
        ("mean-zcdp", lambda d: d["guarantee"].update(not_covered="nothing")),
        ("mean-zcdp", lambda d: d["guarantee"].update(not_covered=["timing"])),
        ("mean-zcdp", lambda d: d["guarantee"].update(unit="one record")),
        ("mean-zcdp", lambda d: release(d)["statistic"].update(code="of_one_task")),
    ],
)
def test_damaged_statements_are_refused(name, damage, statements):
    damaged = copy.deepcopy(statements[name])
    damage(damaged)
    assert not VALIDATOR.is_valid(damaged)
