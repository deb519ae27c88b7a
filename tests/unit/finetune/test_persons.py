"""What all records of a person add to the training of a network."""

import numpy as np
import pytest

from dppl import ApproxDP, GaussianDP
from dppl.audit.verification import verify
from dppl.errors import ParameterError
from dppl.finetune import Recipe, SparseFinetuner, select_weights
from dppl.finetune import gradients as module_of_gradients
from dppl.finetune.gradients import RADIUS, NetworkGradients
from dppl.kernel.persons import WholePersons
from dppl.kernel.privacy.terms import Unit
from dppl.kernel.records import HeldRecords


@pytest.fixture
def gradients(net):
    selection = select_weights(net, sparsity=0.5)
    return NetworkGradients(net, selection, clip=0.5, shape=(1, 6, 6), block=1)


def total(gradients, X, y, numbers=None, taken=None):
    persons = None if numbers is None else WholePersons(y, numbers)
    rng = np.random.default_rng(1)
    return gradients.exact_sum(
        HeldRecords(X, y, persons),
        weights=0.3 * rng.normal(size=gradients.size),
        taken=taken,
    )


def square(values):
    return sum(int(value) ** 2 for value in values)


@pytest.mark.parametrize("n", [1, 2, 17, 3000])
def test_a_person_moves_the_sum_no_further_than_a_record(n, net, images):
    selection = select_weights(net, sparsity=0.5)
    block = 1 if n < 100 else 64
    gradients = NetworkGradients(net, selection, clip=0.5, shape=(1, 6, 6), block=block)
    X, y = images
    rng = np.random.default_rng(n)
    many = rng.integers(0, 40, n)
    for rows, codes in (
        (np.repeat(X[:1], n, 0), np.repeat(y[:1], n)),
        (X[many], rng.permutation(y[many])),
    ):
        more = (
            np.concatenate([X[:5], rows]),
            np.append(y[:5], codes),
            np.append([0, 0, 1, 2, 2], np.full(n, 3)),
        )
        far = square(
            total(gradients, *more)
            - total(gradients, X[:5], y[:5], np.array([0, 0, 1, 2, 2]))
        )
        assert 0.3 * RADIUS**2 <= far <= RADIUS**2


def test_persons_add_up_in_any_order_and_persons_of_one_record_are_records(
    gradients, images
):
    X, y = images
    numbers = np.random.default_rng(0).integers(0, 9, 40)
    whole = total(gradients, X, y, numbers)
    assert (
        whole
        == sum(
            total(gradients, X[own], y[own], numbers[own])
            for own in numbers == np.arange(9)[:, None]
        )
    ).all()
    order = np.random.default_rng(1).permutation(40)
    assert (whole == total(gradients, X[order], y[order], numbers[order])).all()
    assert (total(gradients, X, y, np.arange(40)) == total(gradients, X, y)).all()
    few = numbers < 4
    assert (
        total(gradients, X, y, numbers, taken=few)
        == total(gradients, X[few], y[few], numbers[few])
    ).all()


def test_a_person_who_is_not_shortened_is_noticed(net, images, monkeypatch):
    monkeypatch.setattr(
        module_of_gradients, "_shortened", lambda joint, own: joint.astype(np.int64)
    )
    with pytest.raises(AssertionError):
        test_a_person_moves_the_sum_no_further_than_a_record(17, net, images)


@pytest.mark.parametrize("rate", [1.0, 0.5])
def test_a_fit_promises_persons_and_goes_on_for_persons_alone(
    rate, net, images, tmp_path
):
    X, y = images
    ids = np.arange(40) // 4
    budget = GaussianDP(1.0) if rate == 1 else ApproxDP(1.0, 1e-5)
    model = SparseFinetuner(
        net,
        budget,
        [0, 1, 2],
        train=("head",),
        sampling_rate=rate,
        recipe=Recipe(epochs=2, block=1),
    )
    model.fit(X, y, groups=ids, checkpoint=tmp_path / "run")
    assert model.guarantee_.unit == Unit.PERSON
    model.save(tmp_path / "model.safetensors")
    assert verify(tmp_path / "model.safetensors").holds
    with pytest.raises(ParameterError, match="another unit of the guarantee"):
        model.fit(X, y, checkpoint=tmp_path / "run")


def test_a_fit_counts_equal_records_of_a_person_as_one(net, images):
    X, y = images

    def trained(times, groups):
        recipe = Recipe(epochs=2, batch_size=40, block=32)
        model = SparseFinetuner(
            net,
            GaussianDP(1.0),
            [0, 1, 2],
            train=("head",),
            recipe=recipe,
            random_state=0,
        )
        X_more = np.repeat(X, times, 0)
        y_more = np.repeat(y, times)
        (weight, _) = model.fit(X_more, y_more, groups=groups).module_[-1].parameters()
        return weight.detach().numpy()

    once = trained(1, None)
    assert np.allclose(trained(4, np.repeat(np.arange(40), 4)), once, atol=1e-4)
    assert not np.allclose(trained(4, None), once, atol=1e-2)
