"""The figures, against scikit-learn and by hand."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, recall_score

from dppl import metrics
from dppl.errors import InputError, ParameterError

CLASSES = np.array(["a", "b", "c", "d", "e"])


def random_labels(seed):
    rng = np.random.default_rng(seed)
    truth = rng.choice([*CLASSES, "outside"], 200, p=[0.4, 0.25, 0.15, 0.1, 0.05, 0.05])
    predicted = np.where(rng.random(200) < 0.6, truth, rng.choice(CLASSES, 200))
    return truth, predicted


@pytest.mark.parametrize("seed", range(5))
def test_figures_agree_with_scikit_learn(seed):
    truth, predicted = random_labels(seed)
    recalls = recall_score(truth, predicted, labels=CLASSES, average=None)
    assert metrics.accuracy(truth, predicted) == accuracy_score(truth, predicted)
    np.testing.assert_allclose(
        metrics.class_accuracies(truth, predicted, CLASSES), recalls
    )
    assert metrics.balanced_accuracy(truth, predicted, CLASSES) == pytest.approx(
        recalls.mean()
    )
    smallest = np.argmin([np.count_nonzero(truth == name) for name in CLASSES])
    assert metrics.minority_accuracy(truth, predicted, CLASSES) == pytest.approx(
        recalls[smallest]
    )


def test_the_order_of_classes_is_kept():
    truth, predicted = random_labels(0)
    there = metrics.class_accuracies(truth, predicted, CLASSES)
    np.testing.assert_array_equal(
        metrics.class_accuracies(truth, predicted, CLASSES[::-1]), there[::-1]
    )
    assert (
        metrics.class_sizes(truth, CLASSES[::-1]).tolist()
        == metrics.class_sizes(truth, CLASSES)[::-1].tolist()
    )


@pytest.mark.parametrize(
    ("n_classes", "taken"), [(2, 1), (3, 1), (7, 1), (8, 2), (10, 2), (100, 25)]
)
def test_a_quarter_of_the_classes_is_the_minority(n_classes, taken):
    sizes = np.arange(n_classes, 0, -1)
    smallest = metrics.minority_classes(sizes)
    assert smallest.tolist() == list(range(n_classes - 1, n_classes - 1 - taken, -1))


def test_of_equal_sizes_the_first_class_is_taken():
    assert metrics.minority_classes([5, 1, 5, 1, 5, 1, 5, 5]).tolist() == [1, 3]


@pytest.mark.parametrize("sizes", [[], [4], [4, 4, 4]])
def test_equal_sizes_have_no_minority(sizes):
    assert metrics.minority_classes(sizes).tolist() == []


def test_the_share_can_be_another():
    assert metrics.minority_classes([3, 1, 2, 4], share=0.5).tolist() == [1, 2]
    assert metrics.minority_classes([3, 1, 2, 4], share=1).tolist() == [1, 2, 0, 3]


def test_the_minority_accuracy_weighs_classes_not_records():
    truth = np.repeat(list("abcdefgh"), (9, 9, 9, 9, 9, 9, 1, 3))
    predicted = truth.copy()
    predicted[-1] = "a"
    assert metrics.minority_accuracy(
        truth, predicted, list("abcdefgh")
    ) == pytest.approx((1 + 2 / 3) / 2)


def test_a_class_without_records_has_no_accuracy_and_does_not_count():
    truth = np.array([1, 1, 2])
    predicted = np.array([1, 3, 2])
    np.testing.assert_array_equal(
        metrics.class_accuracies(truth, predicted, [1, 2, 3]), [0.5, 1.0, np.nan]
    )
    assert metrics.balanced_accuracy(truth, predicted, [1, 2, 3]) == 0.75
    assert metrics.minority_accuracy(truth, predicted, [1, 2, 3]) == 1.0


def test_labels_outside_the_classes_leave_nothing():
    assert np.isnan(metrics.balanced_accuracy(["x"], ["a"], ["a", "b"]))
    assert metrics.minority_accuracy(["x"], ["a"], ["a", "b"]) is None


def test_the_calibration_error_weighs_classes_alike_and_bins_by_the_largest_probability():
    truth = np.array([0, 0, 0, 1])
    probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.4, 0.6]])
    # Records of class 0 weigh a sixth each, the one of class 1 a half.
    by_hand = 2 / 6 * abs(1 - 0.9) + 4 / 6 * abs(3 / 4 - 0.6)
    assert metrics.calibration_error(truth, probabilities, [0, 1]) == pytest.approx(
        by_hand
    )
    together = abs(5 / 6 - (2 / 6 * 0.9 + 4 / 6 * 0.6))
    assert metrics.calibration_error(
        truth, probabilities, [0, 1], n_bins=1
    ) == pytest.approx(together)


def test_labels_drawn_from_the_probabilities_are_calibrated_and_sharper_ones_are_not():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet(np.ones(3), 30_000)
    truth = np.array([rng.choice(3, p=row) for row in probabilities])
    sharper = probabilities**3 / (probabilities**3).sum(axis=1, keepdims=True)
    assert metrics.calibration_error(truth, probabilities, [0, 1, 2]) < 0.01
    assert metrics.calibration_error(truth, sharper, [0, 1, 2]) > 0.15


def test_bins_hold_their_upper_ends_and_a_label_that_is_no_class_counts_as_wrong():
    halves = [[0.5, 0.5], [1.0, 0.0]]
    assert metrics.calibration_error([1, 0], halves, [0, 1], n_bins=2) == pytest.approx(
        0.5 * 0.5
    )
    assert metrics.calibration_error([9, 9], halves, [0, 1], n_bins=2) == pytest.approx(
        0.75
    )
    with pytest.raises(ParameterError, match="n_bins"):
        metrics.calibration_error([1, 0], halves, [0, 1], n_bins=0)
    with pytest.raises(InputError, match="one length"):
        metrics.calibration_error([1], halves, [0, 1])


@pytest.mark.parametrize(
    ("truth", "predicted"), [([], []), (["a"], ["a", "b"]), ([["a"]], [["a"]])]
)
def test_labels_that_do_not_fit_together_are_refused(truth, predicted):
    with pytest.raises(InputError):
        metrics.accuracy(truth, predicted)


@pytest.mark.parametrize("share", [0, 1.5, -1, float("nan")])
def test_a_share_is_a_share(share):
    with pytest.raises(ParameterError, match="share"):
        metrics.minority_classes([1, 2], share=share)


def test_every_person_counts_once():
    right = metrics.person_accuracies(
        [1, 1, 1, 2, 2], [1, 1, 1, 1, 1], ["u", "u", "u", "v", "v"]
    )
    assert right.tolist() == [1.0, 0.0]
    assert metrics.accuracy([1, 1, 1, 2, 2], [1, 1, 1, 1, 1]) == 0.6
    assert metrics.person_accuracies([1, 1], [1, 2], [None, None]).tolist() == [
        1.0,
        0.0,
    ]
    with pytest.raises(InputError, match="number of rows") as caught:
        metrics.person_accuracies([1, 1], [1, 2], ["secret"])
    assert "secret" not in str(caught.value)
