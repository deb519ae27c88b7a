"""Files of settings, `dppl fit` on institutions and `dppl merge`: what is wrong is named before anything happens."""

import numpy as np
import pytest

import dppl
from dppl import GaussianDP, MeanPrototypes
from dppl.errors import InputError, ParameterError
from dppl.federation.settings import FederationFile, PartyFile, read
from federated import CLASSES, tables

NORTH = """
name = "north"
table = "north.npz"
classes = "classes.txt"
ledger = "north.db"
dataset = "wards"
state = "state"
at_most = 1000
superlink = "127.0.0.1:1"
root_certificates = "ca.crt"
key = "key"
public = ["web.npz"]
"""


def test_paths_start_at_the_folder_of_the_file_and_urls_stay(tmp_path):
    (tmp_path / "north.toml").write_text(NORTH + "mu = 1\n")
    settings = read(tmp_path / "north.toml", PartyFile)
    assert (settings.table, settings.state) == (
        tmp_path / "north.npz",
        tmp_path / "state",
    )
    assert settings.ledger == str(tmp_path / "north.db")
    assert settings.public == (tmp_path / "web.npz",)
    assert settings.mu == 1.0
    url = "postgresql+psycopg://host/db"
    (tmp_path / "north.toml").write_text(NORTH.replace("north.db", url))
    assert read(tmp_path / "north.toml", PartyFile).ledger == url


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda text: text.replace("at_most", "atmost"),
            "atmost of .* is unknown. Is at_most meant",
        ),
        (lambda text: text.replace('name = "north"\n', ""), "must say name"),
        (lambda text: text.replace("1000", '"many"'), "at_most of .* has another type"),
        (lambda text: text.replace('"state"', "3"), "state of .* has another type"),
        (lambda text: text + "x = [", "is no TOML"),
        (
            lambda text: text + "delta = 1e-6",
            "mu must stand alone, or else epsilon and delta both",
        ),
        (
            lambda text: text + "mu = 1\nepsilon = 1\ndelta = 1e-6",
            "mu must stand alone",
        ),
    ],
)
def test_a_slip_in_a_file_of_settings_is_named(change, said, tmp_path):
    (tmp_path / "north.toml").write_text(change(NORTH))
    with pytest.raises((InputError, ParameterError), match=said):
        read(tmp_path / "north.toml", PartyFile)
    with pytest.raises(InputError, match="there is no file"):
        read(tmp_path / "south.toml", FederationFile)


def test_an_institution_opens_from_its_file_and_reads_no_label(tmp_path):
    X, y, _ = tables()["north"]
    np.savez(tmp_path / "north.npz", x=X, y=y)
    np.savez(tmp_path / "web.npz", x=X + 1)
    (tmp_path / "classes.txt").write_text("\n".join(CLASSES))
    dppl.Ledger(tmp_path / "north.db", "wards", GaussianDP(1))
    (tmp_path / "north.toml").write_text(NORTH)
    with read(tmp_path / "north.toml", PartyFile).open() as party:
        assert party.described["n_features"] == X.shape[1]
        assert party.described["unit"] == "record"


def test_options_of_a_table_are_refused_with_institutions(cli, error_line, tmp_path):
    given = [
        "--mu",
        "1",
        "--classes",
        "c.txt",
        "--out",
        str(tmp_path / "m.safetensors"),
    ]
    for typed in (
        ["--groups", "person"],
        ["--read", "labels=l.txt"],
        ["--ledger", "l.db", "wards"],
        ["--unusable", "stop"],
    ):
        result = cli("fit", "f.toml", *typed, *given)
        assert result.exit_code == 2
        assert "table" in error_line(result)


def test_released_models_are_merged_by_command(cli, tmp_path):
    paths = []
    for name, (X, y, _) in tables(n=200).items():
        model = MeanPrototypes(GaussianDP(1), CLASSES).fit(X, y)
        model.save(tmp_path / f"{name}.safetensors")
        paths.append(str(tmp_path / f"{name}.safetensors"))
    result = cli("merge", *paths, "--out", str(tmp_path / "merged.safetensors"))
    assert result.exit_code == 0, result.output
    assert dppl.load(tmp_path / "merged.safetensors").guarantee_.parties == (
        "north",
        "south",
        "west",
    )
