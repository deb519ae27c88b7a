"""MultiLabelPrototypes: what a user hands in and gets back, what is refused before a charge, and that it learns."""

import numpy as np
import pytest
from sklearn.metrics import f1_score
from sklearn.preprocessing import MultiLabelBinarizer

import dppl
from dppl import (
    ZCDP,
    ApproxDP,
    Classifier,
    GaussianDP,
    Ledger,
    MultiLabelPrototypes,
    PrivateSearch,
)
from dppl.errors import InputError, ParameterError, UnknownLabelError
from dppl.kernel import Measurement
from dppl.kernel.queries import ClassCounts, ClassSums, LabelCounts, LabelGradients
from dppl.methods import multilabel
from dppl.testing import check_private
from inside import tensors_of

CLASSES = ["rare", "many", "some", "never"]
RATES = [0.04, 0.6, 0.2, 0.0]
DIM = 24


def records(n=4000, seed=0):
    """Return rows that are sums of directions of their labels, and noise; and the labels as lists."""
    rng = np.random.default_rng(seed)
    sets = rng.random((n, len(CLASSES))) < RATES
    rows = sets @ np.eye(len(CLASSES), DIM) * 2 + 0.35 * rng.normal(size=(n, DIM)) + 0.3
    return rows, [[CLASSES[code] for code in np.flatnonzero(one)] for one in sets]


X, Y = records()
X_TEST, Y_TEST = records(seed=1)
TRUTH = MultiLabelBinarizer(classes=CLASSES).fit_transform(Y_TEST)


def make(budget=None, **options):
    return MultiLabelPrototypes(
        budget or ZCDP(200.0), CLASSES, **{"random_state": 0, **options}
    )


def test_rare_and_common_labels_are_predicted_as_often_as_they_are_there():
    model = make().fit(X, Y)
    found = model.predict(X_TEST)
    assert found.dtype == np.int64
    assert f1_score(TRUTH[:, :3], found[:, :3], average=None).min() > 0.85
    share = found.mean(axis=0)
    assert np.abs(share - TRUTH.mean(axis=0)).max() < 0.02
    # With the thresholds of the fit's own loss they are not.
    assert (np.abs(np.log(share[:3] / TRUTH.mean(axis=0)[:3])) < 0.2).all()
    # A label is predicted where its probability is above that at the threshold.
    assert ((model.predict_proba(X_TEST) > multilabel._AT_THRESHOLD) == found).all()
    assert ((model.decision_function(X_TEST) > 0) == found).all()
    assert (
        model.score(X_TEST, Y_TEST)
        == model.score(X_TEST, TRUTH)
        == (found == TRUTH).all(axis=1).mean()
    )


def test_thresholds_that_are_not_moved_miss(monkeypatch):
    monkeypatch.setattr(multilabel, "_STEP", 0.0)
    share = make().fit(X, Y).predict(X_TEST).mean(axis=0)
    assert np.abs(share - TRUTH.mean(axis=0)).max() > 0.02


def test_all_forms_of_labels_and_a_file_give_one_model(tmp_path):
    matrix = MultiLabelBinarizer(classes=CLASSES).fit_transform(Y)
    model = make(separator=";").fit(X, matrix)
    for y in (Y, [";".join(one) for one in Y], np.array(["; ".join(one) for one in Y])):
        assert make(separator=";").fit(X, y).to_bytes() == model.to_bytes()
    model.save(tmp_path / "m.safetensors")
    again = dppl.load(tmp_path / "m.safetensors")
    assert again.classes_.tolist() == CLASSES
    assert (again.separator, again.max_labels) == (";", 5)
    assert again.to_bytes() == model.to_bytes()
    assert again.predict_labels(X_TEST[:9]) == [
        [CLASSES[code] for code in np.flatnonzero(row)]
        for row in model.predict(X_TEST[:9])
    ]


def test_columns_are_in_the_order_in_which_classes_were_given():
    other = CLASSES[::-1]
    model = MultiLabelPrototypes(ZCDP(200.0), other, random_state=0).fit(X, Y)
    assert (
        f1_score(
            TRUTH[:, ::-1][:, 1:], model.predict(X_TEST)[:, 1:], average=None
        ).min()
        > 0.85
    )


def test_rows_that_cannot_be_used_have_no_labels():
    model = make().fit(np.vstack([X, np.full(DIM, np.nan)]), [*Y, ["no class", "many"]])
    rows = X_TEST[:3].copy()
    rows[1] = 0
    for ask in (
        model.predict,
        model.predict_proba,
        model.predict_labels,
        model.decision_function,
    ):
        with pytest.raises(InputError, match="at 1, counted from 0"):
            ask(rows)
    assert not model.predict(rows, unusable="empty")[1].any()
    assert model.predict_labels(rows, unusable="empty")[1] is None
    assert np.isnan(model.predict_proba(rows, unusable="empty")[1]).all()


def test_the_statement_names_every_release_and_persons_cost_as_much_as_a_record():
    model = make(GaussianDP(1.0)).fit(X, Y)
    assert [one.times for one in model.guarantee_.releases] == [1, 1, 1, 16, 4]
    assert model.guarantee_.releases[1].statistic["max_labels"] == 5
    for most, norm in ((1, 1), (3, 3), (5, len(CLASSES))):
        query = make(max_labels=most).plan(DIM).measurements["counts"].measurement.query
        assert query.squared_norm == norm * 2**32
    persons = make(GaussianDP(1.0)).fit(X, Y, groups=np.arange(len(X)) // 3)
    assert persons.guarantee_.releases[1:] == model.guarantee_.releases[1:]
    assert "person" in persons.guarantee_.unit
    assert f1_score(TRUTH[:, :3], persons.predict(X_TEST)[:, :3], average="macro") > 0.5


def test_it_learns_from_noisy_answers_alone():
    check_private(MultiLabelPrototypes(ApproxDP(1, 1e-6), CLASSES), X[:200], Y[:200])


class OneLabel(Classifier):
    """A method of one label that asks of label sets."""

    def measurements(self, setting):
        return {"counts": Measurement(LabelCounts(setting.n_classes, 2))}

    def learn(self, measure, setting):
        raise AssertionError("learns")


class Several(MultiLabelPrototypes):
    """A method of several labels that asks of one."""

    def measurements(self, setting):
        return {"counts": Measurement(ClassCounts(setting.n_classes))}


class Sampled(MultiLabelPrototypes):
    """One that takes no whole persons."""

    whole_persons = False

    def measurements(self, setting):
        return {
            "sums": Measurement(ClassSums(setting.lattice, 1)),
            "gradients": Measurement(self.gradients(setting)),
        }

    def gradients(self, setting):
        return LabelGradients(setting.lattice, setting.n_classes)


@pytest.mark.parametrize(
    ("model", "given", "what"),
    [
        (OneLabel(GaussianDP(1.0), CLASSES), {}, "for methods of several labels"),
        (Several(GaussianDP(1.0), CLASSES), {}, "must be of"),
        (
            Sampled(GaussianDP(1.0), CLASSES),
            {"groups": np.arange(len(X))},
            "groups is for methods",
        ),
        (make(max_labels=0), {}, "max_labels"),
        (make(separator=""), {}, "separator must be a text"),
        (make(separator="a"), {}, "without the separator"),
        (make(separator=3), {}, "separator must be a text"),
        (
            MultiLabelPrototypes(GaussianDP(1.0), [" a", "b"], separator=";"),
            {},
            "without spaces around",
        ),
        (make(), {"y": np.zeros((len(X), 3))}, "a column for each of the 4 classes"),
        (
            PrivateSearch(make(ApproxDP(1.0, 1e-6)), {"max_labels": [1, 2]}),
            {},
            "one label a record",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_charge(model, given, what, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "notes", ZCDP(1000.0))
    y = [one[0] if one else "never" for one in Y] if isinstance(model, OneLabel) else Y
    with pytest.raises((ParameterError, InputError), match=what):
        model.fit(X, given.pop("y", y), ledger=ledger, **given)
    assert not ledger.releases()


def test_an_unknown_label_stops_the_fit_or_is_dropped_and_its_record_stays():
    more = [[*one, "elsewhere"] for one in Y]
    with pytest.raises(UnknownLabelError, match="drop such labels"):
        make().fit(X, more)
    dropped = make(unknown_labels="ignore").fit(X, more)
    assert tensors_of(dropped)["coef"] == tensors_of(make().fit(X, Y))["coef"]


def test_one_label_is_a_list_of_labels():
    model = MultiLabelPrototypes(
        ZCDP(200.0), ["some"], unknown_labels="ignore", random_state=0
    ).fit(X, Y)
    assert model.predict(X_TEST).shape == (len(X_TEST), 1)
    assert f1_score(TRUTH[:, 2], model.predict(X_TEST)[:, 0]) > 0.8
