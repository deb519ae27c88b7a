"""Public descriptions of the classes: which there are by default, in which forms they come, and what is refused."""

import tempfile
from dataclasses import replace

import numpy as np
import pytest

import dppl
from dppl import ZCDP, GaussianDP, PrivateClassifier, PublicData
from dppl.encoders import load_encoder
from dppl.errors import InputError, ParameterError
from dppl.methods.public_data import ExamplesKept
from dppl.training import classifier as classifier_module
from dppl.training import pipeline
from dppl.training.descriptions import (
    Descriptions,
    are_words,
    described,
    embed_examples,
    names_by_default,
    words_of,
)

CLASSES = ["dog", "cat", "gnu"]  # not sorted
TEXTS = ["abc", "fgh", "klm", "abca", "fghf"]
Y = ["cat", "dog", "gnu", "cat", "dog"]


def make(descriptions="auto", classes=CLASSES, **options):
    options = {"random_state": 3, **options}
    return PrivateClassifier(
        "letters",
        options.pop("budget", GaussianDP(1.0)),
        classes,
        descriptions=descriptions,
        **options,
    )


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["card_arrival", "reverted_card_payment?"], True),
        (["non-smoker", "smoker"], True),
        (["Ärger", "Freude"], True),
        (["class a", "class b"], False),  # one letter is no word
        (["spam", "2"], False),
        (["C50.1", "C50.2"], False),
        (["class_1", "class_2"], False),
        (["grade 1 tumour", "grade 2 tumour"], False),
        (["label10", "label11"], False),
        ([0, 1, 2], False),
        ([0.5, 1.5], False),
        ([True, False], True),
        (["", "a"], False),
    ],
)
def test_names_are_words_or_not(names, expected):
    assert are_words(names) == expected


def test_names_become_words():
    assert [words_of(name) for name in ("a_b-c?", "  two  words ", "_x_", 7)] == [
        "a b c",
        "two words",
        "x",
        "7",
    ]


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize(
    ("descriptions", "texts"),
    [
        ("auto", [["cat"], ["dog"], ["gnu"]]),
        ("names", [["cat"], ["dog"], ["gnu"]]),
        ({"cat": "abc", "gnu": ["klm", "mlk"]}, [["abc"], [], ["klm", "mlk"]]),
        (
            {"dog": ["fgh", "ghf"], "cat": None, "gnu": "klm"},
            [[], ["fgh", "ghf"], ["klm"]],
        ),
    ],
    ids=["auto", "names", "mapping", "gaps"],
)
def test_every_form_becomes_examples(descriptions, texts):
    model = make(descriptions).fit(TEXTS, Y)
    kept = ExamplesKept(tuple(map(len, texts)), tuple(map(tuple, texts)))
    assert model.model_.examples_ == kept
    assert "written or chosen by looking at private records" in str(model.guarantee_)
    direct = dppl.SoftmaxPrototypes(GaussianDP(1.0), CLASSES, random_state=3)
    source = described(
        {name: text for name, text in zip(sorted(CLASSES), texts, strict=True)}, direct
    )
    rows = embed_examples(source, load_encoder("letters"), rows="float16")
    assert (
        direct.set_params(public=PublicData(examples=rows, example_classes=rows.y))
        .plan(27)
        .guarantee
        == model.guarantee_
    )


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize(
    "options",
    [
        {"descriptions": None},
        {"classes": ["one1", "two2"]},
        {"method": "mean"},
        {"options": {"adjacency": "replace-one"}},
    ],
)
def test_without_descriptions_nothing_is_said_of_them(options):
    labels = [options.get("classes", CLASSES)[0]] * len(TEXTS)
    model = make(**options).fit(TEXTS, labels)
    assert model.model_.examples_ is None
    assert "X_examples" not in str(model.guarantee_)


def test_by_default_names_are_for_texts_alone():
    encoder = load_encoder("pixels")
    images = np.zeros((3, 8, 8), np.uint8)
    model = PrivateClassifier(encoder, GaussianDP(1.0), CLASSES).fit(images, CLASSES)
    assert model.model_.examples_ is None
    with pytest.raises(
        ParameterError,
        match=r"descriptions must be a folder with a subfolder .* pixels embeds images",
    ):
        model.set_params(descriptions="names").fit(images, CLASSES)


@pytest.mark.usefixtures("letters")
def test_numbers_and_their_texts_are_one_class():
    model = make({"1": "abc", 0: "fgh"}, classes=[0, 1]).fit(TEXTS, [0, 1, 0, 1, 0])
    assert model.model_.examples_.texts == (("fgh",), ("abc",))


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"descriptions": "all"},
            ParameterError,
            "descriptions must be 'auto', 'names', None, a mapping .*; got 'all'",
        ),
        ({"descriptions": 3}, ParameterError, "descriptions must be 'auto'"),
        (
            {"descriptions": {"a", "b", "c"}},
            ParameterError,
            "descriptions must be 'auto'",
        ),
        (
            {"descriptions": ["a", "b", "c"]},
            ParameterError,
            "descriptions must be 'auto'",
        ),
        ({"descriptions": {"cat": 3}}, ParameterError, "'cat' has another type"),
        ({"descriptions": {"cat": [3]}}, ParameterError, "'cat' has another type"),
        (
            {"descriptions": {"cow": "a", "cat": "b", "yak": "c"}},
            InputError,
            "list only; it has no 'cow', 'yak'",
        ),
        (
            {"descriptions": {f"c{i}": "a" for i in range(9)}},
            InputError,
            "'c4' and 4 more",
        ),
        (
            {"descriptions": {}},
            InputError,
            "descriptions must describe at least one class",
        ),
        (
            {"descriptions": {"cat": []}},
            InputError,
            "descriptions must describe at least one class",
        ),
        (
            {"descriptions": {"cat": "  "}},
            InputError,
            "the description '  ' of 'cat': it is empty",
        ),
        ({"descriptions": {"cat": "\ud800"}}, InputError, "it is not UTF-8"),
        (
            {"descriptions": "names", "method": "mean"},
            ParameterError,
            "no effect with MeanPrototypes",
        ),
        (
            {"descriptions": "names", "method": "public"},
            ParameterError,
            "no effect with PublicPrototypes",
        ),
    ],
)
def test_what_describes_no_class_is_refused(options, error, words):
    with pytest.raises(error, match=words):
        make(**options).fit(TEXTS, Y)


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize(
    ("name", "content", "error", "words"),
    [
        *[
            (
                "a.csv",
                content,
                InputError,
                "must be a CSV file in UTF-8 with the columns class and text",
            )
            for content in (
                b"class,text\ncat,abc,d\n",
                b"class,text\ncat\n",
                b'class,text\ncat,"abc\n',
                b"class,text\ncat,\xff\n",
                b"class;text\ncat;abc\n",
                b"",
            )
        ],
        ("cat/1.png", b"no image", InputError, r"cat/1.png: it is not an image"),
        (
            "1.png",
            b"no image",
            InputError,
            "must hold a subfolder of images for each class",
        ),
        (
            "cow/1.png",
            b"no image",
            InputError,
            "must describe classes of the list only; it has no 'cow'",
        ),
        ("none", None, FileNotFoundError, "there is no file or folder"),
    ],
)
def test_files_that_describe_no_class_are_refused(
    name, content, error, words, tmp_path
):
    path = tmp_path / "given" / name
    path.parent.mkdir(parents=True)
    if content is not None:
        path.write_bytes(content)
    given = (
        path.parents[len(path.relative_to(tmp_path).parts) - 2]
        if path.suffix == ".png"
        else path
    )
    model = make(given)
    X = TEXTS
    if path.suffix == ".png":
        model = PrivateClassifier(
            "pixels", GaussianDP(1.0), CLASSES, descriptions=given
        )
        X = np.zeros((5, 8, 8), np.uint8)
    with pytest.raises(error, match=words):
        model.fit(X, Y)


@pytest.mark.usefixtures("letters")
def test_images_do_not_describe_texts(tmp_path):
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").touch()
    with pytest.raises(
        ParameterError,
        match="descriptions must be texts, since letters embeds texts only",
    ):
        make(tmp_path).fit(TEXTS, Y)


@pytest.mark.usefixtures("letters")
def test_private_items_are_no_descriptions():
    texts = ["abc", "fgh", "klm"]
    with pytest.raises(
        ParameterError,
        match="descriptions must be public data; got the private rows themselves",
    ):
        make({"cat": texts}).fit(texts, CLASSES)
    X = np.random.default_rng(0).standard_normal((6, 4))
    with pytest.raises(
        ParameterError,
        match=r"public.examples must be public data; got the private rows themselves",
    ):
        dppl.SoftmaxPrototypes(
            GaussianDP(1.0),
            [0, 1],
            public=PublicData(examples=X[:2], example_classes=[0, 1]),
        ).fit(X, [0, 1] * 3)


def test_the_default_looks_at_public_things_only(letters):
    """Whatever the private labels are, the same classes are described; the source of records is not even opened."""
    estimator = dppl.SoftmaxPrototypes(GaussianDP(1.0), ["x1", "dog"])
    assert names_by_default(estimator, letters) is None
    estimator.set_params(classes=CLASSES)
    assert [text for _, text in names_by_default(estimator, letters).texts] == CLASSES
    models = [
        make().fit(TEXTS[:n], labels).model_
        for n, labels in ((3, ["cat"] * 3), (0, []), (5, Y))
    ]
    assert len({model.examples_ for model in models}) == 1


def test_long_texts_are_counted_and_not_kept(letters):
    source = Descriptions([("cat", "abc" * 40_000), ("dog", "fgh")])
    rows = embed_examples(source, letters, rows=pipeline.ROWS)
    model = dppl.SoftmaxPrototypes(GaussianDP(1.0), CLASSES)
    model.set_params(public=PublicData(examples=rows, example_classes=rows.y)).fit(
        letters.encode(TEXTS), Y
    )
    assert model.examples_ == ExamplesKept((1, 1, 0))
    short = replace(rows, texts=("abc", "fgh"))
    assert (
        model.set_params(public=PublicData(examples=short, example_classes=rows.y))
        .fit(letters.encode(TEXTS), Y)
        .examples_.texts
        is not None
    )
    with tempfile.NamedTemporaryFile() as file:
        model.save(file.name, overwrite=True)
        again = dppl.load(file.name)
    assert again.examples_ == model.examples_
    assert again.to_bytes() == model.to_bytes()


def test_descriptions_help_where_the_budget_is_small(letters):
    """Texts of letters that only their class has, described by these letters, at mu = 0.02.

    Over 50 other seeds the accuracy was 0.94 to 1 with descriptions, and 0.56 on
    average without, with a standard deviation of 0.2.
    """
    rng = np.random.default_rng(0)
    alphabets = {"dog": "fghij", "cat": "abcde", "gnu": "klmno"}
    y = np.repeat(CLASSES, 40)
    texts = ["".join(rng.choice(list(alphabets[name]), 12)) for name in y]
    scores = {}
    for given in (None, alphabets):
        models = [
            make(given, budget=GaussianDP(0.02), random_state=seed) for seed in range(5)
        ]
        scores[given is None] = np.mean(
            [model.fit(texts, y).score(texts, y) for model in models]
        )
    assert scores[False] > 0.9
    assert scores[True] < 0.8


def test_with_mu_of_0_no_private_item_is_embedded(letters, monkeypatch, tmp_path):
    embedded = []
    original = classifier_module.embed_items

    def embed_items(encoder, items, name, **options):
        embedded.extend([name] * bool(len(items)))
        return original(encoder, items, name, **options)

    monkeypatch.setattr(classifier_module, "embed_items", embed_items)
    model = make(
        {"dog": "fghij", "cat": "abcde", "gnu": "klmno"},
        budget=GaussianDP(0),
        random_state=None,
    ).fit(TEXTS, Y)
    assert "X" not in embedded
    assert model.guarantee_.releases == ()
    assert model.predict(["abab", "ghgh", "lmlm"]).tolist() == ["cat", "dog", "gnu"]
    embedded.clear()  # of what was predicted
    ledger = dppl.Ledger(tmp_path / "ledger.db", "records", ZCDP(1.0))
    make({"dog": "fghij", "cat": "abcde", "gnu": "klmno"}, budget=GaussianDP(0)).fit(
        TEXTS, Y, ledger=ledger
    )
    assert ledger.releases() == []
    assert "X" not in embedded
    make({"dog": "fghij", "cat": "abcde", "gnu": "klmno"}).fit(TEXTS, Y)  # the control
    assert "X" in embedded
