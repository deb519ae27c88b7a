"""A start from a released model: what it gains, what a wrong one costs, who pays, and what is refused.

Privacy laws of fits with a start are in `tests/laws`, whose recipes include one.
"""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import clone

import dppl
from checksums import forged
from dppl import (
    ApproxDP,
    GaussianDP,
    Ledger,
    MeanPrototypes,
    MultiLabelPrototypes,
    PrivateSearch,
    PublicData,
    SoftmaxPrototypes,
    verify,
)
from dppl._utils import tensorfile
from dppl._utils.metadata import ENCODER
from dppl.errors import BudgetError, InputError, ModelFileError, ParameterError
from dppl.io import EmbeddingTable, load_sample
from dppl.kernel.privacy.terms import Caveat, PublicInput, Term
from dppl.methods import pooled as module
from dppl.methods.ascent import STEPS, Ascent
from dppl.methods.linear import Frame
from dppl.methods.model_file import KEY
from dppl.methods.pooled import Answered, pooled, trust_in
from dppl.methods.sizes import ClassSizes
from dppl.methods.softmax import CLIP

SAMPLE = load_sample()
PUBLIC = PublicData(SAMPLE.X_public)
HALF = len(SAMPLE.X) // 2
OLD = SAMPLE.X[:HALF], SAMPLE.y[:HALF]
NEW = SAMPLE.X[HALF:], SAMPLE.y[HALF:]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 6)) + 2 * np.eye(3, 6)[np.arange(60) % 3]
Y = np.array(list("abc"))[np.arange(60) % 3]


def fit(records=NEW, mu=1.0, seed=0, start=None, classes=SAMPLE.classes):
    model = SoftmaxPrototypes(
        GaussianDP(mu),
        classes,
        public=PUBLIC,
        start=start,
        random_state=seed,
    )
    return model.fit(*records)


def small(start=None, classes="abc", seed=None, **more):
    model = SoftmaxPrototypes(
        GaussianDP(0.5), list(classes), start=start, random_state=seed
    )
    return model.fit(X, Y, **more)


def accuracy(model):
    return model.score(SAMPLE.X_test, SAMPLE.y_test)


def chain(model):
    return [
        one for one in model.guarantee_.public_inputs if one.code is PublicInput.START
    ]


def together(model):
    (found,) = [
        one["mu"]
        for one in model.guarantee_.not_covered
        if one.code is Caveat.ALSO_IN_STARTS
    ]
    return found


# What it gains and costs


def test_a_right_start_gains_and_a_wrong_one_costs_little(monkeypatch):
    """Means of four seeds, of which each has its own noise.

    In simulations the gain was .06 to .08 with a standard error of .014 over 8 draws, and
    the loss .014 with one of .006 at mu = 0.25: a mean of four is below the bounds in less
    than 1 of 1,000.
    """
    names = np.random.default_rng(5).permutation(SAMPLE.classes)
    wrong = OLD[0], names[np.searchsorted(SAMPLE.classes, OLD[1])]

    def mean(records, mu, old_mu):
        return np.mean(
            [
                accuracy(
                    fit(mu=mu, seed=seed, start=records and fit(records, old_mu, seed))
                )
                for seed in range(4)
            ]
        )

    alone = mean(None, 0.25, None)
    assert mean(OLD, 0.25, 1.0) > alone + 0.03
    assert mean(wrong, 0.25, 1.0) > alone - 0.05
    alone = mean(None, 1.0, None)
    assert mean(wrong, 1.0, 1.0) > alone - 0.02
    monkeypatch.setattr(module, "trust_in", lambda coef, known, *_: known.astype(float))
    assert mean(wrong, 1.0, 4.0) < alone - 0.1


def answered(sizes, gradient, hits, noise_std=1.0):
    """Return answers after one gradient from zero."""
    dim = gradient.shape[1]
    alone = Ascent(sizes, np.full(dim, 1 / dim), noise_std)
    alone.move(gradient)
    both = np.array([hits, sizes.total - hits])
    return Answered(alone, CLIP, sizes.total, both, 1.0)


@pytest.mark.parametrize("n_right", [0, 3, 6])
def test_trust_goes_to_the_rows_that_the_gradient_bears_out(n_right):
    rows = np.eye(6, 12)
    sizes = ClassSizes.of(600.0, np.full(6, 100.0), 1e-6)
    moved = np.roll(np.arange(6), 1)
    moved[:n_right] = np.arange(n_right)
    if n_right == 3:
        moved[3:] = 4, 5, 3
    gradient = 0.5 * CLIP * 100 * rows
    answers = answered(sizes, gradient, 80.0 * n_right)
    found = trust_in(rows[moved], np.ones(6, bool), answers, 0.5)
    assert (found[:n_right] > 0.9).all()
    assert (found[n_right:] < 0.1).all()
    # Of classes that the model does not know there is nothing to trust.
    known = np.arange(6) > 0
    assert trust_in(rows, known, answers, 0.5)[0] == 0


def test_few_hits_are_of_few_right_rows_where_the_start_is_clear():
    """Gradients hardly tell which. Of 50 means of 8 draws all lay in .58 to .76, and in .86 to .93 if it is not clear."""
    rows = np.eye(10, 12)
    sizes = ClassSizes.of(320.0, np.full(10, 32.0), 1e-6)
    half = np.where(np.arange(10) < 5, np.arange(10), np.roll(np.arange(10), 1))

    def mean_trust(moved, hits, clear):
        found = []
        for seed in range(8):
            noise = 8 * np.random.default_rng(seed).normal(size=rows.shape)
            gradient = 0.25 * CLIP * 32 * rows + noise
            answers = replace(
                answered(sizes, gradient, hits, noise_std=8.0), hits_std=28.0
            )
            found.append(trust_in(rows[moved], np.ones(10, bool), answers, clear))
        return np.mean(found)

    assert mean_trust(half, 160.0, 1.0) < 0.8
    assert mean_trust(half, 160.0, 0.2) > 0.8
    assert mean_trust(np.arange(10), 300.0, 1.0) > 0.98


def test_a_small_quarter_does_not_pass_for_few_hits():
    """Misses tell how many records there are, of which the noisy number says little."""
    rows = np.eye(10, 12)
    sizes = ClassSizes.of(200.0, np.full(10, 20.0), 20.0)

    def trust(misses):
        answers = answered(sizes, 0 * rows, 0.0, noise_std=1e3)
        hits = np.array([36.0, misses])
        answers = replace(answers, hits=hits, hits_std=10.0)
        return trust_in(rows, np.ones(10, bool), answers, 0.8).mean()

    assert trust(4.0) > 0.9
    assert trust(164.0) < 0.5


def started(**changes):
    """Return what a released model of classes a, b and c leaves, changed."""
    estimator = SoftmaxPrototypes(
        GaussianDP(0.5), list("abc"), start=small(seed=0), random_state=0
    )
    read = dppl.methods.start.Start.of(estimator, np.array(list("abc")), 6, None)
    return replace(read, **changes)


def test_doubt_leaves_little_to_noise(monkeypatch):
    """Of a small quarter a start keeps what it was; where gradients are signal, doubt leaves them most."""
    monkeypatch.setattr(module, "trust_in", lambda *_: np.full(3, 0.85))
    sizes = ClassSizes.of(9.0, np.full(3, 3.0), 1e-6)
    start = started(sizes=np.full(3, 100.0), variance=np.full(3, float(STEPS)))
    frame = Frame.of(None, 6)
    gradient = RNG.normal(size=(3, 6))
    noise = pooled(start, frame, answered(sizes, gradient, 9.0, noise_std=30.0))
    np.testing.assert_allclose(noise.path, start.path, rtol=0.1)
    signal = pooled(start, frame, answered(sizes, gradient, 9.0, noise_std=0.01))
    assert (signal.sizes.sizes < 60).all()


def test_the_path_is_the_mean_of_both_by_known_precision(monkeypatch):
    """Where both are of equally many records with equal noise, each weighs a half; a noiseless one more."""
    monkeypatch.setattr(module, "trust_in", lambda *_: np.ones(3))
    sizes = ClassSizes.of(300.0, np.full(3, 100.0), 1e-6)
    gradient = RNG.normal(size=(3, 6))
    read = started(sizes=np.full(3, 100.0), variance=np.full(3, float(STEPS)))
    frame = Frame.of(None, 6)
    pool = pooled(read, frame, answered(sizes, gradient, 270.0))
    np.testing.assert_allclose(pool.path, read.path)  # half of 200 records over 100
    np.testing.assert_allclose(pool.weights, 1)
    np.testing.assert_allclose(pool.sizes.total, 200 * 3)
    precise = replace(read, variance=np.full(3, 1e-6))
    assert (pooled(precise, frame, answered(sizes, gradient, 270.0)).weights < 1).all()


def test_the_stated_variance_of_the_path_is_that_of_its_noise():
    """Sums of squares of 16,000 Gaussians are within 5 % in all but 1 of 10⁵ runs; without momentum it is a half off."""
    sizes = ClassSizes.of(40.0, np.full(4, 10.0), 1e-6)
    ascent = Ascent(sizes, np.full(4000, 1 / 4000), 3.0)
    for _ in range(STEPS):
        ascent.move(3.0 * RNG.normal(size=(4, 4000)))
    np.testing.assert_allclose(
        np.square(ascent.path).mean(axis=1).mean(),
        ascent.path_variance.mean(),
        rtol=0.05,
    )


# Classes


def test_classes_are_matched_by_name():
    old = SoftmaxPrototypes(GaussianDP(0.5), list("bcd"), random_state=0)
    old = old.fit(X[Y != "a"], Y[Y != "a"])
    new = small(old, "abce", seed=1)
    alone = small(None, "abce", seed=1)
    assert new.classes_.tolist() == list("abce")
    # A class that the old model lacks counts as the records of this fit, others as both.
    gained = new.path_sizes_ / alone.path_sizes_
    assert abs(gained[0] - 1) < 0.2
    assert (gained[1:3] > 1.2).all()


# Who pays


def test_the_chain_is_stated_and_squares_of_mu_add_up(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(9.0))
    paths = [tmp_path / f"{place}.safetensors" for place in range(3)]
    for place, path in enumerate(paths):
        start = paths[place - 1] if place else None
        small(start, ledger=ledger, partition=f"part {place}").save(path)
    models = [dppl.load(path) for path in paths]
    assert [len(chain(one)) for one in models] == [0, 1, 2]
    assert chain(models[2])[1] == chain(models[1])[0]
    assert models[2].guarantee_.mu <= 0.5
    assert together(models[1]) == pytest.approx(0.5 * np.sqrt(2))
    assert together(models[2]) == pytest.approx(0.5 * np.sqrt(3))
    assert together(models[2]) >= 0.5 * np.sqrt(3) - 1e-12
    assert f"mu = {0.867}" in str(models[2].guarantee_)
    # A start twice in a chain is one release.
    again = small(models[2], ledger=ledger)
    assert len(chain(again)) == 3
    for path in paths:
        found = verify(path, ledger=ledger)
        assert found.holds, str(found)
    assert ledger.releases()[2]["parameters"]["start"] == chain(models[2])[0]["sha256"]


def changed(path, change):
    """Change the statement of a file, and write it with a right checksum."""
    fields, tensors = tensorfile.read(path, KEY)
    fields = json.loads(json.dumps(fields))
    change(fields["guarantee"])
    path.write_bytes(tensorfile.to_bytes(KEY, fields, tensors))


def test_a_forged_chain_does_not_verify(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(9.0))
    first, second = tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    small(ledger=ledger).save(first)
    small(first, ledger=ledger).save(second)
    content = second.read_bytes()

    def start_of(statement):
        return next(one for one in statement["public_inputs"] if one["code"] == "start")

    def cheaper(statement):
        start_of(statement)["mu"] = 0.1

    changed(second, cheaper)  # the total contradicts it
    assert not verify(second).holds

    def hidden(statement):
        statement["public_inputs"].remove(start_of(statement))

    second.write_bytes(content)
    changed(second, hidden)  # hits are of something that the statement does not name
    assert not verify(second).holds

    def both(statement):
        cheaper(statement)
        total = next(
            one for one in statement["not_covered"] if one["code"] == "also_in_starts"
        )
        total["mu"] = dppl.kernel.privacy.rounding.root_above(
            dppl.kernel.privacy.rounding.Fraction(0.1) ** 2
            + dppl.kernel.privacy.rounding.Fraction(mu) ** 2
        )

    second.write_bytes(content)
    mu = dppl.load(second).guarantee_.mu
    changed(second, both)  # no file tells, and the ledger does
    assert verify(second).holds
    found = verify(second, ledger=ledger)
    assert any("start" in one.what for one in found.checks if not one.holds)


def test_a_person_pays_the_stated_sum_only_where_the_start_protects_persons():
    """Who has ten records in a start that protects records pays up to ten times its mu."""
    groups = np.arange(60) // 10
    of_records = small()
    of_persons = small(groups=groups)
    with pytest.raises(ParameterError, match="protect persons"):
        small(of_records, groups=groups)
    assert together(small(of_persons, groups=groups)) == pytest.approx(np.sqrt(0.5))
    # A record costs no more than the person whose it is.
    assert together(small(of_persons)) == pytest.approx(np.sqrt(0.5))


def test_a_search_adds_up_with_no_start(tmp_path):
    """It has no cost in Gaussian DP, and one of its runs costs less than it does."""
    ledger = Ledger(tmp_path / "l.db", "w", ApproxDP(9, 1e-6), accounting="renyi")
    estimator = SoftmaxPrototypes(ApproxDP(2, 1e-6), list("abc"))
    search = PrivateSearch(estimator, {"start": [None, small()]}, mean_runs=2)
    with pytest.raises(ParameterError, match="not for a search"):
        search.fit(X, Y, ledger=ledger)
    assert ledger.releases() == []
    search = PrivateSearch(estimator, {"start": [None]}, mean_runs=2).fit(X, Y)
    with pytest.raises(ParameterError, match="cost in Gaussian DP"):
        small(search.best_estimator_)


def test_a_start_of_several_labels(tmp_path):
    """It gained .10 to .45 of subset accuracy in six draws; the ledger and the file know it as of one label."""
    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(9.0))

    def several(records, mu, start=None, seed=None, **more):
        model = MultiLabelPrototypes(
            GaussianDP(mu),
            SAMPLE.classes,
            public=PUBLIC,
            start=start,
            random_state=seed,
        )
        return model.fit(records[0], [[one] for one in records[1].tolist()], **more)

    old, new = tmp_path / "1.safetensors", tmp_path / "2.safetensors"
    several(OLD, 1.0, ledger=ledger, partition="1").save(old)
    several(NEW, 0.25, old, ledger=ledger, partition="2").save(new)
    assert together(dppl.load(new)) == pytest.approx(np.hypot(1, 0.25))
    found = verify(new, ledger=ledger)
    assert found.holds, str(found)
    truth = [[one] for one in SAMPLE.y_test.tolist()]
    alone, gained = (
        several(NEW, 0.25, start, seed=0).score(SAMPLE.X_test, truth)
        for start in (None, several(OLD, 1.0, seed=0))
    )
    assert gained > alone + 0.05
    with pytest.raises(ParameterError, match="fitted MultiLabelPrototypes"):
        several(NEW, 0.25, fit())


def test_a_copy_of_an_estimator_has_a_fitted_start():
    start = small(seed=0)
    copied = clone(SoftmaxPrototypes(GaussianDP(0.5), list("abc"), start=start))
    assert copied.start.guarantee_ == start.guarantee_
    assert not hasattr(clone(start), "guarantee_")


# What the file keeps, and what is refused


def test_a_model_goes_through_its_file(tmp_path):
    model = small(small(seed=0), seed=1)
    path = tmp_path / "m.safetensors"
    model.save(path)
    assert dppl.load(path).to_bytes() == model.to_bytes()


def without_path(path, tmp_path):
    old = tmp_path / "old.safetensors"
    fields, tensors = tensorfile.read(path, KEY)
    kept = {name: one for name, one in tensors.items() if not name.startswith("path")}
    old.write_bytes(tensorfile.to_bytes(KEY, fields, kept))
    return old


def test_a_file_of_an_earlier_version_is_read_and_is_no_start(tmp_path):
    path = tmp_path / "m.safetensors"
    small().save(path)
    old = without_path(path, tmp_path)
    assert dppl.load(old).to_bytes() == old.read_bytes()
    with pytest.raises(ParameterError, match="earlier versions"):
        small(old)


@pytest.mark.parametrize("tensor", ["path", "path_variance", "path_sizes", "intercept"])
def test_a_damaged_start_is_refused_or_does_no_harm(tensor, tmp_path):
    """Nothing that a file may hold stops a fit after its charge, or leaves a model that cannot be read."""
    path = tmp_path / "m.safetensors"
    small().save(path)
    fields, tensors = tensorfile.read(path, KEY)
    for value in (np.inf, np.nan, 1e30) + (1e13,) * (tensor == "path"):
        forged(path, fields, tensors | {tensor: np.full_like(tensors[tensor], value)})
        with pytest.raises(ModelFileError):
            small(path)
    for value in (1e-45, 1e12):
        almost = np.full_like(tensors[tensor], value)
        forged(path, fields, tensors | {tensor: almost})
        small(path).save(tmp_path / "next.safetensors", overwrite=True)
        dppl.load(tmp_path / "next.safetensors")


def test_a_start_at_the_bounds_of_a_file_leaves_a_model_that_can_be_read(
    tmp_path, monkeypatch
):
    """With all the records that a file may claim, a right start left none in 26 of 27 fits, all of them charged."""
    path, after = tmp_path / "m.safetensors", tmp_path / "next.safetensors"
    model = SoftmaxPrototypes(GaussianDP(50), SAMPLE.classes).fit(*NEW)
    model.save(path)
    fields, tensors = tensorfile.read(path, KEY)
    longest = np.abs(tensors["path"]).max()
    for trust, mu, sizes, variance, factor in (
        (1.0, 1.0, 2.0**40, 1.0, 1.0),
        (1.0, 1e-3, 1.0, 1e-300, 2.0**39 / longest),
        (0.5, 1 / 150, 2.0**40, 1e-300, 1.0),
    ):
        trusted = np.full(10, trust)
        monkeypatch.setattr(module, "trust_in", lambda *_, trusted=trusted: trusted)
        changes = {
            "path": (tensors["path"] * factor).astype(np.float32),
            "path_sizes": np.full(10, sizes),
            "path_variance": np.full(10, variance),
        }
        forged(path, fields, tensors | changes)
        started = SoftmaxPrototypes(
            GaussianDP(mu), SAMPLE.classes, start=path, random_state=0
        )
        started.fit(*NEW).save(after, overwrite=True)
        assert dppl.load(after).to_bytes() == after.read_bytes()


def test_a_chain_of_a_thousand_is_refused_before_the_charge(tmp_path):
    """The file of the fit could not be read."""
    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(9.0))
    start = small()
    others = tuple(
        Term(PublicInput.START, sha256=f"{n:064}", mu=0.1) for n in range(997)
    )
    start.guarantee_ = replace(start.guarantee_, public_inputs=others)
    with pytest.raises(ModelFileError, match="too long"):
        small(start, ledger=ledger)
    assert ledger.releases() == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_nobody_waits_for_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert not tensorfile.holds(tmp_path / "pipe", KEY)


def table(encoder):
    return EmbeddingTable.of(X, Y, metadata={ENCODER: encoder})


def test_what_is_no_start_is_refused_before_the_charge(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", GaussianDP(9.0))

    def refused(start, match, error=ParameterError, X=X, classes="abc", **options):
        model = SoftmaxPrototypes(
            GaussianDP(0.5), list(classes), start=start, **options
        )
        with pytest.raises(error, match=match):
            model.fit(X, Y, ledger=ledger)

    refused(MeanPrototypes(GaussianDP(0.5), list("abc")).fit(X, Y), "SoftmaxProto")
    refused(SoftmaxPrototypes(GaussianDP(0.5), list("abc")), "fitted")
    refused(small(seed=3), "seed")
    refused(small(classes="abc"), "none of them", classes="xyz")
    refused(small(), "none of them", classes=[1, 2, 3])
    refused(small(), "features", X=X[:, :5])
    examples = PublicData(None, np.eye(3, 6), list("abc"))
    refused(small(), "instead of public examples", public=examples)
    alone = SoftmaxPrototypes(GaussianDP(0), list("abc"), public=examples).fit(X, Y)
    refused(alone, "examples alone")
    named = SoftmaxPrototypes(GaussianDP(0.5), list("abc")).fit(table("one"), Y)
    refused(named, "encoder", InputError, X=table("another"))
    refused(small(), "encoder", InputError, X=table("another"))
    with pytest.raises(BudgetError):
        SoftmaxPrototypes(GaussianDP(0), list("abc"), start=small()).fit(X, Y)
    assert ledger.releases() == []
