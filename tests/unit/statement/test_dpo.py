"""One page for a data protection officer, in several languages: another rendering of the statement."""

import re
import subprocess

import numpy as np
import pytest

import dppl
from browsing import chromium
from dppl import ApproxDP, GaussianDP, MeanPrototypes, PublicData, SoftmaxPrototypes
from dppl.continual import ContinualPrototypes
from dppl.errors import ParameterError
from dppl.kernel.privacy.budgets import rounded_up
from dppl.statement import Report, german, make_report
from dppl.statement.words import text
from unit.statement.contents import NAMES, everything, fitted

RNG = np.random.default_rng(0)
X = RNG.normal(size=(40, 6))
Y = np.array(list("abc"))[RNG.integers(0, 3, 40)]
BUDGET = ApproxDP(1.0, 1e-6)


def stream():
    model = ContinualPrototypes(BUDGET, list("abc"), tasks="overlapping")
    return model.partial_fit(X, Y).partial_fit(X, Y)


# What a page says of each kind of model and of no other.
KINDS = {
    "of records": (
        lambda: SoftmaxPrototypes(BUDGET, list("abc")).fit(X, Y),
        "A person with several records is protected",
    ),
    "of persons": (
        lambda: SoftmaxPrototypes(BUDGET, list("abc")).fit(
            X, Y, groups=np.arange(40) // 3
        ),
        "Each person, with all of their records.",
    ),
    "replaced": (
        lambda: MeanPrototypes(BUDGET, list("abc"), adjacency="replace-one").fit(X, Y),
        "The number of records is treated as public.",
    ),
    "a stream": (stream, "for the models after each of 2 tasks together"),
    "seeded": (
        lambda: MeanPrototypes(BUDGET, list("abc"), random_state=0).fit(X, Y),
        "Not for release: the noise came",
    ),
    "of examples alone": (
        lambda: SoftmaxPrototypes(
            GaussianDP(0),
            list("abc"),
            public=PublicData(
                examples=RNG.normal(size=(3, 6)), example_classes=list("abc")
            ),
        ).fit(X, Y),
        "Nothing was released from private records",
    ),
    "of several labels": (
        lambda: dppl.methods.MultiLabelPrototypes(
            BUDGET, list("abc"), max_labels=2
        ).fit(X, [[y] for y in Y]),
        "where labels of a record are counted, at most 2 are",
    ),
}


def plain(text):
    return " ".join(text.split())


def test_every_kind_of_model_has_a_page_of_its_own_words():
    pages = {
        name: plain(fit().report().markdown(for_="dpo"))
        for name, (fit, _) in KINDS.items()
    }
    for name, (_, sentence) in KINDS.items():
        usual = name in ("of records", "of several labels")
        assert sentence in pages[name], name
        others = [
            other for other, page in pages.items() if sentence in page and other != name
        ]
        assert usual or not others, (name, others)
    for page in pages.values():
        assert "{" not in page
        for heading in (
            "Purpose",
            "Whom it protects",
            "Who could see what",
            "What risk remains",
            "Terms of the GDPR",
        ):
            assert f"## {heading} " in page


def test_a_trained_network_has_one_too(tmp_path):
    report = everything(NAMES).dict()
    report["model"] |= {"network": True, "item": "image"}
    page = plain(Report(report).markdown(for_="dpo"))
    assert "The model assigns one of 10 classes to an image." in page
    assert "which trains some weights of a public network" in page


def test_the_figures_are_those_of_the_guarantee():
    model = SoftmaxPrototypes(BUDGET, list("abc")).fit(X, Y)
    page = plain(model.report(purpose="Sort referrals.").markdown(for_="dpo"))
    guarantee = model.guarantee_
    assert (
        f"epsilon = {rounded_up(guarantee.epsilon(1e-6), 4)} at delta = 1e-6 (mu = {rounded_up(guarantee.mu, 4)})"
        in page
    )
    assert (
        f"in at most {np.ceil(1e4 * guarantee.best_guess()) / 100:g} % of cases" in page
    )
    assert "## Purpose Sort referrals." in page
    for item in (
        *guarantee.not_covered,
        *guarantee.assumptions,
        *guarantee.public_inputs,
    ):
        assert text(item) in page
    assert "To be filled in by the controller: ..." in plain(
        model.report().markdown(for_="dpo")
    )


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "{{ 7 * 7 }}", "a\x1b[31mb", '**bold** & "q"']
)
def test_foreign_text_is_text(text):
    report = fitted(["a", "b"]).report(by=text, purpose=text)
    page = report.html(for_="dpo")
    markdown = report.markdown(for_="dpo")
    assert "<script>" not in page
    assert "49" not in page.partition("SHA-256")[0]
    assert not {"\x1b", "\x07"} & set(markdown)


def test_the_account_is_on_the_page(tmp_path):
    ledger = dppl.Ledger(tmp_path / "ledger.db", "wards", ApproxDP(2.0, 1e-6))
    model = MeanPrototypes(BUDGET, list("abc")).fit(X, Y, ledger=ledger)
    assert "Charged as: wards, release 1." in plain(model.report().markdown(for_="dpo"))
    model.save(tmp_path / "m.safetensors")
    page = plain(
        make_report(tmp_path / "m.safetensors", ledger=ledger).markdown(for_="dpo")
    )
    assert "wards: epsilon 1" in page


LANGUAGES = ("en", "de", "fr")
NUMBER = re.compile(r"\d+(?:[.,]\d+)*(?:e-?\d+)?")


def pages(report):
    return {one: report.markdown(for_="dpo", language=one) for one in LANGUAGES}


def numbers(page):
    """Return the numbers of a page in any order, as they are written in English."""
    return sorted(one.replace(",", ".") for one in NUMBER.findall(page))


@pytest.mark.parametrize("name", KINDS)
def test_the_numbers_of_all_languages_agree(name, monkeypatch):
    report = KINDS[name][0]().report()
    said = pages(report)
    assert len({*said.values()}) == len(LANGUAGES)
    assert numbers(said["en"]) == numbers(said["de"]) == numbers(said["fr"])
    # The control: a language that knows another coin.
    other = {one: text.replace("50 %", "40 %") for one, text in german.PAGE.items()}
    other["check"] = "{sha256} 1"
    monkeypatch.setattr(german, "PAGE", other)
    assert numbers(pages(report)["de"]) != numbers(said["en"])


def test_decimals_are_written_as_the_language_does():
    said = pages(SoftmaxPrototypes(BUDGET, list("abc")).fit(X, Y).report())
    assert "mu = 0.2368" in plain(said["en"])
    assert "ε = 1 bei δ = 1e-6 (μ = 0,2368)" in plain(said["de"])
    assert "ε = 1 pour δ = 1e-6 (μ = 0,2368)" in plain(said["fr"])


def test_a_page_names_its_language_and_there_are_no_others():
    report = fitted(["a", "b"]).report()
    assert '<html lang="de">' in report.html(for_="dpo", language="de")
    assert "<h2>Finalité</h2>" in report.html(for_="dpo", language="fr")
    with pytest.raises(ParameterError, match=r"^language must be one of"):
        report.html(for_="dpo", language="it")
    with pytest.raises(ParameterError, match=r"^for_ must be one of 'dpo'"):
        report.html(for_="nobody")


@pytest.mark.slow
@pytest.mark.skipif(chromium() is None, reason="there is no Chromium")
@pytest.mark.parametrize("which", ["of persons", "of several labels"])
def test_the_page_prints_on_one_sheet(which, tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    page = folder / "page.html"
    printed = folder / "page.pdf"
    report = KINDS[which][0]().report(
        by="Ward 7, City Hospital", purpose="Sort letters by the diagnoses they name."
    )
    page.write_text(report.html(for_="dpo"), encoding="utf-8")
    command = [
        chromium(),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-pdf-header-footer",
    ]
    subprocess.run(
        [*command, f"--print-to-pdf={printed}", page.as_uri()],
        check=True,
        capture_output=True,
        timeout=120,
    )
    assert printed.read_bytes().count(b"/Type /Page\n") == 1


def test_a_page_claims_nothing_that_a_seed_or_no_release_makes_wrong():
    usual, seeded, public = (
        plain(KINDS[name][0]().report().markdown(for_="dpo"))
        for name in ("of records", "seeded", "of examples alone")
    )
    assert ("against every attack" in usual, "are results with noise" in usual) == (
        True,
        True,
    )
    assert (
        "against every attack" in seeded,
        "who cannot guess the seed" in seeded,
    ) == (False, True)
    assert "results with noise" not in public
