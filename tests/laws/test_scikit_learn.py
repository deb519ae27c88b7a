"""Estimators follow scikit-learn: parameters, clones, pickles, tags, errors. Its own checks decide."""

import pickle

import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import assert_all_finite, column_or_1d

from dppl import ZCDP, GaussianDP, MeanPrototypes, PublicData, PureDP
from inside import takes
from laws.recipes import FIRST, ONE_LABEL, SHARED, each

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings(
        "ignore:Estimator .* does not inherit from:UserWarning"
    ),  # importing it takes seconds
]


class WithClasses:
    """The classes of y, as scikit-learn's checks pass no list."""

    def fit(self, X, y):
        if y is not None:
            labels = column_or_1d(y)
            assert_all_finite(labels, input_name="y")
            check_classification_targets(labels)
            self.classes = np.unique(labels)
        try:
            return super().fit(X, y)
        finally:
            self.classes = None


class WithPublicRows:
    """Public rows made up for the width of X, as scikit-learn's checks pass none."""

    def fit(self, X, y):
        shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
        if len(shape) == 2 and shape[1]:
            self.public = PublicData(
                np.random.default_rng(0).normal(size=(200, shape[1]))
            )
        try:
            return super().fit(X, y)
        finally:
            self.public = None


class WithExamples:
    """Examples made up for the width of X and the classes of y."""

    def fit(self, X, y):
        shape = X.shape if hasattr(X, "shape") else np.asarray(X).shape
        classes = np.unique(np.asarray(y))
        if len(shape) != 2 or not shape[1]:
            return super().fit(X, y)
        rows = 1 + np.random.default_rng(0).random((2 * len(classes), shape[1]))
        self.public = PublicData(examples=rows, example_classes=np.repeat(classes, 2))
        try:
            return super().fit(X, y)
        finally:
            self.public = None


def checked(kind):
    """Return an estimator with a generous budget, as the checks compare predictions with labels."""
    options = {
        name: value
        for name, value in kind.recipe.options.items()
        if name not in ("adjacency", "steps")
    }
    options |= (
        {"steps": 5 if kind.recipe.sampled else 10}
        if takes(kind.entry.load(), "steps")
        else {}
    )
    options |= (
        {"adjacency": kind.adjacency} if takes(kind.entry.load(), "adjacency") else {}
    )
    cls = kind.cls
    mixins = (
        (True, WithClasses),
        (kind.recipe.public, WithPublicRows),
        (kind.entry.name == "AdaMix", WithExamples),
    )
    for given, mixin in mixins:
        if given:
            name = f"{cls.__name__}{mixin.__name__}"
            cls = globals().setdefault(
                name, type(name, (mixin, cls), {"__module__": __name__})
            )
    budget = (
        kind.recipe.budget
        if kind.recipe.sampled
        else PureDP(100.0, allow_weak=True)
        if kind.entry.pure
        else ZCDP(1e4)
    )
    return cls(budget, random_state=0, **options)


def refused(estimator):
    """Name the checks that predict rows of NaN or zeros, which fits take and predictions refuse.

    And those that give `partial_fit` the class list; it stands in the constructor, and
    no label is one.
    """
    rows = ("check_estimators_pickle", "check_estimators_dtypes")
    found = dict.fromkeys(rows, "rows without a direction are refused in predictions")
    found["check_estimators_empty_data_messages"] = (
        "its text has the number of rows, which is private"
    )
    checks = (
        "check_fit_score_takes_y",
        "check_n_features_in_after_fitting",
        "check_estimators_partial_fit_n_features",
    )
    if hasattr(estimator, "partial_fit"):
        found |= dict.fromkeys(checks, "partial_fit needs a public class list")
    return found


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
@each([kind for kind in ONE_LABEL if kind.cls in {one.cls for one in SHARED}])
def test_scikit_learn_finds_a_well_behaved_classifier(kind):
    from sklearn.utils.estimator_checks import (
        check_estimator,
    )  # here, because it takes seconds to import

    estimator = checked(kind)
    expected = refused(estimator)
    done = check_estimator(
        estimator, expected_failed_checks=expected, on_skip=None, on_fail="raise"
    )
    assert len(done) > 50
    passed = {one["check_name"] for one in done if one["status"] == "passed"}
    assert not passed & expected.keys()  # or they need not be expected to fail


def check_parameters(kind):
    estimator = kind.make()
    X, y = kind.records()
    model = kind.fit(X, y)
    for again in (
        clone(estimator),
        clone(model),
        pickle.loads(pickle.dumps(estimator)),
    ):
        assert repr(again.get_params()) == repr(estimator.get_params())
        assert vars(again).keys() == vars(estimator).keys()
        assert again.fit(X, y).to_bytes() == model.to_bytes()
    assert pickle.loads(pickle.dumps(model)).to_bytes() == model.to_bytes()
    assert repr(model.get_params()) == repr(estimator.get_params())


@each(FIRST)
def test_parameters_come_back_from_clones_and_pickles(kind):
    check_parameters(kind)


@each(FIRST)
def test_a_fit_that_changes_a_parameter_is_noticed(kind, monkeypatch):
    whole = kind.cls.fit
    monkeypatch.setattr(
        kind.cls,
        "fit",
        lambda self, *given: whole(self.set_params(unknown_labels="ignore"), *given),
    )
    with pytest.raises(AssertionError):
        check_parameters(kind)


def test_a_notebook_shows_a_diagram_where_scikit_learn_would():
    model = MeanPrototypes(GaussianDP(1), ["a", "b"])
    for display, shown in (("diagram", str), ("text", type(None))):
        with config_context(display=display):
            assert type(model._repr_html_()) is shown
