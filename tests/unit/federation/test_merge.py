"""Released models become one, by what they hold alone."""

import numpy as np
import pytest

import dppl
from dppl import (
    ApproxDP,
    GaussianDP,
    Ledger,
    MeanPrototypes,
    PrivateSearch,
    PublicData,
    PublicPrototypes,
    SoftmaxPrototypes,
)
from dppl.errors import ParameterError
from dppl.federation import Federation, InProcess, merge
from dppl.io import EmbeddingTable
from dppl.kernel.privacy.terms import Caveat
from federated import CLASSES, parties, tables


def released(kind, budget=2.0, **options):
    """Return the models of three institutions, whose noise is small."""
    return {
        name: kind(GaussianDP(budget), CLASSES, **options).fit(X, y)
        for name, (X, y, _) in tables(n=300).items()
    }


def test_merged_sums_are_the_sums_that_institutions_answer_together(tmp_path):
    data = tables()
    alone = {
        name: MeanPrototypes(GaussianDP(1), CLASSES).fit(*rows[:2])
        for name, rows in data.items()
    }
    merged = merge(alone)
    assert np.allclose(
        merged.prototypes_, sum(one.prototypes_ for one in alone.values()), rtol=1e-12
    )
    with parties(tmp_path) as opened:
        federated = MeanPrototypes(GaussianDP(1), CLASSES, unknown_labels="ignore").fit(
            Federation(InProcess(opened))
        )
    assert merged.guarantee_.releases == federated.guarantee_.releases
    assert merged.guarantee_.parties == federated.guarantee_.parties


@pytest.mark.parametrize("kind", [MeanPrototypes, SoftmaxPrototypes])
def test_a_merged_model_is_saved_verified_and_states_the_dearest(kind, tmp_path):
    models = released(kind)
    models["west"] = kind(GaussianDP(0.5), CLASSES).fit(*tables(n=300)["west"][:2])
    merged = merge(models)
    assert merged.guarantee_.mu == models["north"].guarantee_.mu
    assert merged.guarantee_.parties == ("north", "south", "west")
    assert "a person with records at several institutions" in str(merged.guarantee_)
    merged.save(tmp_path / "merged.safetensors")
    assert dppl.verify(tmp_path / "merged.safetensors").holds
    paths = {}
    for name, one in models.items():
        one.save(paths.setdefault(name, tmp_path / f"{name}.safetensors"))
    assert merge(paths).to_bytes() == merged.to_bytes()
    X, y, _ = tables(n=300)["west"]
    assert merged.score(X, y) > 0.8


def test_each_class_comes_from_whoever_has_it():
    """Of softmax prototypes a class that one institution alone has is as that one knows it."""
    data = tables(("north", "south"), n=600)
    X, y, _ = data["north"]
    without = X[y != "c"], y[y != "c"]
    models = {
        "north": SoftmaxPrototypes(GaussianDP(4), CLASSES, random_state=1).fit(
            *without
        ),
        "south": SoftmaxPrototypes(GaussianDP(4), CLASSES, random_state=2).fit(
            *data["south"][:2]
        ),
    }
    merged = merge(models)
    shares = np.stack([one.shares_ for one in models.values()])
    assert shares[0, 2] < 0.02
    expected = sum(
        w[:, None] * one.coef_
        for w, one in zip(shares / shares.sum(axis=0), models.values(), strict=True)
    )
    assert np.allclose(merged.coef_, expected, rtol=1e-12)
    seen = y == "c"
    assert (
        merged.score(X[seen], y[seen]) > models["north"].score(X[seen], y[seen]) + 0.3
    )


def test_sums_about_other_centres_are_not_added():
    X, y, _ = tables()["west"]
    maps = {
        name: dppl.LatticeOptions(center=np.full(X.shape[1], at))
        for name, at in (("north", 0.1), ("south", -0.1))
    }
    models = {
        name: MeanPrototypes(GaussianDP(1), CLASSES, lattice=one).fit(X, y)
        for name, one in maps.items()
    }
    with pytest.raises(ParameterError, match="agree in width or map"):
        merge(models)


def test_models_of_one_data_set_are_not_merged_unless_the_names_alone_are_one(tmp_path):
    X, y, _ = tables()["west"]

    def paid(book, data_set):
        ledger = Ledger(tmp_path / book, data_set, GaussianDP(9))
        return MeanPrototypes(GaussianDP(1), CLASSES).fit(X, y, ledger=ledger)

    one = paid("one.db", "wards")
    again = paid("one.db", "wards")
    other = paid("other.db", "west wards")
    for models in ({"a": one, "b": again}, {"a": one, "c": other, "b": again}):
        with pytest.raises(
            ParameterError, match="a and b were charged to data sets called wards"
        ):
            merge(models)
        assert merge(models, distinct=True).guarantee_.parties == tuple(models)
    assert "squares of mu add up, to at most mu = 1.42" in str(
        merge({"a": one, "c": other}).guarantee_
    )
    with pytest.raises(ParameterError, match="two are one"):
        merge({"a": one, "b": one}, distinct=True)


def test_models_that_do_not_go_together_are_refused():
    north, south = (released(SoftmaxPrototypes)[name] for name in ("north", "south"))
    X, y, ids = tables()["west"]
    public = PublicData(X.copy())
    refused = [
        ({"north": north}, "two models or more"),
        (
            {"north": north, "m": MeanPrototypes(GaussianDP(1), CLASSES).fit(X, y)},
            "agree in method",
        ),
        (
            {
                "north": north,
                "m": SoftmaxPrototypes(GaussianDP(1), [*CLASSES, "d"]).fit(X, y),
            },
            "agree in classes",
        ),
        (
            {
                "north": north,
                "m": SoftmaxPrototypes(GaussianDP(1), CLASSES).fit(X, y, groups=ids),
            },
            "whom they protect",
        ),
        (
            {"north": north, "both": merge({"north": north, "south": south})},
            "merge models of one each",
        ),
        (
            {
                n: PublicPrototypes(GaussianDP(1), CLASSES, public=public).fit(X, y)
                for n in "ab"
            },
            "noisy sums",
        ),
        (
            {
                n: MeanPrototypes(GaussianDP(1), CLASSES, adjacency="replace-one").fit(
                    X, y
                )
                for n in "ab"
            },
            "noisy sums",
        ),
    ]
    for models, reason in refused:
        with pytest.raises(ParameterError, match=reason):
            merge(models)


def test_models_that_started_state_one_sum_for_all_starts(tmp_path):
    """Each has its own, and one in all data pays more than any says."""
    earlier = released(SoftmaxPrototypes, 0.5)
    models = {
        name: SoftmaxPrototypes(GaussianDP(1), CLASSES, start=earlier[name]).fit(X, y)
        for name, (X, y, _) in tables(n=300).items()
    }
    merged = merge(models)
    (together,) = (
        one["mu"]
        for one in merged.guarantee_.not_covered
        if one.code is Caveat.ALSO_IN_STARTS
    )
    assert together == pytest.approx(np.sqrt(3 * 0.25 + 3))
    merged.save(tmp_path / "merged.safetensors")
    assert dppl.verify(tmp_path / "merged.safetensors").holds
    with pytest.raises(ParameterError, match="agree in what they released"):
        merge({"north": models["north"], "south": earlier["south"]})


def test_no_cost_without_a_mu_hides_another():
    """A search has no mu: whoever else spent more must not be merged under its statement."""
    X, y, _ = tables(n=300)["west"]

    def searched(epsilon):
        estimator = MeanPrototypes(ApproxDP(epsilon, 1e-6), CLASSES)
        return (
            PrivateSearch(estimator, {"lattice__pool": [1]}, mean_runs=2)
            .fit(X, y)
            .best_estimator_
        )

    small = searched(1)
    again = searched(1)
    large = searched(8)
    plain = MeanPrototypes(
        GaussianDP(6), CLASSES, lattice=dppl.LatticeOptions(pool=1)
    ).fit(X, y)
    for models in ((small, large), (large, small), (small, plain), (plain, small)):
        with pytest.raises(ParameterError, match="agree in cost, which has no mu"):
            merge(dict(zip("ab", models, strict=True)))
    assert merge({"a": small, "b": again}).guarantee_.epsilon(
        1e-6
    ) == small.guarantee_.epsilon(1e-6)


def test_what_one_statement_does_not_cover_the_merged_one_does_not():
    X, y, _ = tables(n=300)["west"]
    mixed = EmbeddingTable.of(X, metadata={"not_covered": "rounding"})
    dear, cheap = (
        MeanPrototypes(GaussianDP(mu), CLASSES).fit(rows, y)
        for mu, rows in ((2, X), (1, mixed))
    )
    (rounding,) = set(cheap.guarantee_.not_covered) - set(dear.guarantee_.not_covered)
    assert rounding in merge({"a": dear, "b": cheap}).guarantee_.not_covered
