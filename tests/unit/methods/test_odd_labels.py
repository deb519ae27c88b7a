"""Classes that no model file could hold stop a fit before the charge."""

import numpy as np
import pytest

import dppl
from dppl import ZCDP, GaussianDP, Ledger, MeanPrototypes, SoftmaxPrototypes
from dppl.errors import ModelFileError, ParameterError

X = np.eye(4)


@pytest.mark.parametrize(
    "classes",
    [
        np.array([b"a", b"b"]),
        np.array(["2020-01-01", "2021-01-01"], "M8[D]"),
        [0.0, np.nan],
        [1.0, np.inf],
        [1j, 2j],
    ],
    ids=["bytes", "dates", "nan", "inf", "complex"],
)
def test_classes_that_no_file_could_hold_are_refused_before_the_charge(
    classes, tmp_path
):
    ledger = Ledger(tmp_path / "ledger.db", "wards", ZCDP(1.0))
    labels = np.resize(np.asarray(classes), 4)
    with pytest.raises(ParameterError, match="classes must be texts or finite numbers"):
        MeanPrototypes(ZCDP(0.1), classes).fit(X, labels, ledger=ledger)
    assert ledger.releases() == []


def test_a_model_file_whose_map_is_not_one_of_its_method_is_refused(
    tmp_path, monkeypatch
):
    model = SoftmaxPrototypes(GaussianDP(1.0), ["a", "b"]).fit(X, list("abab"))
    whole = dppl.kernel.lattice.Lattice.to_dict
    model.save(tmp_path / "good.safetensors")
    dppl.load(tmp_path / "good.safetensors")
    for wrong in ({"rotation": 3}, {"pool": 2}):
        monkeypatch.setattr(
            dppl.kernel.lattice.Lattice,
            "to_dict",
            lambda self, wrong=wrong: whole(self) | wrong,
        )
        model.save(tmp_path / "bad.safetensors", overwrite=True)
        with pytest.raises(ModelFileError, match="its map is not one of its method"):
            dppl.load(tmp_path / "bad.safetensors")


@pytest.mark.parametrize("name", ["\ud800", "b\0", "\udfff tail"])
def test_texts_that_no_file_could_hold_are_no_classes(name, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "wards", ZCDP(1.0))
    with pytest.raises(ParameterError, match="without NUL and lone surrogates"):
        MeanPrototypes(ZCDP(0.1), ["a", name]).fit(X, list("aaaa"), ledger=ledger)
    assert ledger.releases() == []


def test_integers_that_no_file_tells_apart_are_no_classes(tmp_path):
    """Read back beside a small integer, both large ones would be one number of floating point."""
    ledger = Ledger(tmp_path / "ledger.db", "wards", ZCDP(1.0))
    classes = np.array([3, 2**63, 2**63 + 1], np.uint64)
    with pytest.raises(ParameterError, match="integers of 64 bits with a sign"):
        MeanPrototypes(ZCDP(0.1), classes).fit(X, np.resize(classes, 4), ledger=ledger)
    assert ledger.releases() == []
    largest = np.array([3, 2**63 - 2, 2**63 - 1], np.uint64)
    MeanPrototypes(ZCDP(0.1), largest).fit(X, np.resize(largest, 4)).save(
        tmp_path / "m.safetensors"
    )
    assert dppl.load(tmp_path / "m.safetensors").classes_.tolist() == largest.tolist()


def test_a_repeated_class_is_named_by_its_place():
    """A list that is given by mistake may hold texts of patients."""
    with pytest.raises(
        ParameterError, match=r"once; number 2 repeats number 0, counted from 0\.$"
    ):
        MeanPrototypes(ZCDP(0.1), ["a", "b", "a"]).fit(X, list("abab"))
