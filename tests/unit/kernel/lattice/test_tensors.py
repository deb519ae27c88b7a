"""Torch tensors give the bits that NumPy gives."""

import subprocess
import sys

import numpy as np
import pytest

from dppl import (
    ZCDP,
    ApproxDP,
    LatticeOptions,
    MeanPrototypes,
    PublicData,
    PublicPrototypes,
    SoftmaxPrototypes,
)
from dppl.errors import InputError, ParameterError
from dppl.kernel.lattice import Lattice, TensorRows
from dppl.kernel.reading import as_labels, as_rows
from dppl.lab import FeatureCovariance, GlobalAdapt, LeastSquares, Newton
from dppl.methods import LinearProbe
from inside import tensors_of

torch = pytest.importorskip("torch")

CLASSES = ["a", "b", "c"]
SEEDED = {"random_state": 0, "unknown_labels": "ignore"}


def records(n=90, dim=12):
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, dim)) + 1.5 * rng.normal(size=(3, dim))[y]
    return X.astype(np.float32), np.array(CLASSES)[y]


ESTIMATORS = [
    LinearProbe(ZCDP(1.0), CLASSES, steps=8, **SEEDED),
    LinearProbe(
        ApproxDP(5.0, 1e-5),
        CLASSES,
        steps=5,
        sampling_rate=0.5,
        batch_size=60.0,
        **SEEDED,
    ),
    GlobalAdapt(ZCDP(1.0), CLASSES, steps=8, **SEEDED),
    FeatureCovariance(ZCDP(1.0), CLASSES, **SEEDED),
    Newton(ZCDP(1.0), CLASSES, **SEEDED),
    LeastSquares(ZCDP(1.0), CLASSES, **SEEDED),
    SoftmaxPrototypes(ZCDP(1.0), CLASSES, **SEEDED),
    MeanPrototypes(ZCDP(1.0), CLASSES, **SEEDED),
    MeanPrototypes(
        ZCDP(1.0), CLASSES, coinpress="dppl", adjacency="replace-one", **SEEDED
    ),
    PublicPrototypes(
        ZCDP(1.0),
        CLASSES,
        lattice=LatticeOptions(center="public", rotation="auto"),
        **SEEDED,
    ),
    PublicPrototypes(ZCDP(1.0), CLASSES, n_prototypes=3, **SEEDED),
    PublicPrototypes(ZCDP(1.0), CLASSES, clip=(0.0, 2.0), **SEEDED),
]


@pytest.mark.parametrize(
    "estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__
)
def test_a_model_of_tensors_is_that_of_arrays(estimator):
    """Every released number, predictions and accuracy. `TensorRows` streams a tensor of this machine, too."""
    X, y = records()
    public = np.random.default_rng(6).normal(size=(40, X.shape[1]))
    estimator.set_params(public=PublicData(public)).fit(X, y)
    expected = tensors_of(estimator)
    scores = estimator.decision_function(X)
    accuracy = estimator.score(X, y)
    rows = TensorRows(torch.tensor(X))
    streamed = PublicData(TensorRows(torch.tensor(public)))
    estimator.set_params(public=streamed).fit(rows, y)
    assert tensors_of(estimator) == expected
    assert (estimator.decision_function(rows) == scores).all()
    assert estimator.score(rows, y) == accuracy


@pytest.mark.parametrize("streamed_X", [False, True])
def test_rows_of_one_side_may_be_arrays(streamed_X):
    X, y = records()
    model = PublicPrototypes(ZCDP(1.0), CLASSES, **SEEDED)
    public = np.random.default_rng(6).normal(size=(40, 12))
    expected = model.set_params(public=PublicData(public)).fit(X, y).public_indices_
    inputs = (
        (TensorRows(torch.tensor(X)), public)
        if streamed_X
        else (X, TensorRows(torch.tensor(public)))
    )
    assert (
        model.set_params(public=PublicData(inputs[1])).fit(inputs[0], y).public_indices_
        == expected
    ).all()


def test_tensors_may_be_of_any_kind():
    X, y = records()
    model = LinearProbe(ZCDP(1.0), CLASSES, steps=3, **SEEDED)
    expected = model.fit(X, y).coef_
    tensor = torch.tensor(X)
    wide = torch.cat([tensor, tensor], 1)
    for same in (
        tensor,
        tensor.double(),
        tensor.clone().requires_grad_(),
        wide[:, :12],
        wide.T[:12].T,
    ):
        assert (model.fit(same, y).coef_ == expected).all()
        assert (model.predict(same) == model.predict(X)).all()
    for short in (torch.float16, torch.bfloat16):
        expected = model.fit(tensor.to(short).double().cpu().numpy(), y).coef_
        assert (model.fit(tensor.to(short), y).coef_ == expected).all()
    lattice_rows = Lattice(12).transform(X)
    expected = model.fit(lattice_rows, y).coef_
    assert (model.fit(torch.tensor(lattice_rows), y).coef_ == expected).all()
    codes = torch.arange(90) % 3
    by_number = MeanPrototypes(ZCDP(1.0), [0, 1, 2], **SEEDED).fit(tensor, codes)
    assert by_number.score(tensor, codes) == by_number.score(X, codes.cpu().numpy())


def test_tensors_of_this_machine_share_their_memory():
    tensor = torch.ones(3, 2, requires_grad=True)
    assert np.shares_memory(as_rows(tensor), tensor.detach().numpy())
    assert np.shares_memory(
        as_labels(tensor[:, 0], as_rows(tensor)), tensor.detach().numpy()
    )


def test_rows_are_read_in_blocks():
    rows = TensorRows(torch.arange(22.0).reshape(11, 2).bfloat16())
    assert rows.shape == (11, 2)
    assert [block.shape for block in rows.blocks(4)] == [(4, 2), (4, 2), (3, 2)]
    assert (np.concatenate(list(rows.blocks(4))) == np.arange(22).reshape(11, 2)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.ones(3, 2).to_sparse(), "must be dense"),
        (lambda: torch.ones(3, 2, device="meta"), "must be dense"),
        (lambda: torch.tensor(12345.0), "Expected 2D array"),
        (lambda: torch.full((3,), 12345.0), "Expected 2D array"),
        (lambda: torch.ones(3, 0), "at least one feature"),
        (lambda: torch.ones(3, 2, dtype=torch.complex64), "Complex data"),
    ],
)
def test_tensors_that_are_no_rows_are_refused(make, message):
    with pytest.raises(InputError, match=message) as caught:
        as_rows(make())
    assert "12345" not in str(caught.value)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_private_rows_are_no_public_rows(kind):
    tensor = torch.ones(3, 2, dtype=kind)
    for X, public in ((tensor, tensor), (tensor[1:], tensor[:2])):
        with pytest.raises(ParameterError, match="the private rows themselves"):
            PublicPrototypes(ZCDP(1.0), CLASSES, public=PublicData(public)).fit(
                X, CLASSES[: len(X)]
            )


def test_dppl_does_not_import_torch():
    code = f"import sys; sys.path[:] = {sys.path!r}; import dppl, dppl.lab; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
