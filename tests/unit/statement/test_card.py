import dataclasses
import json
import re

import numpy as np
import pytest
import yaml

import dppl
from dppl._utils.fingerprint import Fingerprint
from dppl.errors import InputError
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.budgets import rounded_up
from dppl.methods.model_file import describe
from dppl.statement import model_card, words
from unit.statement.contents import described, evaluated, fitted, privately_evaluated


@pytest.fixture(params=["released", "seeded"])
def description(request, tmp_path):
    seed = None if request.param == "released" else 3
    model = dppl.MeanPrototypes(
        dppl.ApproxDP(1.0, 1e-6), classes=["a|b", "<script>"], random_state=seed
    )
    model.fit(np.eye(4)[:3], ["a|b", "a|b", "<script>"]).save(
        tmp_path / "m.safetensors"
    )
    return describe(tmp_path / "m.safetensors")


def front_matter(card):
    """Read the YAML header, whose values are JSON, which YAML contains: both readers must see the same."""
    header = card.split("---\n")[1]
    fields = {
        name: json.loads(value)
        for name, value in (line.split(": ", 1) for line in header.splitlines())
    }
    assert yaml.safe_load(header) == fields
    return fields


def test_the_header_names_the_budget_for_machines(description):
    fields = front_matter(model_card(description, sha256="00ff"))
    privacy = fields["differential_privacy"]
    assert (privacy["notion"], privacy["epsilon"], privacy["delta"]) == (
        "approximate DP",
        1.0,
        1e-6,
    )
    assert (privacy["unit"], privacy["adjacency"]) == ("record", "add-remove")
    assert privacy["secure_noise"] == description["guarantee"]["secure_noise"]
    assert fields["model_sha256"] == "00ff"


def test_numbers_are_numbers_for_readers_of_old_yaml(description):
    """YAML 1.1 takes 1e-06 for a text; it wants a point."""
    (line,) = [
        line
        for line in model_card(description).splitlines()
        if line.startswith("differential_privacy")
    ]
    assert '"delta": 1.0e-06' in line


@pytest.mark.parametrize(
    "budget", [dppl.GaussianDP(1.0), dppl.ZCDP(0.5), dppl.ApproxDP(1.0, 1e-5)], ids=str
)
def test_budgets_of_all_notions_are_put_in_mu_and_one_epsilon(budget, tmp_path):
    model = dppl.MeanPrototypes(budget, classes=[0]).fit(np.eye(2), [0, 0])
    model.save(tmp_path / "m.safetensors")
    privacy = front_matter(model_card(describe(tmp_path / "m.safetensors")))[
        "differential_privacy"
    ]
    assert {name: privacy[name] for name in budget.to_dict()} == budget.to_dict()
    (release,) = model.guarantee_.releases
    assert privacy["implied_mu"] == release.cost["mu"]
    assert (
        privacy["implied_epsilon"]
        == dppl.GaussianDP(release.cost["mu"]).to_approx(1e-6).epsilon
    )
    assert privacy["implied_delta"] == 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("delta", [1e-7, 1e-5])
def test_sums_over_samples_imply_no_mu_and_an_epsilon_by_their_noise(delta, tmp_path):
    model = dppl.methods.LinearProbe(
        dppl.ApproxDP(1.0, delta),
        [0, 1],
        sampling_rate=0.1,
        batch_size=3,
        steps=3,
        random_state=0,
    )
    model.fit(np.eye(4), [0, 1, 0, 1]).save(tmp_path / "m.safetensors")
    privacy = front_matter(model_card(describe(tmp_path / "m.safetensors")))[
        "differential_privacy"
    ]
    assert {name for name in privacy if name.startswith("implied")} == {
        "implied_epsilon",
        "implied_delta",
    }
    assert privacy["implied_epsilon"] == model.guarantee_.epsilon(1e-6)
    assert (privacy["implied_epsilon"] < 1.0) == (delta < 1e-6)


def test_the_numbers_stand_in_a_table(description):
    card = model_card(description)
    guarantee = Guarantee.from_dict(description["guarantee"])
    rows = "\n".join(f"| {name} | {value} |" for name, value in words.table(guarantee))
    assert f"|  |  |\n|---|---|\n{rows}\n" in card
    assert "| mu, Gaussian DP | " in rows
    assert guarantee.summary() in card


def test_the_card_says_everything_a_reviewer_asks(description):
    card = model_card(description)
    release = description["guarantee"]["releases"][0]
    guarantee = Guarantee.from_dict(description["guarantee"])
    wanted = [
        words.text(guarantee.releases[0].mechanism),
        words.text(guarantee.releases[0].statistic),
        f"sensitivity {rounded_up(release['sensitivity'])}",
    ]
    wanted += [
        f"{name} = {rounded_up(value)}" for name, value in release["cost"].items()
    ]
    wanted += [
        words.text(guarantee.neighbours),
        *words.texts(guarantee.assumptions),
        *words.texts(guarantee.public_inputs),
        *words.texts(guarantee.not_covered),
    ]
    for text in wanted:
        assert text in card.replace("\\", "")
    assert ("NOT FOR RELEASE" in card) == (not description["guarantee"]["secure_noise"])


def test_examples_of_the_classes_are_on_the_card(description):
    assert "public examples" not in model_card(description)
    classes = description["classes"]
    counts = [2] + [0] * (len(classes) - 1)
    card = model_card(description | {"examples": {"counts": counts, "texts": None}})
    assert f"| public examples | 2, for 1 of {len(classes)} classes |" in card
    assert "public descriptions" not in card
    texts = [["a|b", "<i>"], *[[]] * (len(classes) - 1)]
    card = model_card(description | {"examples": {"counts": counts, "texts": texts}})
    (line,) = [
        line for line in card.splitlines() if line.startswith("| public descriptions |")
    ]
    assert line.endswith(": a\\|b / &lt;i> |")


def test_texts_of_a_foreign_file_stay_in_their_cells(description):
    description["encoder"] = "evil\n# heading | <img src=x>"
    card = model_card(description).split("---\n", 2)[2]
    assert "\n# heading" not in card
    assert "<img" not in card
    assert "<script>" not in card
    assert "a\\|b" in card


@pytest.mark.parametrize(
    "text",
    ["![x](https://example.org/x.png)", r"\![x](https://example.org)", r"\\[x][y]"],
)
def test_texts_of_a_foreign_file_become_no_image_or_link(description, text):
    """A hub would load the image for everybody who reads the card."""
    description["classes"], description["guarantee"]["not_covered"][0] = (
        [text, f"{text} 2"],
        {"code": "stated", "text": text},
    )
    shown = model_card(description).split("---\n", 2)[2]
    assert re.search(r"(?<!\\)(?:\\\\)*\[", shown) is None
    assert re.sub(r"\\([\\\[\]_`*~|])", r"\1", shown).count(text) == 3


def test_code_of_a_foreign_file_is_one_word_of_the_shell(description):
    network = {
        name: description[name]
        for name in ("guarantee", "parameters", "classes", "written_by")
    }
    network |= {
        "estimator": "Finetuned",
        "encoder": encoder('python:a"; $(reboot) "'),
        "n_trained": 1,
        "n_steps": 1,
    }
    shown = model_card(network | {"noise_multiplier": 1.0, "module": "m"})
    assert """--encoder 'python:a"; $(reboot) "' >""" in shown


def test_hubs_read_licence_task_and_base_model(description):
    fields = front_matter(model_card(description))
    assert (fields["license"], fields["pipeline_tag"]) == (
        "unknown",
        "tabular-classification",
    )
    assert "base_model" not in fields
    assert (
        front_matter(model_card(description, license="apache-2.0"))["license"]
        == "apache-2.0"
    )


def encoder(uri):
    return Fingerprint(uri, "l", "w", "p", "p", "float32", "cpu", "b", "v", True).text()


@pytest.mark.parametrize(
    ("uri", "base", "task", "code"),
    [
        (
            "minilm",
            "sentence-transformers/all-MiniLM-L6-v2",
            "text-classification",
            "PrivateClassifier.load",
        ),
        (
            "st:intfloat/e5-small?batch=1",
            "intfloat/e5-small",
            "text-classification",
            '"a text"',
        ),
        (
            "hf:facebook/dinov2-large?pooling=cls",
            "facebook/dinov2-large",
            "tabular-classification",
            "dppl.load",
        ),
        ("vit-l-16", "facebook/dinov2-large", "image-classification", '"a.jpg"'),
        ("vit-b-16", None, "image-classification", '"a.jpg"'),
        (
            "e5-small",
            "intfloat/multilingual-e5-small",
            "text-classification",
            '"a text"',
        ),
        ("st:folder", None, "text-classification", '"a text"'),
        ("onnx:net.onnx", None, "tabular-classification", "dppl.load"),
    ],
)
def test_the_encoder_says_base_model_task_and_code(description, uri, base, task, code):
    card = model_card(description | {"encoder": encoder(uri)})
    fields = front_matter(card)
    assert (fields.get("base_model"), fields["pipeline_tag"]) == (base, task)
    assert code in card
    assert 'dppl.load("model.safetensors")' in card


def test_the_code_of_the_card_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    model = dppl.SoftmaxPrototypes(dppl.GaussianDP(1.0), classes=["a", "b"]).fit(
        np.eye(4), ["a", "a", "b", "b"]
    )
    model.save("model.safetensors")
    card = model_card(describe("model.safetensors"))
    (code,) = [part.split("```")[0] for part in card.split("```python\n")[1:]]
    names = {"embeddings": np.eye(4)}
    exec(code, names)
    assert names["labels"].tolist() == model.predict(np.eye(4)).tolist()
    assert "of shape (n, 4)" in code
    assert str(model.guarantee_) in capsys.readouterr().out
    assert card.count("sum of clipped gradients") == 1
    assert "rounded Gaussian, 16 times" in card


def test_a_card_has_a_private_evaluation_and_no_exact_numbers():
    description = described(fitted(["a|b", "b"]))[0]
    card = model_card(description, results=privately_evaluated(["a|b", "b"]))
    assert "| a\\|b | 0.80 (0.70 to 0.90) | cannot tell | 20 (10 to 30) |" in card
    assert card.index("## How good it is") < card.index("\n\n## Guarantee")
    assert "How good it is" not in model_card(description)
    with pytest.raises(InputError, match="takes a private evaluation"):
        model_card(description, results=evaluated(["a|b", "b"]))


def test_the_card_says_which_texts_are_read_and_how_much_of_them(description):
    reads = "tokens ab12, at most 256, 8 windows"
    for uri, preprocessing, texts in (
        (
            "minilm",
            reads,
            "English, read in 8 windows of 256 tokens at most, and no further",
        ),
        (
            "minilm?max_windows=1",
            "tokens ab12, at most 256",
            "English, read in 1 window of 256 tokens at most",
        ),
        (
            "st:a/b",
            reads,
            "languages as its authors say, read in 8 windows of 256 tokens at most",
        ),
    ):
        named = dataclasses.replace(
            Fingerprint.parse(encoder(uri)), preprocessing=preprocessing
        ).text()
        assert f"| texts | {texts}" in model_card(description | {"encoder": named})
    assert "| texts |" not in model_card(description | {"encoder": encoder("pixels")})
