"""`dppl embed --encoders`: every encoder that a name stands for, and what this machine lacks of it."""

import pytest

from dppl.encoders import PRESETS, list_encoders, load_encoder
from dppl.encoders.load import MODULES
from dppl.errors import DpplError


def test_all_presets_and_schemes_are_listed():
    names = [entry.name for entry in list_encoders()]
    assert set(PRESETS) < set(names)
    assert {name.partition(":")[0] for name in names} - set(PRESETS) == set(MODULES)


def test_every_encoder_is_shown_with_what_it_needs(cli):
    shown = cli("embed", "--encoders", COLUMNS="80").stdout
    listed = list_encoders()
    assert all(len(line) <= 80 for line in shown.splitlines()[: len(listed) + 1])
    for entry in listed:
        (line,) = [
            line for line in shown.splitlines() if line.startswith(f"{entry.name} ")
        ]
        assert entry.licence in line
        assert line.split()[-1] == ("yes" if entry.installed else "no")
        assert (f"{entry.name}: " in shown) != entry.installed


def test_an_encoder_is_installed_exactly_if_it_loads():
    """Those whose name fixes the weights; a library that is there and broken is another matter."""
    for entry in list_encoders():
        if not entry.name.endswith(("NAME", "FILE")) and not entry.installed:
            with pytest.raises(DpplError):
                load_encoder(entry.name)
    (pixels,) = [entry for entry in list_encoders() if entry.name == "pixels"]
    assert (pixels.installed, pixels.dimension) == (
        True,
        load_encoder("pixels").dimension,
    )


def test_weights_are_looked_for_where_they_are_downloaded_to(tmp_path, monkeypatch):
    monkeypatch.setattr("dppl.encoders.catalogue._is_installed", lambda module: True)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    before = {entry.name: entry.install for entry in list_encoders()}
    assert before["vit-b-16"].startswith("weights: https://download.pytorch.org/")
    assert before["vit-l-16"] == "weights: hf download facebook/dinov2-large"
    (tmp_path / "hub" / "models--facebook--dinov2-large" / "snapshots").mkdir(
        parents=True
    )
    (tmp_path / "torch" / "hub" / "checkpoints").mkdir(parents=True)
    (tmp_path / "torch" / "hub" / "checkpoints" / "vit_b_16_swag-9ac1b537.pth").touch()
    after = {entry.name: entry.installed for entry in list_encoders()}
    assert (after["vit-b-16"], after["vit-l-16"], after["vit-h-14"]) == (
        True,
        True,
        False,
    )


def test_the_list_says_which_texts_an_encoder_reads(cli):
    shown = cli("embed", "--encoders").stdout
    assert (
        "Texts (minilm): English, in 8 windows of 256 tokens, unless ?max_windows=N says how many.\n"
        in shown
    )
    assert (
        "Texts (st:NAME, hf:NAME, onnx:FILE): the languages of the model, in as many windows as hold 1,600"
        in shown
    )
    assert all(
        bool(entry.windows) == bool(entry.languages) == ("texts" in entry.kind)
        for entry in list_encoders()
    )
