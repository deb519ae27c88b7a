"""Which encoder rows come from: estimators keep its name, refuse another one, and say what it cannot promise."""

from dataclasses import replace

import numpy as np
import pytest

import dppl
from dppl import ZCDP, ApproxDP, LatticeOptions, PublicData, lab
from dppl._utils.fingerprint import Fingerprint, same_encoder
from dppl.errors import InputError
from dppl.io import EmbeddingTable, read_table, write_table
from dppl.kernel.privacy.terms import Caveat, Term
from dppl.methods import LinearProbe

FIRST = Fingerprint(
    uri="hf:model",
    library="transformers",
    weights="00ff",
    preprocessing="resize 224",
    pooling="cls",
    dtype="float32",
    device="cpu",
    batch="8 rows",
    versions="torch 2",
    row_independent=True,
)
MATTERS = {
    "library": "timm",
    "weights": "ff00",
    "preprocessing": "none",
    "pooling": "mean",
    "dtype": "float16",
}
NO_MATTER = {
    "uri": "hf:copy",
    "device": "cuda",
    "batch": "1 rows",
    "versions": "torch 3",
    "row_independent": False,
}
RNG = np.random.default_rng(0)
X = RNG.standard_normal((30, 8)).astype(np.float32)
P = RNG.standard_normal((20, 8)).astype(np.float32)
Y = np.repeat([0, 1], 15)
NOT_COVERED = {"not_covered": "rounding"}


def table(rows, name=None, **metadata):
    return EmbeddingTable.of(
        rows, metadata=metadata | ({} if name is None else {"encoder": name})
    )


def mean(**options):
    return dppl.MeanPrototypes(ZCDP(1.0), [0, 1], **options)


def test_every_field_of_a_fingerprint_matters_or_not():
    assert set(MATTERS) | set(NO_MATTER) == set(Fingerprint.__slots__)


@pytest.mark.parametrize(
    ("changes", "same"),
    [(MATTERS, False), (NO_MATTER, True)],
    ids=["function", "circumstances"],
)
def test_the_same_encoder(changes, same):
    for name, value in changes.items():
        other = replace(FIRST, **{name: value})
        assert other != FIRST
        assert same_encoder(FIRST.text(), other.text()) == same
        assert same_encoder(other.text(), FIRST.text()) == same


def test_other_names_must_be_equal():
    assert same_encoder("minilm", "minilm")
    assert not same_encoder("minilm", "minilm ")
    assert not same_encoder(FIRST.text(), "minilm")
    assert not same_encoder("minilm", FIRST.text())
    assert same_encoder('{"uri": 1}', '{"uri": 1}')


OTHER = replace(FIRST, weights="ff00").text()
AGAIN = replace(FIRST, device="cuda", versions="torch 3").text()


@pytest.mark.parametrize("streams", [False, True])
def test_rows_of_another_encoder_are_refused(streams, tmp_path):
    def rows(array, name):
        if not streams:
            return table(array, name)
        write_table(tmp_path / "rows.parquet", array, metadata={"encoder": name})
        return read_table(tmp_path / "rows.parquet")

    model = (
        mean(lattice=LatticeOptions(center="public"))
        .set_params(public=PublicData(rows(P, AGAIN)))
        .fit(table(X, FIRST.text()), Y)
    )
    assert model.encoder_ == FIRST.text()
    for call in (model.predict, model.decision_function, lambda X: model.score(X, Y)):
        call(rows(X, AGAIN))
        call(X)  # an array names none
        with pytest.raises(InputError, match="another encoder") as caught:
            call(rows(X, OTHER))
        assert "ff00" not in str(caught.value)
    with pytest.raises(InputError, match=r"public.rows must be embedded by"):
        mean(lattice=LatticeOptions(center="public")).set_params(
            public=PublicData(rows(P, OTHER))
        ).fit(table(X, FIRST.text()), Y)
    model.save(tmp_path / "m.safetensors")
    with pytest.raises(InputError, match="another encoder"):
        dppl.load(tmp_path / "m.safetensors").predict(rows(X, OTHER))


def test_shards_of_two_encoders_are_no_table(tmp_path):
    for name, encoder in (("a", FIRST.text()), ("b", AGAIN)):
        write_table(tmp_path / f"{name}.parquet", X, metadata={"encoder": encoder})
    assert read_table(tmp_path).metadata == {
        "encoder": FIRST.text()
    }  # one function on two devices
    for metadata in ({"encoder": OTHER}, {}):
        write_table(tmp_path / "b.parquet", X, metadata=metadata)
        with pytest.raises(InputError, match="all shards must name the same encoder"):
            read_table(tmp_path)


def test_without_a_name_on_both_sides_nothing_is_compared():
    mean(lattice=LatticeOptions(center="public")).set_params(
        public=PublicData(table(P, FIRST.text()))
    ).fit(X, Y).predict(table(X, OTHER))
    mean(lattice=LatticeOptions(center="public")).set_params(public=PublicData(P)).fit(
        table(X, FIRST.text()), Y
    ).predict(X)


ESTIMATORS = {
    "mean": mean(),
    "published": mean(adjacency="replace-one"),
    "public": dppl.PublicPrototypes(dppl.PureDP(1.0), [0, 1]),
    "softmax": dppl.SoftmaxPrototypes(ZCDP(1.0), [0, 1]),
    "search": dppl.PrivateSearch(
        dppl.MeanPrototypes(ApproxDP(3.0, 1e-5), [0, 1]),
        {"lattice__pool": [1]},
        mean_runs=2,
        random_state=0,
    ),
    "probe": LinearProbe(ZCDP(1.0), [0, 1]),
} | {
    name: getattr(lab, name)(ZCDP(1.0), [0, 1])
    for name in ("GlobalAdapt", "LeastSquares", "FeatureCovariance", "Newton")
}


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_guarantee_lists_what_the_encoder_cannot_promise(name, tmp_path):
    estimator = ESTIMATORS[name]
    for rows, public, listed in [
        (table(X, **NOT_COVERED), P, True),
        (
            table(X),
            table(P, **NOT_COVERED),
            False,
        ),  # public rows may depend on one another
        (X, P, False),
    ]:
        getattr(estimator, "estimator", estimator).public = PublicData(public)
        estimator.fit(rows, Y)
        assert (Term(Caveat.ROWS_MIX) in estimator.guarantee_.not_covered) == listed
        estimator.save(tmp_path / "m.safetensors", overwrite=True)
        assert (
            Term(Caveat.ROWS_MIX)
            in dppl.load(tmp_path / "m.safetensors").guarantee_.not_covered
        ) == listed
