"""`dppl show`."""

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest

import dppl
from dppl import PublicData
from dppl.kernel.privacy.budgets import rounded_up
from dppl.methods.model_file import describe
from dppl.statement.words import details as details_of
from dppl.statement.words import in_a_row, table, text

HEADINGS = [
    "Protected",
    "Neighbours",
    "Treated as public",
    "Assumed",
    "Not covered",
    "Made with",
]


def words(text):
    """Join what was wrapped for the terminal."""
    return " ".join(text.split())


def test_people_see_the_facts_and_the_whole_guarantee(model, cli):
    result = cli("show", model)
    assert (result.exit_code, result.stderr) == (0, "")
    shown = words(result.stdout)
    for fact in ("estimator MeanPrototypes", "classes 3: cat, dog, gnu", "features 8"):
        assert fact in shown
    loaded = dppl.load(model)
    assert words(loaded.guarantee_.summary()) in shown
    details = details_of(loaded.guarantee_)
    assert [heading for _, heading, _ in details] == HEADINGS
    assert (
        words(
            " ".join(
                " ".join([heading, *(f"- {item}" for item in items)])
                for _, heading, items in details
            )
        )
        in shown
    )
    release = loaded.guarantee_.releases[0]
    assert f"noise_std = {release.parameters['noise_std']:.6g}" in shown
    assert "rho = 10000" in shown
    assert f"mu = {rounded_up(release.cost['mu'])}" in shown
    assert text(release.mechanism) in result.stdout


def test_machines_get_the_description(model, cli):
    result = cli("show", model, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    computed = {
        "implied": dppl.load(model).guarantee_.implied(),
        "file_sha256": hashlib.sha256(model.read_bytes()).hexdigest(),
    }
    assert json.loads(result.stdout) == {**describe(model), **computed}


def test_trust_lists_the_files_with_their_hashes(model, cli, error_line):
    code = json.loads(cli("show", model, "--trust", "--json").stdout)
    root = Path(dppl.__file__).parent
    for one in code["files"]:
        content = (root / one["path"]).read_bytes()
        assert one["sha256"] == hashlib.sha256(content).hexdigest()
    listed = [one["path"] for one in code["files"] if not one["when"]]
    assert "kernel/queries/sums.py" in listed
    assert "kernel/queries/softmax_gradients.py" not in listed
    shown = cli("show", model, "--trust").stdout
    assert all(path in shown for path in listed)
    refused = cli("show", model, "--trust", "--for", "hub")
    assert (
        error_line(refused) == "--trust is a list by itself; leave --out and --for out."
    )


def test_the_numbers_of_the_guarantee_stand_in_a_table(model, cli):
    shown = [line.strip() for line in cli("show", model).stdout.splitlines()]
    for name, value in table(dppl.load(model).guarantee_):
        assert [
            line
            for line in shown
            if line.startswith(f"{name}  ") and line.endswith(f"  {value}")
        ]


def cells_of(shown):
    """Return the rows of the table of releases, each cell as its lines."""
    rows = []
    for line in shown.splitlines():
        if line.startswith("│"):
            cells = [cell.strip() for cell in line.strip("│").split("│")]
            if re.match(r"\d+( to \d+, each)?: ", cells[0]):
                rows.append([[] for _ in cells])
            for lines, cell in zip(rows[-1], cells, strict=True):
                lines += [cell] * bool(cell)
    return rows


def test_every_release_is_readable_in_80_columns(task, cli):
    dppl.SoftmaxPrototypes(dppl.GaussianDP(0.7), classes=["cat", "dog", "gnu"]).fit(
        task.X, task.y
    ).save(task.out)
    shown = cli("show", task.out, COLUMNS="80").stdout
    assert max(map(len, shown.splitlines())) <= 80
    assert "…" not in shown
    rows = cells_of(shown)
    releases = in_a_row(dppl.load(task.out).guarantee_.releases)
    assert len(rows) == len(releases) > 3
    assert rows[-1][0][0].startswith("6: ")
    for (what, noise, cost), (release, _) in zip(rows, releases, strict=True):
        assert (
            f"{text(release.statistic)}, by the {text(release.mechanism)}"
            in " ".join(what)
        )
        assert f"noise_std = {release.parameters['noise_std']:.6g}".replace(
            "e+0", "e+"
        ) in " ".join(noise)
        assert cost == [
            f"{name} = {rounded_up(release.cost[name])}" for name in ("mu", "rho")
        ]
        assert all(
            float(line.split()[-1]) >= release.cost[line.split()[0]] for line in cost
        )


def test_long_class_lists_are_cut(task, cli):
    names = [f"class-{i:02}" for i in range(23)]
    dppl.MeanPrototypes(dppl.ZCDP(1.0), classes=names).fit(task.X[:2], names[:2]).save(
        task.out
    )
    shown = words(cli("show", task.out).stdout)
    assert "classes 23: class-00, " in shown
    assert "class-19 and 3 more" in shown
    assert "class-20" not in shown


def test_public_prototypes_name_their_rows(task, cli):
    estimator = dppl.PublicPrototypes(
        dppl.PureDP(1.0), classes=["cat", "dog", "gnu"], n_prototypes=2, random_state=1
    )
    estimator.set_params(public=PublicData(task.X_public)).fit(task.X, task.y).save(
        task.out
    )
    table = cli("show", task.out).stdout.split("public rows, by id or counted from 1")[
        1
    ]
    shown = [
        [cell.strip() for cell in line.split("│")[1:-1]]
        for line in table.splitlines()
        if "│" in line
    ]
    rows = (np.ravel(estimator.public_indices_) + 1).astype(str)
    assert shown == [
        list(pair) for pair in zip(["cat", "", "dog", "", "gnu", ""], rows, strict=True)
    ]


def test_an_encoder_is_named(task, cli):
    estimator = dppl.MeanPrototypes(dppl.ZCDP(1.0), classes=["a", "b"]).fit(
        task.X[:2], ["a", "b"]
    )
    estimator.encoder_ = "minilm"
    estimator.save(task.out)
    assert "encoder minilm" in words(cli("show", task.out).stdout)


@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_texts_of_a_foreign_model_cannot_steer_the_terminal(as_json, task, cli):
    names = ["[red]x[/red]", "beep\x07\x1b[2J", "line\nbreak", ":smile:"]
    dppl.MeanPrototypes(dppl.ZCDP(1.0), classes=names).fit(task.X[:2], names[:2]).save(
        task.out
    )
    result = cli("show", task.out, *as_json)
    assert result.exit_code == 0
    assert "[red]x[/red]" in result.stdout
    assert ":smile:" in result.stdout
    assert "line\\nbreak" in result.stdout
    assert not set(result.stdout) & {"\x07", "\x1b"}


def damaged(content):
    return {
        "truncated": content[:-7],
        "empty": b"",
        "foreign": b"hello, this is no model" * 10,
        "other format": content.replace(b'"format\\":', b'"f0rmat\\":').replace(
            b'\\"format\\"', b'\\"f0rmat\\"'
        ),
    }


@pytest.mark.parametrize("kind", damaged(b""))
@pytest.mark.parametrize("as_json", [[], ["--json"]])
def test_a_damaged_file_is_one_line(kind, as_json, model, cli, error_line):
    model.write_bytes(damaged(model.read_bytes())[kind])
    result = cli("show", model, *as_json)
    assert result.exit_code == 4
    assert model.name in error_line(result)


def test_a_missing_file_is_one_line(cli, error_line):
    result = cli("show", "nowhere.safetensors")
    assert result.exit_code == 4
    assert "nowhere.safetensors" in error_line(result)


def test_every_command_refuses_a_model_with_a_flipped_weight(
    model, task, cli, error_line
):
    content = model.read_bytes()
    model.write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])
    for command in (
        ("show", model),
        ("show", model, "--out", task.folder / "page.html"),
        ("predict", model, task.table),
        ("evaluate", model, task.table),
        ("export", model, "--to", "torch", "--out", task.folder / "model.pt2"),
        ("serve", model),
    ):
        result = cli(*command)
        assert result.exit_code == 4
        assert "is damaged: its checksum is not the one of its content" in error_line(
            result
        )


def test_bytes_changed_anywhere_are_refused(model, cli):
    content = model.read_bytes()
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(content), 30).tolist():
        changed = bytearray(content)
        changed[place] ^= int(rng.integers(1, 256))
        model.write_bytes(changed)
        assert cli("show", model).exit_code == 4


def test_the_epsilon_at_a_delta_that_is_asked_for(model, cli):
    guarantee = dppl.load(model).guarantee_
    assert f"epsilon at delta = 1e-7 {rounded_up(guarantee.epsilon(1e-7), 4)}" in words(
        cli("show", model, "--delta", 1e-7).stdout
    )
    implied = json.loads(cli("show", model, "--delta", 1e-7, "--json").stdout)[
        "implied"
    ]["epsilon"]
    assert [at["delta"] for at in implied] == [1e-5, 1e-6, 1e-7, 1e-8]
    assert implied[2]["epsilon"] == guarantee.epsilon(1e-7)
    assert cli("show", model, "--delta", 1e-7, "--for", "hub").exit_code == 2
    assert cli("show", model, "--delta", 2).exit_code == 2


def test_the_card_carries_the_hash_of_the_file(tmp_path, cli):
    path = tmp_path / "m.safetensors"
    dppl.MeanPrototypes(dppl.ZCDP(1.0), classes=["a", "b"]).fit(
        [[1.0, 0.0], [0.0, 1.0]], ["a", "b"]
    ).save(path)
    result = cli("show", path, "--for", "hub")
    assert result.exit_code == 0
    assert result.stdout.startswith("---\nlibrary_name")
    assert hashlib.sha256(path.read_bytes()).hexdigest() in result.stdout
    assert cli("show", path, "--for", "hub", "--json").exit_code == 2


def test_the_page_for_a_data_protection_officer(model, cli, error_line):
    said = cli("show", model, "--for", "dpo", "--purpose", "Sort referrals.")
    assert said.exit_code == 0
    assert said.stdout.startswith("# Data protection summary of model.safetensors\n")
    assert "Sort referrals." in said.stdout
    page = model.with_name("dpo.html")
    assert cli("show", model, "--for", "dpo", "--out", page).exit_code == 0
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    german = cli("show", model, "--for", "dpo", "--language", "de")
    assert german.stdout.startswith("# Datenschutz-Kurzbericht zu model.safetensors\n")
    for wrong in (
        ["--for", "dpo", "--json"],
        ["--for", "dpo", "--language", "it"],
        ["--language", "de"],
        ["--purpose", "x"],
        ["--for", "nobody"],
        ["--for", "dpo", "--out", "x.json"],
    ):
        result = cli("show", model, *wrong)
        assert result.exit_code == 2
        error_line(result)
