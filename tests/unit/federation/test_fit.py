"""Institutions answer a method as one table does, with their own noise; the model says who they were."""

import json
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import dppl
from dppl import (
    ApproxDP,
    GaussianDP,
    Ledger,
    MeanPrototypes,
    MultiLabelPrototypes,
    PublicData,
    PublicPrototypes,
    SoftmaxPrototypes,
)
from dppl._utils.fingerprint import Fingerprint
from dppl.encoders import load_encoder
from dppl.encoders.columns import columns_of, read_schema
from dppl.errors import DpplError, EngineError, InputError, ParameterError
from dppl.federation import Federation, InProcess, Party
from dppl.federation.protocol import Message
from dppl.io import EmbeddingTable
from dppl.kernel.label_sets import MultiLabel
from dppl.kernel.privacy.guarantee import Charge
from dppl.kernel.privacy.terms import Caveat, Term, Unit
from dppl.kernel.queries import ClassSums
from dppl.methods import LinearProbe
from dppl.methods.model_file import describe
from dppl.training.items import embed_items
from federated import CLASSES, DIM, NAMES, Together, Way, parties, party, tables
from inside import tensors_of

SCHEMA = json.loads(
    (Path(__file__).parents[3] / "docs" / "statement.schema.json").read_text(
        encoding="utf-8"
    )
)
BUDGET = GaussianDP(1.0)
PUBLIC = np.random.default_rng(2).normal(size=(9, DIM))
EXAMPLES = EmbeddingTable.of(np.eye(3, DIM), np.array(CLASSES))
METHODS = [
    (SoftmaxPrototypes, {}),
    (SoftmaxPrototypes, {"public": PublicData(PUBLIC, EXAMPLES)}),
    (
        MeanPrototypes,
        {"lattice": dppl.LatticeOptions(pool=2, rotation=3, center=np.full(DIM, 0.1))},
    ),
    (LinearProbe, {"steps": 3}),
]


def made(kind, **options):
    return kind(BUDGET, CLASSES, unknown_labels="ignore", **options)


@pytest.mark.parametrize(("kind", "options"), METHODS)
def test_the_model_is_bit_for_bit_the_one_of_the_same_answers_in_one_process(
    kind, options, tmp_path
):
    with parties(tmp_path, random_state=7, public=[PUBLIC, EXAMPLES]) as opened:
        model = made(kind, **options).fit(Federation(InProcess(opened)))
    again = made(kind, **options).fit(Together(tables(), 7))
    other = made(kind, **options).fit(Together(tables(), 8))  # the control
    released = tensors_of(model)
    assert released == tensors_of(again)
    assert released != tensors_of(other)
    X = tables()["north"][0]
    assert model.predict_proba(X).tobytes() == again.predict_proba(X).tobytes()


def test_a_plan_may_start_from_a_model_that_institutions_know(tmp_path):
    """Federated like any other fit; who has not listed the model refuses the plan, and nobody pays."""
    X, y, _ = tables()["north"]
    start = SoftmaxPrototypes(BUDGET, CLASSES).fit(X, y)
    start.save(tmp_path / "start.safetensors")
    model = made(SoftmaxPrototypes, start=tmp_path / "start.safetensors")
    with parties(tmp_path) as opened, pytest.raises(DpplError, match="public inputs"):
        model.fit(Federation(InProcess(opened)))
    with parties(tmp_path, public=[start]) as opened:
        model.fit(Federation(InProcess(opened))).save(tmp_path / "model.safetensors")
    for name in NAMES:
        ledger = Ledger(tmp_path / f"{name}.db", "wards")
        assert len(ledger.releases()) == 1
        verified = dppl.verify(tmp_path / "model.safetensors", ledger=ledger)
        assert verified.holds, verified
    said = str(model.guarantee_)
    assert sha256((tmp_path / "start.safetensors").read_bytes()).hexdigest() in said

    def together(fitted):
        (both,) = (
            one["mu"]
            for one in fitted.guarantee_.not_covered
            if one.code is Caveat.ALSO_IN_STARTS
        )
        return both

    # One at all institutions pays for three.
    once, here = start.guarantee_.mu, model.guarantee_.mu
    assert together(model) == pytest.approx(np.sqrt(once**2 + 3 * here**2))
    again = made(SoftmaxPrototypes, start=model)
    with parties(tmp_path, public=[model]) as opened:
        again.fit(Federation(InProcess(opened))).save(tmp_path / "again.safetensors")
    assert together(again) == pytest.approx(np.sqrt(once**2 + 6 * here**2))
    verified = dppl.verify(tmp_path / "again.safetensors", ledger=ledger)
    assert verified.holds, verified


def test_methods_are_told_the_noise_of_the_sum_and_the_statement_has_the_noise_of_each(
    tmp_path,
):
    class Sums(dppl.Classifier):
        def measurements(self, setting):
            return {
                "sums": dppl.kernel.Measurement(
                    ClassSums(setting.lattice, setting.n_classes)
                )
            }

        def learn(self, measure, setting):
            self.noise_ = measure.noise_std("sums")
            self.coef_ = measure("sums").astype(float)

    with parties(tmp_path) as opened:
        model = made(Sums).fit(Federation(InProcess(opened)))
    (release,) = model.guarantee_.releases
    assert model.noise_ == np.sqrt(3) * release.parameters["noise_std"]
    assert release == made(Sums).plan(DIM).guarantee.releases[0]
    # Three draws add up, so the residue is wider than one institution's noise: at 24
    # values, outside 1.3 to 2.4 times it with probability 1e-3 for the right law, and
    # the noise of one would fail with probability 0.98.
    exact = sum(
        np.stack(
            [
                dppl.kernel.lattice.Lattice(DIM)
                .transform(X[y == name])
                .sum(axis=0, dtype=np.int64)
                for name in CLASSES
            ]
        )
        for X, y, _ in tables().values()
    )
    residue = (model.coef_ - exact) / release.parameters["noise_std"]
    assert 1.1 < np.sqrt((residue**2).mean()) < 2.6


def test_each_institution_pays_once_and_the_model_states_it(tmp_path):
    with parties(tmp_path) as opened:
        federation = Federation(InProcess(opened))
        model = made(SoftmaxPrototypes).fit(federation)
        later = made(MeanPrototypes).fit(federation)
        model.save(tmp_path / "model.safetensors")
    assert later.guarantee_.charges[0] == Charge("wards", 2, "north")
    guarantee = model.guarantee_
    assert guarantee.parties == NAMES
    assert guarantee.charges == tuple(Charge("wards", 1, name) for name in NAMES)
    assert guarantee.secure_noise
    said = str(guarantee)
    assert "a person with records at several institutions" in said
    assert "north, south, west" in said
    for name in NAMES:
        ledger = Ledger(tmp_path / f"{name}.db", "wards")
        paid, unsaved = ledger.releases()
        assert paid["cost"]["mu"] == guarantee.mu
        assert (paid["status"], unsaved["status"]) == ("released", "not saved")
        verified = dppl.verify(tmp_path / "model.safetensors", ledger=ledger)
        assert verified.holds, verified
    described = describe(tmp_path / "model.safetensors")
    jsonschema.validate(
        described["guarantee"], {"$ref": "#/$defs/guarantee", "$defs": SCHEMA["$defs"]}
    )
    assert "Institutions: north, south, west" in " ".join(
        model.report().markdown(for_="dpo").split()
    )
    forged = replace(guarantee, not_covered=guarantee.not_covered[:-2])
    model.guarantee_ = forged  # the control: a statement that hides what is not covered
    assert not dppl.verify(model).holds
    again = dppl.load(tmp_path / "model.safetensors")
    assert again.guarantee_.to_dict() == guarantee.to_dict()


def test_persons_and_multilabel(tmp_path):
    (tmp_path / "persons").mkdir()
    with parties(tmp_path / "persons", persons=True) as opened:
        model = made(SoftmaxPrototypes).fit(Federation(InProcess(opened)))
    assert model.guarantee_.unit is Unit.PERSON
    matrices = {
        name: (X, np.array(CLASSES)[None] == y[:, None], ids)
        for name, (X, y, ids) in tables().items()
    }
    several = {
        name: party(tmp_path, name, data=data, several=MultiLabel())
        for name, data in matrices.items()
    }
    model = made(MultiLabelPrototypes).fit(Federation(InProcess(several)))
    assert model.predict(tables()["north"][0]).shape == (30, 3)


def test_what_cannot_be_fitted_on_institutions_is_refused_before_anything_is_charged(
    tmp_path,
):
    with parties(tmp_path) as opened:
        federation = Federation(InProcess(opened))
        public = PublicData(PUBLIC)
        refused = [
            (
                made(PublicPrototypes, public=public),
                {},
                ParameterError,
                "do not add up",
            ),
            (
                SoftmaxPrototypes(BUDGET, CLASSES),
                {},
                ParameterError,
                "unknown_labels must be 'ignore'",
            ),
            (
                made(SoftmaxPrototypes, random_state=1),
                {},
                ParameterError,
                "random_state must be None",
            ),
            (
                made(MeanPrototypes, adjacency="replace-one"),
                {},
                Exception,
                "add-remove|do not add up",
            ),
            (made(SoftmaxPrototypes), {"y": ["a"]}, InputError, "must be left out"),
            (made(SoftmaxPrototypes, public=public), {}, EngineError, "does not know"),
            (
                SoftmaxPrototypes(BUDGET, ["a", "b"], unknown_labels="ignore"),
                {},
                EngineError,
                "another class list",
            ),
            (
                SoftmaxPrototypes(GaussianDP(4), CLASSES, unknown_labels="ignore"),
                {},
                EngineError,
                "has 3 left|needs mu",
            ),
            (
                LinearProbe(
                    ApproxDP(5, 1e-5),
                    CLASSES,
                    steps=2,
                    sampling_rate=0.5,
                    batch_size=9.0,
                    unknown_labels="ignore",
                ),
                {},
                ParameterError,
                "noisy sums alone",
            ),
        ]
        for model, given, error, text in refused:
            with pytest.raises(error, match=text):
                model.fit(federation, **given)
        with pytest.raises(ParameterError, match="ledger must be left out"):
            made(MeanPrototypes).fit(
                federation, ledger=Ledger(tmp_path / "mine.db", "wards", BUDGET)
            )
        with pytest.raises(ParameterError, match="ledger must be left out"):
            made(MeanPrototypes).fit(federation, partition="north")
    assert not any(
        Ledger(tmp_path / f"{name}.db", "wards").releases() for name in NAMES
    )


def test_institutions_must_agree_in_width_unit_and_encoder(tmp_path):
    north = party(tmp_path)
    south = party(tmp_path, "south", persons=True)
    with pytest.raises(
        ParameterError, match="agree in unit; they have north: record, south: person"
    ):
        Federation(InProcess({"north": north, "south": south}))
    X, y, _ = tables()["west"]
    tables_of = [
        EmbeddingTable.of(X, metadata={"encoder": name}) for name in ("one", "two")
    ]
    others = [
        party(tmp_path, name, data=(table, y, None))
        for name, table in zip("xy", tables_of, strict=True)
    ]
    with pytest.raises(ParameterError, match="agree in encoder"):
        Federation(InProcess(dict(zip("xy", others, strict=True))))


WARDS = [{"ward": ward} for ward in ("east", "north", "west")]
SCHEMAS = {
    "first": 'ward = ["east", "north", "west"]',
    "another": 'ward = ["north", "east", "west"]',
    "long": f"ward = {[str(ward) for ward in range(1000)]}",
}


def of_wards(folder, name, schema, file="schema"):
    """Open an institution of records of a ward each, by a schema of its own."""
    (folder / name).mkdir()
    path = folder / name / f"{file}.toml"
    path.write_text(SCHEMAS[schema])
    table = embed_items(load_encoder(f"columns:{path}"), WARDS * 10, "X")
    return party(folder, name, data=(table, np.array(CLASSES * 10), None))


@pytest.mark.parametrize("schema", ["first", "long"])
def test_one_schema_may_lie_in_files_of_any_name(schema, tmp_path):
    north = of_wards(tmp_path, "north", schema)
    south = of_wards(tmp_path, "south", schema, "file")
    with north, south:
        both = Federation(InProcess({"north": north, "south": south}))
        model = made(SoftmaxPrototypes).fit(both)
    held = columns_of(Fingerprint.parse(model.encoder_))
    assert held == read_schema(tmp_path / "south" / "file.toml")


def test_another_schema_of_equal_width_is_refused_before_anyone_pays(tmp_path):
    north = of_wards(tmp_path, "north", "first")
    south = of_wards(tmp_path, "south", "another")
    opened = {"north": north, "south": south}

    def hide(name, content, one):
        """Let the south say what the north says."""
        if Message.parse(content).kind != "hello":
            return one(content)
        said = Message.parse(north(content)).fields | {"name": name}
        return Message("described", said, {}).to_bytes()

    with north, south:
        with pytest.raises(ParameterError, match="agree in encoder"):
            Federation(InProcess(opened))
        with pytest.raises(EngineError, match=r"south: it refuses: .* another"):
            made(SoftmaxPrototypes).fit(Federation(Way(opened, hide), tries=1))
    for name in opened:
        assert not Ledger(tmp_path / f"{name}.db", "wards").releases()


@pytest.mark.parametrize("said", [{"not_covered": "rounding"}, {}])
def test_a_table_whose_rows_may_mix_is_named_for_all(said, tmp_path):
    X, y, _ = tables()["west"]
    mixed = party(tmp_path, "west", data=(EmbeddingTable.of(X, metadata=said), y, None))
    with mixed, party(tmp_path) as north:
        model = made(MeanPrototypes).fit(
            Federation(InProcess({"north": north, "west": mixed}))
        )
    assert (Term(Caveat.ROWS_MIX) in model.guarantee_.not_covered) == bool(said)
    model.save(tmp_path / "model.safetensors")
    assert dppl.verify(tmp_path / "model.safetensors").holds


def test_an_account_must_be_of_the_unit_and_relation_of_the_institution(tmp_path):
    X, y, _ = tables()["north"]
    ledger = Ledger(tmp_path / "ledger.db", "wards", BUDGET, adjacency="replace-one")
    with pytest.raises(ParameterError, match="under add-remove"):
        Party(
            "north",
            X,
            y,
            classes=CLASSES,
            ledger=ledger,
            state=tmp_path / "state",
            at_most=9,
        )
