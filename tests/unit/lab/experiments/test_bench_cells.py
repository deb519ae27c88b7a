"""One cell: what it measures, that it repeats, and what it says when it fails."""

import math
import sys
from dataclasses import replace

import numpy as np
import pytest

from dppl import MeanPrototypes
from dppl.errors import InputError, ParameterError
from dppl.kernel.mechanisms import CoinPress
from dppl.kernel.privacy import ZCDP, ApproxDP, GaussianDP, PureDP
from dppl.lab import long_tailed
from dppl.lab.experiments import frame
from dppl.lab.experiments import measure_cell as cells_module
from dppl.lab.experiments.compared_methods import METHODS, ComparedMethod
from dppl.lab.experiments.datasets import (
    DatasetSpec,
    ExampleSpec,
    Pool,
    load_dataset,
    random_rows,
)
from dppl.lab.experiments.measure_cell import check_cells, run_cell
from dppl.lab.experiments.names import paper_epsilon

VOLATILE = {"seconds", "peak_memory_mib", "finished"}


@pytest.fixture(autouse=True)
def _fresh_data(monkeypatch):
    monkeypatch.setattr(cells_module, "_LOADED", {})


@pytest.fixture
def run(experiment):
    """Run the cells of a small configuration in this process."""

    def run(**changes):
        loaded = experiment(**changes)
        return [run_cell(cell, loaded.datasets) for cell in loaded.cells]

    return run


def steady(record):
    return {key: value for key, value in record.items() if key not in VOLATILE}


def test_a_record_says_what_was_done_and_measured(run, data):
    mean, public = run(ir=[10])
    assert mean["status"] == public["status"] == "done"
    assert (mean["e"], mean["notion"], mean["adjacency"], mean["exact"]) == (
        1.0,
        "zCDP",
        "add-remove",
        True,
    )
    assert (mean["tuned"], mean["covered"]) == (False, True)
    assert mean["cell"]["encoder"] == "none"
    assert public["data"]["n_public"] == 60
    assert mean["data"]["n_public"] is None
    y = np.load(data / "blobs" / "train_y.npy")
    sizes = np.bincount(y[long_tailed(y, 10, 0)])
    assert (
        mean["data"]["class_sizes"] == public["data"]["class_sizes"] == sizes.tolist()
    )
    each = mean["metrics"]["class_accuracies"]
    assert mean["metrics"]["balanced_accuracy"] == pytest.approx(np.mean(each))
    assert mean["metrics"]["minority_accuracy"] == each[int(sizes.argmin())]
    assert mean["metrics"]["accuracy"] == pytest.approx(
        np.mean(each)
    )  # the test set is balanced
    assert set(mean["seconds"]) == {
        "fit_wall",
        "fit_cpu",
        "predict_wall",
        "predict_cpu",
    }
    assert mean["peak_memory_mib"] > 10
    assert {"dppl", "numpy", "Python"} <= set(mean["software"])


def test_softmax_reads_public_rows_where_there_are_some_and_softmax_alone_none(run):
    methods = ["softmax", "softmax-alone"]
    records = [
        *run(methods=methods),
        *run(methods=methods, datasets=[{"name": "blobs", "encoder": "none"}]),
    ]
    assert [(record["status"], record["data"]["n_public"]) for record in records] == [
        ("done", n) for n in (60, None, None, None)
    ]


def test_the_calibration_of_models_with_probabilities_is_measured(run, data):
    softmax, mean = run(methods=["softmax", "mean"])
    assert 0 < mean["metrics"]["calibration_error"] < 1
    assert 0 < softmax["metrics"]["calibration_error"] < 1
    assert set(softmax["seconds"]) == set(mean["seconds"])


@pytest.mark.parametrize(
    ("method", "told"),
    [
        (
            {"method": "mean", "lattice__pool": -2},
            "mean with lattice__pool: -2, on data set 'blobs': pool must be an integer",
        ),
        (
            {"method": "mean", "lattice__pool": 17},
            "pool must be at most the number of features, 16; got 17",
        ),
        (
            {"method": "linear-probe", "steps": 0},
            "linear-probe with steps: 0, .*steps must be an integer",
        ),
        ({"method": "public", "clip": 3}, "public with clip: 3"),
        (
            {"method": "mean", "max_classes_per_person": 2},
            "max_classes_per_person is for fits with ids of persons",
        ),
    ],
)
def test_a_check_finds_bad_parameters_without_a_fit(
    experiment, monkeypatch, method, told
):
    loaded = experiment(methods=["mean", method])
    monkeypatch.setattr("dppl.methods.base.EmbeddingClassifier.fit", None)
    with pytest.raises(ParameterError, match=told):
        check_cells(loaded.cells, loaded.datasets)


def test_a_check_passes_what_runs_and_names_arrays_that_do_not_fit(experiment, data):
    methods = [
        "mean",
        "public",
        {"method": "mean", "lattice__center": "public"},
        "softmax",
        "newton",
        "ncm",
    ]
    loaded = experiment(methods=[*methods, {"method": "mean", "tune": 2}])
    check_cells(loaded.cells, loaded.datasets)
    small = experiment(
        datasets=[
            {
                "name": "blobs",
                "public": [{"name": "p", "file": "blobs/public_x.npy", "rows": 61}],
            }
        ]
    )
    with pytest.raises(InputError, match="has 60 rows; 61 were to be drawn"):
        check_cells(small.cells, small.datasets)
    np.save(data / "blobs" / "train_y.npy", np.zeros(3))
    with pytest.raises(
        InputError, match="train_y must hold one value for each of the 160 rows"
    ):
        check_cells(loaded.cells, loaded.datasets)


def test_the_same_seed_gives_the_same_record_and_another_seed_another(run):
    changes = {
        "methods": ["mean", "public", "coinpress"],
        "seeds": [0, 1],
        "ir": [10],
        "budgets": {"e": [0.2]},
    }
    first = run(**changes)
    again = run(**changes)
    assert list(map(steady, first)) == list(map(steady, again))
    for one, other in zip(first[:3], first[3:], strict=True):
        assert one["metrics"] != other["metrics"]


def test_a_failing_cell_is_recorded_with_its_error(run):
    (record,) = run(methods=[{"method": "mean", "lattice__pool": 1000}])
    assert (record["status"], record["error"]) == ("failed", "ParameterError")
    assert "pool" in record["message"]
    assert "metrics" not in record


def test_every_private_method_spends_budgets_of_mu_in_exact_integers(run):
    # Those that train a network have gradients in floats.
    methods = {
        name: method
        for name, method in METHODS.items()
        if method.private and not method.of_images
    }
    del methods["friendly-core"]  # is accounted in (epsilon, delta) alone
    del methods["public-topk-published"]  # whose ranks alone cost more
    entries = [
        {"method": name, "examples": 2} if one.needs_examples else name
        for name, one in methods.items()
        if name != "adaptive"
    ]
    # It wants a public guess of how large the classes are.
    entries.append({"method": "adaptive", "class_size": 40})
    records = run(methods=entries, budgets={"mu": [0.7]})
    assert {record["cell"]["method"] for record in records} == {*methods}
    for record in records:
        assert record["status"] == "done", record
        assert record["exact"]
        assert (record["cell"]["budget"], record["e"], record["notion"]) == (
            {"mu": 0.7},
            0.7,
            "Gaussian DP",
        )


def test_rows_that_are_examples_are_no_private_ones(experiment):
    dataset = load_dataset(experiment().datasets["blobs", "none"])
    private, (examples, classes) = dataset.split(ExampleSpec(5), seed=1)
    assert np.bincount(dataset.y[private]).tolist() == [35] * 4
    assert classes.tolist() == [0] * 5 + [1] * 5 + [2] * 5 + [3] * 5
    both = np.concatenate([dataset.X[private], examples])
    np.testing.assert_array_equal(np.unique(both, axis=0), np.unique(dataset.X, axis=0))
    again, none = dataset.split(ExampleSpec(5, used=False), seed=1)
    assert (private.tolist(), ()) == (again.tolist(), none)
    # One more row a class, and the same five.
    assert (
        set(dataset.split(ExampleSpec(6), seed=1)[0])
        < set(private)
        != set(dataset.split(ExampleSpec(5), seed=2)[0])
    )
    with pytest.raises(
        InputError, match="40 rows a class leave no private row of some class"
    ):
        dataset.split(ExampleSpec(40), seed=1)
    with pytest.raises(InputError, match="name it with files: names"):
        dataset.split(ExampleSpec("names"), seed=1)


@pytest.mark.parametrize(("wrong", "n_wrong"), [("permuted", 4), ("half", 2)])
def test_wrong_examples_stand_for_another_class_each(experiment, data, wrong, n_wrong):
    names = np.arange(64.0).reshape(4, 16)
    np.save(data / "blobs" / "names.npy", names)
    datasets = [{"name": "blobs", "files": {"names": "names.npy"}}]
    dataset = load_dataset(
        experiment(methods=["mean"], datasets=datasets).datasets["blobs", "not named"]
    )
    for seed in range(5):
        private, (examples, classes) = dataset.split(ExampleSpec("names", wrong), seed)
        assert len(private) == 160
        np.testing.assert_array_equal(examples, names)
        assert sorted(classes) == [0, 1, 2, 3]
        assert (classes != [0, 1, 2, 3]).sum() == n_wrong
    _, (_, classes) = dataset.split(ExampleSpec("names"), 0)
    assert classes.tolist() == [0, 1, 2, 3]
    np.save(data / "blobs" / "names.npy", names[:3])
    with pytest.raises(
        InputError,
        match=r"names must hold a row of 16 features for each of the 4 classes; got shape",
    ):
        load_dataset(
            experiment(methods=["mean"], datasets=datasets).datasets[
                "blobs", "not named"
            ]
        )


def test_a_fit_starts_from_the_examples_of_its_cell(run):
    starts = [5, {"source": 5, "wrong": "permuted"}, {"source": 5, "used": False}]
    methods = [{"method": "softmax", "examples": starts}]
    right, wrong, zero = run(methods=methods, budgets={"mu": [0.01]}, ir=[5])
    assert right["status"] == wrong["status"] == zero["status"] == "done"
    assert (
        right["data"]["class_sizes"]
        == wrong["data"]["class_sizes"]
        == zero["data"]["class_sizes"]
    )
    assert max(right["data"]["class_sizes"]) == 35
    # Next to no budget, on classes that are far apart.
    assert right["metrics"]["balanced_accuracy"] > 0.9
    assert wrong["metrics"]["balanced_accuracy"] < 0.9
    (alone,) = run(
        methods=[{"method": "softmax", "examples": 5}], budgets={"mu": [0]}, ir=[5]
    )
    assert (alone["e"], alone["status"]) == (0.0, "done")


def test_a_check_looks_whether_classes_have_enough_rows_for_examples(experiment):
    loaded = experiment(methods=[{"method": "softmax", "examples": [39, 40]}])
    check_cells(loaded.cells[:1], loaded.datasets)
    with pytest.raises(InputError, match="40 rows a class leave no private row"):
        check_cells(loaded.cells, loaded.datasets)


def test_a_reference_without_privacy_promises_nothing(run):
    (record,) = run(methods=["ncm"])
    assert (record["e"], record["notion"], record["adjacency"], record["covered"]) == (
        None,
        "none",
        None,
        None,
    )


def test_coinpress_tells_radius_and_norm_after_each_step(run):
    weak, strong = (
        run(methods=["coinpress"], budgets={"e": [e]})[0] for e in (0.01, 1e4)
    )
    # Mean rows have at most the norm sqrt(16) of all rows; at a tiny budget the
    # estimates run away (DPPL-v1, C.2).
    assert len(weak["coinpress"]["norm"]) == len(strong["coinpress"]["norm"]) == 3
    assert 2 < strong["coinpress"]["norm"][-1] < 4.1
    assert weak["coinpress"]["norm"][-1] > 100
    # Without noise to speak of, the radius falls to the tail of a mean of n rows of
    # unit variance.
    first, *radii = strong["coinpress"]["radius"]
    tail = math.sqrt(16 + 2 * math.sqrt(16 * math.log(100)) + 2 * math.log(100))
    assert first == 4.0
    assert radii == pytest.approx(
        [np.mean(tail / np.sqrt(strong["data"]["class_sizes"]))] * 3, rel=1e-3
    )
    assert weak["coinpress"]["radius"] == sorted(weak["coinpress"]["radius"])
    assert weak["coinpress"]["radius"][-1] > 100


def test_the_radii_told_are_those_of_the_fit(run, monkeypatch):
    seen = []
    original = CoinPress.release

    def spy(self, rows, lattice, source):
        seen.append(self.radii(len(rows), lattice))
        return original(self, rows, lattice, source)

    monkeypatch.setattr(CoinPress, "release", spy)
    method = {"method": "coinpress"}
    (record,) = run(methods=[method])
    whole = [
        radii for radii in seen if len(radii) == len(record["coinpress"]["radius"])
    ]
    assert len(whole) == len(record["data"]["class_sizes"])
    assert record["coinpress"]["radius"] == pytest.approx(np.mean(whole, axis=0))


@pytest.mark.parametrize("method", ["mean-replace-one", "coinpress"])
def test_true_and_private_means_lie_in_one_plane(run, data, method):
    asked = {"method": method, "scatter": True}
    weak, strong = (
        run(methods=[asked], budgets={"e": [e]}, ir=["natural"])[0]["scatter"]
        for e in (0.1, 1e4)
    )
    X, y = (np.load(data / "blobs" / f"train_{part}.npy") for part in "xy")
    rows = X / np.linalg.norm(X, axis=1, keepdims=True)
    means = np.stack([rows[y == code].mean(axis=0) for code in range(4)])
    # Of the means, two axes keep the two largest parts of the spread, whatever the signs.
    centred = means - means.mean(axis=0)
    spread = np.linalg.eigvalsh(centred @ centred.T)[::-1][:2]
    found = np.square(strong["true"]).sum(axis=0)
    np.testing.assert_allclose(found, spread, rtol=2e-3)
    distances = np.linalg.norm(np.subtract(strong["true"], strong["private"]), axis=1)
    assert distances.max() < 0.02
    far = np.linalg.norm(np.subtract(weak["true"], weak["private"]), axis=1)
    assert far.max() > 0.1
    # Rows lie about the mean of their class.
    train, codes = np.array(strong["train"]), np.array(strong["train_codes"])
    centres = [train[codes == code].mean(axis=0) for code in range(4)]
    np.testing.assert_allclose(centres, strong["true"], atol=1e-3)
    assert len(strong["right"]) == len(strong["test"]) == 40


def test_a_search_tells_what_it_tried_and_leaves_out_what_cannot_be(run):
    """Of 16 features no pool of 32 and no 64 components can be; the others give their score."""
    budget = {"epsilon": [8], "delta": 1e-5}
    tuned = {"method": "projected", "tune": 12, "steps": 2, "budgets": budget}
    done = run(methods=[tuned])[1]
    tried = done["search"]["tried"]
    assert 1 < len(tried) < 12
    assert done["search"]["score"] >= max(tried)


def test_results_have_no_true_means_unless_asked(run):
    assert "scatter" not in run(methods=["coinpress"])[0]


def test_tuned_cells_are_marked_repeat_and_keep_what_the_configuration_fixes(run):
    changes = {"methods": [{"method": "public", "lattice__pool": 2, "tune": 4}]}
    untuned, tuned = run(**changes)
    assert (untuned["tuned"], untuned["covered"], untuned["search"]) == (
        False,
        True,
        None,
    )
    assert (tuned["tuned"], tuned["covered"]) == (True, False)
    assert tuned["parameters"]["lattice__pool"] == 2
    assert set(tuned["search"]["best"]) <= {"clip"}
    assert tuned["search"]["trials"] == 4
    assert tuned["search"]["validation_rows"] == 32
    assert "tune_wall" in tuned["seconds"]
    assert steady(run(**changes)[1]) == steady(tuned)


def test_a_search_finds_what_is_better_and_never_takes_what_is_worse_than_the_defaults(
    run, monkeypatch
):
    # Pools of 16 leave one coordinate, whose sign cannot tell four classes apart.
    for space, default, best in (
        ({"lattice__pool": (16, 1)}, 16, {"lattice__pool": 1}),
        ({"lattice__pool": (16,)}, 1, {}),
    ):
        method = ComparedMethod(
            "m",
            "MeanPrototypes",
            space=space,
            defaults={"lattice__pool": default} if best else {},
        )
        monkeypatch.setitem(METHODS, "mean", method)
        assert (
            run(methods=[{"method": "mean", "tune": 20}], budgets={"e": [50]})[1][
                "search"
            ]["best"]
            == best
        )


def test_a_search_covers_the_parameters_that_have_special_defaults(run):
    untuned, tuned = run(methods=[{"method": "public-topk", "tune": 1}])
    assert untuned["cell"]["parameters"] == {"n_prototypes": 5}
    assert tuned["cell"]["parameters"] == {}
    assert tuned["parameters"]["n_prototypes"] in (1, 2, 3, 5, 10, 20)


def test_the_search_sees_no_test_record(run, data, monkeypatch):
    changes = {"methods": [{"method": "mean", "tune": 3}]}
    before = run(**changes)[1]["search"]
    labels = data / "blobs" / "test_y.npy"
    np.save(labels, np.load(labels)[::-1])
    monkeypatch.setattr(cells_module, "_LOADED", {})
    after = run(**changes)[1]
    assert after["search"] == before
    assert after["metrics"]["accuracy"] < 0.5


def test_without_optuna_a_tuned_cell_fails_and_says_what_to_install(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    untuned, tuned = run(methods=[{"method": "mean", "tune": 3}])
    assert untuned["status"] == "done"
    assert tuned["error"] == "MissingExtra"
    assert "pip install -e '.[lab]'" in tuned["message"]


def test_budgets_stand_at_the_mu_of_the_gaussian_noise_that_they_allow():
    for mu in (0.01, 0.5, 0.7, 64.0):
        assert paper_epsilon(GaussianDP(mu)) == mu
        # As the papers have it: sqrt(2 rho), up to its rounding.
        assert paper_epsilon(ZCDP(mu**2 / 2)) == pytest.approx(mu, rel=1e-15)
    approx = paper_epsilon(ApproxDP(1.0, 1e-6))
    assert GaussianDP(approx).to_approx(1e-6).epsilon <= 1.0
    assert GaussianDP(math.nextafter(approx, 1.0)).to_approx(1e-6).epsilon > 1.0


def test_a_pure_budget_stands_at_the_zcdp_that_it_implies():
    for epsilon in (0.01, 0.5, 8.0):
        assert paper_epsilon(PureDP(epsilon)) == pytest.approx(epsilon, rel=1e-15)


def test_pools_give_their_first_rows_or_a_repeatable_draw(experiment, data):
    loaded = load_dataset(experiment().datasets["blobs", "none"])
    rows = np.load(data / "blobs" / "public_x.npy")
    np.testing.assert_array_equal(loaded.public(Pool("near", first=7), 0), rows[:7])
    drawn = loaded.public(Pool("near", first=30, rows=10), 1)
    np.testing.assert_array_equal(drawn, rows[random_rows(30, 10, 1)])
    assert loaded.public(None, 0) is None
    with pytest.raises(InputError, match="has 60 rows; 61 were to be drawn"):
        loaded.public(Pool("near", rows=61), 0)


def test_a_pool_leaves_rows_out_by_their_lines_before_it_takes_the_first(
    experiment, data
):
    (data / "blobs" / "lines.txt").write_text("a\nb\nc\n" * 20)
    entry = {
        "name": "near",
        "file": "blobs/public_x.npy",
        "lines": "blobs/lines.txt",
        "without": ["b", "c"],
    }
    changed = experiment(
        datasets=[{"name": "blobs", "public": [entry]}], methods=["softmax"]
    )
    loaded = load_dataset(changed.datasets["blobs", "not named"])
    rows = np.load(data / "blobs" / "public_x.npy")
    np.testing.assert_array_equal(
        loaded.public(Pool("near", without=("b", "c")), 0), rows[::3]
    )
    np.testing.assert_array_equal(
        loaded.public(Pool("near", 7, without=("b", "c")), 0), rows[:21:3]
    )
    np.testing.assert_array_equal(loaded.public(Pool("near", 7), 0), rows[:7])
    with pytest.raises(InputError, match="has 20 rows; 21 were to be drawn"):
        loaded.available(Pool("near", rows=21, without=("b", "c")))
    with pytest.raises(
        InputError, match="'near': no row has the line 'd', which without names"
    ):
        loaded.available(Pool("near", without=("b", "d")))
    (record,) = [run_cell(cell, changed.datasets) for cell in changed.cells]
    assert (record["data"]["n_public"], record["cell"]["pool"]["without"]) == (
        20,
        ("b", "c"),
    )


@pytest.mark.parametrize(
    ("name", "array", "told"),
    [
        (
            "test_x",
            np.zeros((40, 3)),
            "test_x must have two dimensions and 16 features; got shape",
        ),
        ("public_x", np.zeros(5), "near must have two dimensions and 16 features"),
        (
            "train_y",
            np.zeros(3),
            "train_y must hold one value for each of the 160 rows",
        ),
    ],
)
def test_parts_that_do_not_fit_together_are_an_error(
    experiment, data, name, array, told
):
    spec = experiment().datasets["blobs", "none"]
    np.save(data / "blobs" / f"{name}.npy", array)
    with pytest.raises(InputError, match=told):
        load_dataset(spec)


def test_a_damaged_file_is_an_error(experiment, data):
    spec = experiment().datasets["blobs", "none"]
    (data / "blobs" / "train_x.npy").write_bytes(b"nothing")
    with pytest.raises(InputError, match=r"train_x\.npy must be a readable \.npy file"):
        load_dataset(replace(spec))


def test_the_number_of_classes_of_a_person_is_an_axis(run, data, monkeypatch):
    """Private fits get the ids of their records."""
    seen = []
    whole = MeanPrototypes.fit
    monkeypatch.setattr(
        MeanPrototypes,
        "fit",
        lambda *given, **more: seen.append(more) or whole(*given, **more),
    )
    ids = np.arange(len(np.load(data / "blobs" / "train_y.npy"))) // 3
    np.save(data / "blobs" / "ids.npy", ids)
    datasets = [{"name": "blobs", "encoder": "none", "files": {"groups": "ids.npy"}}]
    methods = [{"method": "mean", "max_classes_per_person": [1, 2]}, "ncm"]
    one, two, alone = run(methods=methods, datasets=datasets, ir=[10])
    assert [cell["status"] for cell in (one, two, alone)] == ["done"] * 3
    rows = long_tailed(np.load(data / "blobs" / "train_y.npy"), 10, 0)
    assert len(seen) == 2
    assert all((more["groups"] == ids[rows]).all() for more in seen)
    assert one["metrics"] != two["metrics"]
    assert frame._row(one, False)["promise"] == "zCDP, add-remove, for persons, exact"
    assert (
        frame._row(one | {"unit": "record"}, False)["promise"]
        == "zCDP, add-remove, exact"
    )


def test_a_fifth_of_the_persons_is_the_test_set_of_a_data_set_in_one_piece(tmp_path):
    ids = np.repeat(np.arange(20), 4)
    for name, array in {
        "x": np.arange(160.0).reshape(80, 2),
        "y": np.arange(80) % 2,
        "ids": ids,
    }.items():
        np.save(tmp_path / f"{name}.npy", array)
    files = {
        part: tmp_path / f"{name}.npy"
        for part, name in (("x", "x"), ("y", "y"), ("groups", "ids"))
    }
    found = load_dataset(DatasetSpec("visits", "none", files))
    tested = ids[(np.asarray(found.X_test)[:, 0] / 2).astype(int)]
    assert len(np.unique(tested)) == 4
    assert not set(tested) & set(found.groups)
    assert (found.groups == ids[(np.asarray(found.X)[:, 0] / 2).astype(int)]).all()
