"""Torch tensors give the bits that NumPy gives, wherever they are. Devices that this machine lacks are left out."""

import subprocess
import sys

import numpy as np
import pytest

from dppl import ZCDP, ApproxDP, MeanPrototypes, PublicData, PublicPrototypes, SoftmaxPrototypes
from dppl.errors import InputError, ParameterError
from dppl.kernel import selection as public_module
from dppl.kernel.lattice import Lattice, SoftmaxGradient, TensorRows, device, gradient_blocks, residuals, tensors
from dppl.kernel.reading import as_labels, as_rows
from dppl.lab import FeatureCovariance, GlobalAdapt, LeastSquares, Newton
from dppl.prototypes import LinearProbe

torch = pytest.importorskip("torch")

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
CLASSES = ["a", "b", "c"]
SEEDED = {"random_state": 0, "unknown_labels": "ignore"}


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Take this processor for a device that computes, where `TensorRows` holds its tensors."""
    monkeypatch.setattr(tensors, "_LEFT_TO_NUMPY", ("mps",))


def problem(n, dim, n_classes):
    rng = np.random.default_rng(n_classes)
    lattice = Lattice(dim)
    rows, weights = lattice.transform(rng.normal(size=(n, dim))), 3 * rng.normal(size=(n_classes, dim))
    return lattice, rows, rng.integers(-1, n_classes, n), weights, rng.normal(size=n_classes)


def check_sums_are_equal(device, n=333, dim=100, n_classes=16, bias=37, size=50):
    lattice, rows, codes, weights, offsets = problem(n, dim, n_classes)
    gradient = SoftmaxGradient(lattice, bias)
    options = {"clip": 0.8, "threshold": 0.9}
    exact, longer = gradient.sum_and_count([rows], codes, weights, offsets, **options)
    blocks = torch.tensor(rows, device=device).split(size)
    total, count = gradient.sum_and_count(blocks, codes, weights, offsets, **options)
    assert isinstance(total, np.ndarray)
    assert total.dtype == exact.dtype
    assert (total == exact).all()
    assert count == longer
    of_records = np.arange(n) * 3000
    assert (
        gradient.shortfalls(blocks, codes, weights, of_records)
        == gradient.shortfalls([rows], codes, weights, of_records)
    ).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n_classes", [1, 2, 3, 16, 77])
@pytest.mark.parametrize(("n", "bias", "size"), [(0, 1, 5), (1, 0, 1), (333, 37, 50), (333, 0, 333)])
def test_sums_are_those_of_numpy(device, n_classes, n, bias, size):
    check_sums_are_equal(device, n, 100, n_classes, bias, size)


@pytest.mark.parametrize("device", DEVICES)
def test_settings_that_round_products_of_float32_change_nothing(device):
    torch.set_float32_matmul_precision("medium")
    try:
        with torch.autocast(device, torch.bfloat16):
            check_sums_are_equal(device)
    finally:
        torch.set_float32_matmul_precision("highest")


def rounded_weights(layer, rows):
    """Round factors to the 11 bits of TF32."""
    mantissas, exponents = np.frexp(layer.weights)
    layer.weights = np.ldexp(np.rint(mantissas * 2**11) / 2**11, exponents).astype(np.float32)
    return rows


def test_the_equality_notices_rounded_factors(monkeypatch):
    original = residuals._IntegerLayer.logits

    def logits(self, rows):
        return original(self, rows if isinstance(rows, np.ndarray) else rounded_weights(self, rows))

    monkeypatch.setattr(residuals._IntegerLayer, "logits", logits)
    with pytest.raises(AssertionError):
        check_sums_are_equal("cpu")


def test_the_equality_notices_products_that_a_setting_rounds(monkeypatch):
    def logits(self, rows):
        xp = tensors.namespace(rows)
        products = xp.asarray(tensors.beside(self.weights, rows) @ xp.asarray(rows, dtype=xp.float32).T)
        products = xp.asarray(products, dtype=xp.float32)
        products *= tensors.beside(self.scales, rows)
        products += tensors.beside(self.offsets, rows)
        return products

    monkeypatch.setattr(residuals._IntegerLayer, "logits", logits)
    check_sums_are_equal("cpu")
    with pytest.raises(AssertionError):
        test_settings_that_round_products_of_float32_change_nothing("cpu")


def test_the_equality_notices_a_division_in_two_operations(monkeypatch):
    """As torch does it for a number divided by a tensor."""
    original = torch.full_like
    monkeypatch.setattr(torch, "full_like", lambda x, value: Reciprocal(value) if x.ndim == 1 else original(x, value))
    with pytest.raises(AssertionError):
        check_sums_are_equal("cpu")


@pytest.mark.parametrize("device", DEVICES)
def test_roots_are_correct_to_the_last_bit(device):
    """NumPy's roots are the processor's; squares of the middle of two floats, rounded either way, are hardest."""
    middles = np.random.default_rng(0).uniform(1, 2, 1_000_000).astype(np.float32).astype(np.float64) + 2.0**-24
    squares = (middles**2).astype(np.float32)
    near = np.concatenate([np.nextafter(squares, np.float32(0)), squares, np.nextafter(squares, np.float32(9))])
    assert (residuals._root(torch.tensor(near, device=device)).cpu().numpy() == np.sqrt(near)).all()
    assert (residuals._root(near) == np.sqrt(near)).all()


class Reciprocal:
    def __init__(self, number):
        self.number = float(number)

    def __truediv__(self, tensor):
        return tensor.reciprocal() * self.number


def records(n=90, dim=12):
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, n)
    X = rng.normal(size=(n, dim)) + 1.5 * rng.normal(size=(3, dim))[y]
    return X.astype(np.float32), np.array(CLASSES)[y]


ESTIMATORS = [
    LinearProbe(ZCDP(1.0), CLASSES, steps=8, intercept_scaling=0.5, l2=0.01, **SEEDED),
    LinearProbe(ApproxDP(5.0, 1e-5), CLASSES, steps=5, sampling_rate=0.5, batch_size=60.0, **SEEDED),
    GlobalAdapt(ZCDP(1.0), CLASSES, steps=8, **SEEDED),
    FeatureCovariance(ZCDP(1.0), CLASSES, **SEEDED),
    Newton(ZCDP(1.0), CLASSES, **SEEDED),
    LeastSquares(ZCDP(1.0), CLASSES, **SEEDED),
    SoftmaxPrototypes(ZCDP(1.0), CLASSES, **SEEDED),
    MeanPrototypes(ZCDP(1.0), CLASSES, **SEEDED),
    MeanPrototypes(ZCDP(1.0), CLASSES, mechanism="coinpress", adjacency="replace-one", **SEEDED),
    PublicPrototypes(ZCDP(1.0), CLASSES, center="public", rotation="auto", **SEEDED),
    PublicPrototypes(ZCDP(1.0), CLASSES, n_prototypes=3, **SEEDED),
    PublicPrototypes(ZCDP(1.0), CLASSES, clip=(0.0, 2.0), **SEEDED),
]
GRADIENTS = (LinearProbe, GlobalAdapt, FeatureCovariance, Newton)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_a_model_of_tensors_is_that_of_arrays(estimator, device, monkeypatch):
    """Every released number, predictions and accuracy. `TensorRows` takes tensors of this machine for a device's."""
    X, y = records()
    public = np.random.default_rng(6).normal(size=(40, X.shape[1]))
    expected = estimator.set_params(public=PublicData(public)).fit(X, y)._tensors()
    scores, accuracy = estimator.decision_function(X), estimator.score(X, y)
    left, original = [], residuals.as_numpy

    def leaving(values):
        left.append((type(values), tuple(values.shape)))
        return original(values)

    monkeypatch.setattr(residuals, "as_numpy", leaving)
    rows = TensorRows(torch.tensor(X, device=device))
    fitted = (
        estimator.set_params(public=PublicData(TensorRows(torch.tensor(public, device=device)))).fit(rows, y)._tensors()
    )
    assert fitted.keys() == expected.keys()
    for name, values in expected.items():
        assert fitted[name].tobytes() == values.tobytes(), name
    assert (estimator.decision_function(rows) == scores).all()
    assert estimator.score(rows, y) == accuracy
    if isinstance(estimator, GRADIENTS):
        # Every step ran on the tensor's device, and nothing came back but sums over records.
        assert {kind for kind, _ in left} == {torch.Tensor}
        assert {shape for _, shape in left} <= {(3, 12), (3,)}


STAYING = [
    LinearProbe(ZCDP(1.0), CLASSES, steps=8, **SEEDED),
    LeastSquares(ZCDP(1.0), CLASSES, **SEEDED),
    MeanPrototypes(ZCDP(1.0), CLASSES, **SEEDED),
    PublicPrototypes(ZCDP(1.0), CLASSES, clip=(1.0, 1.6), **SEEDED),
    PublicPrototypes(ZCDP(1.0), CLASSES, n_prototypes=3, clip=(0.0, 2.0), **SEEDED),
]


@pytest.mark.parametrize("where", DEVICES)
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("estimator", STAYING, ids=lambda estimator: type(estimator).__name__)
def test_lattice_rows_on_a_device_stay_there(estimator, several, where, monkeypatch):
    """A fit brings sums and selected rows to the processor, whatever parts blocks of public rows lie in."""
    X, y = records()
    public = np.random.default_rng(6).normal(size=(500, 12))
    public[3] = public[77] = 0
    rows, others = Lattice(12).transform(X), Lattice(12).transform(public)
    others[5] = -128  # no lattice row
    is_public = isinstance(estimator, PublicPrototypes)
    expected = estimator.set_params(public=PublicData(others if is_public else None)).fit(rows, y)._tensors()
    if several:
        for name, value in (("PUBLIC_ROWS", 16), ("DEVICE_ROWS", 50), ("_TALLY_BYTES", 1 << 20), ("_LOOK_BYTES", 999)):
            monkeypatch.setattr(public_module, name, value)
    left, original = [], torch.Tensor.numpy

    def leaving(tensor, **options):
        left.append((tensor.dtype, len(tensor)))
        return original(tensor, **options)

    monkeypatch.setattr(torch.Tensor, "numpy", leaving)
    inputs = [TensorRows(torch.tensor(source, device=where)) for source in (rows, others)]
    fitted = estimator.set_params(public=PublicData(inputs[1] if is_public else None)).fit(inputs[0], y)._tensors()
    assert fitted.keys() == expected.keys()
    for name, values in expected.items():
        assert fitted[name].tobytes() == values.tobytes(), name
    assert left
    assert sum(n for kind, n in left if kind == torch.int8) <= 3 * 3 + 2


@pytest.mark.parametrize("X_on_device", [False, True])
def test_rows_of_one_side_may_be_arrays(X_on_device):
    X, y = records()
    model = PublicPrototypes(ZCDP(1.0), CLASSES, **SEEDED)
    public = np.random.default_rng(6).normal(size=(40, 12))
    expected = model.set_params(public=PublicData(public)).fit(X, y).public_indices_
    inputs = (TensorRows(torch.tensor(X)), public) if X_on_device else (X, TensorRows(torch.tensor(public)))
    assert (model.set_params(public=PublicData(inputs[1])).fit(inputs[0], y).public_indices_ == expected).all()


def off_by_one(original):
    def wrong(*arguments):
        result = original(*arguments)
        result[0, 0] += 1
        return result

    return wrong


@pytest.mark.parametrize(
    ("owner", "name", "estimator"),
    [
        (device, "sums_of_classes", STAYING[2]),
        (device, "gram", STAYING[1]),
        (device.DeviceScore, "__call__", PublicPrototypes(ApproxDP(1e4, 1e-5), CLASSES, clip=(1.0, 1.6), **SEEDED)),
    ],
)
def test_the_equality_of_models_notices_one_wrong_number(owner, name, estimator, monkeypatch):
    """Of utilities a class's first is made the best."""
    X, y = records()
    public = np.random.default_rng(6).normal(size=(500, 12))
    expected = estimator.set_params(public=PublicData(public)).fit(X, y)._tensors()
    wrong = off_by_one if owner is device else first_is_best
    monkeypatch.setattr(owner, name, wrong(getattr(owner, name)))
    inputs = [TensorRows(torch.tensor(source)) for source in (X, public)]
    fitted = estimator.set_params(public=PublicData(inputs[1])).fit(inputs[0], y)._tensors()
    assert any(fitted[key].tobytes() != values.tobytes() for key, values in expected.items())


def first_is_best(original):
    def wrong(self, public):
        result = original(self, public)
        result[0, 0] = result.max() + 1
        return result

    return wrong


@pytest.mark.parametrize("device", DEVICES)
def test_tensors_may_be_of_any_kind(device):
    X, y = records()
    model = LinearProbe(ZCDP(1.0), CLASSES, steps=3, **SEEDED)
    expected = model.fit(X, y).coef_
    tensor = torch.tensor(X, device=device)
    wide = torch.cat([tensor, tensor], 1)
    for same in (tensor, tensor.double(), tensor.clone().requires_grad_(), wide[:, :12], wide.T[:12].T):
        assert (model.fit(same, y).coef_ == expected).all()
        assert (model.predict(same) == model.predict(X)).all()
    for short in (torch.float16, torch.bfloat16):
        expected = model.fit(tensor.to(short).double().cpu().numpy(), y).coef_
        assert (model.fit(tensor.to(short), y).coef_ == expected).all()
    lattice_rows = Lattice(12).transform(X)
    expected = model.fit(lattice_rows, y).coef_
    assert (model.fit(torch.tensor(lattice_rows, device=device), y).coef_ == expected).all()
    codes = torch.arange(90, device=device) % 3
    by_number = MeanPrototypes(ZCDP(1.0), [0, 1, 2], **SEEDED).fit(tensor, codes)
    assert by_number.score(tensor, codes) == by_number.score(X, codes.cpu().numpy())


def test_tensors_of_this_machine_share_their_memory():
    tensor = torch.ones(3, 2, requires_grad=True)
    assert np.shares_memory(as_rows(tensor), tensor.detach().numpy())
    assert np.shares_memory(as_labels(tensor[:, 0], as_rows(tensor)), tensor.detach().numpy())


def test_rows_are_read_in_blocks():
    rows = TensorRows(torch.arange(22.0).reshape(11, 2).bfloat16())
    assert rows.shape == (11, 2)
    assert [block.shape for block in rows.blocks(4)] == [(4, 2), (4, 2), (3, 2)]
    assert (np.concatenate(list(rows.blocks(4))) == np.arange(22).reshape(11, 2)).all()


def test_a_device_that_does_not_compute_only_stores(monkeypatch):
    X, _ = records()
    lattice, rows = Lattice(12), TensorRows(torch.tensor(X))
    assert all(isinstance(block, torch.Tensor) for block in gradient_blocks(lattice, rows))
    monkeypatch.setattr(tensors, "_LEFT_TO_NUMPY", ("cpu",))
    (block,) = gradient_blocks(lattice, rows)
    assert (block == lattice.transform(X)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch.ones(3, 2).to_sparse(), "must be dense"),
        (lambda: torch.ones(3, 2, device="meta"), "must be dense"),
        (lambda: torch.tensor(12345.0), "Expected 2D array"),
        (lambda: torch.full((3,), 12345.0), "Expected 2D array"),
        (lambda: torch.ones(3, 0), "0 feature"),
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
            PublicPrototypes(ZCDP(1.0), CLASSES, public=PublicData(public)).fit(X, CLASSES[: len(X)])


def test_dppl_does_not_import_torch():
    code = f"import sys; sys.path[:] = {sys.path!r}; import dppl, dppl.lab; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
