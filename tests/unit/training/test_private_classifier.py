"""`PrivateClassifier` does what its encoder and its estimator do one after the other, and is silent about items."""

import importlib
import io
import logging
import os
import pickle
import warnings
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer

import dppl
from dppl import (
    ZCDP,
    ApproxDP,
    LatticeOptions,
    Ledger,
    PrivateClassifier,
    PublicData,
    PureDP,
)
from dppl.encoders import load_encoder
from dppl.errors import (
    BudgetExceeded,
    InputError,
    MissingExtra,
    ParameterError,
    UnknownLabelError,
    WeakBudgetWarning,
)
from dppl.io import EmbeddingTable
from dppl.kernel import reading
from dppl.kernel.lattice import Lattice
from dppl.kernel.privacy.guarantee import Charge
from dppl.kernel.privacy.terms import Caveat, Term, Unit
from dppl.methods.registry import BY_METHOD
from dppl.training import embedding, items
from dppl.training.classifier import encoder_of_model
from laws.traces import heard

classifier = importlib.import_module("dppl.training.classifier")

ALPHABETS = {"cat": "abcde", "dog": "fghij", "gnu": "klmno"}
CLASSES = list(ALPHABETS)
SECRET = "Jane Doe, 4711"


def texts_of(names, seed):
    rng = np.random.default_rng(seed)
    return [
        "".join(rng.choice(list(ALPHABETS[name]), rng.integers(3, 30)))
        for name in names
    ]


Y = np.repeat(CLASSES, (20, 12, 5)).tolist()
TEXTS, TEST, PUBLIC = (texts_of(Y, seed) for seed in range(3))


def table(encoder, rows):
    return EmbeddingTable.of(
        np.asarray(rows, np.float32), metadata={"encoder": encoder.fingerprint.text()}
    )


def make(encoder="letters", budget=None, **options):
    return PrivateClassifier(
        encoder, budget or ZCDP(1e4), CLASSES, random_state=3, **options
    )


def image_bytes(seed=0, mode="RGB", kind="PNG", **options):
    pixels = np.random.default_rng(seed).integers(0, 256, (9, 14, 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(buffer, kind, **options)
    return buffer.getvalue()


# What it does


@pytest.mark.usefixtures("letters")
def test_texts_from_fit_to_file_and_back(tmp_path):
    model = make().set_params(public=PublicData(PUBLIC)).fit(TEXTS, Y)
    assert isinstance(model.model_, dppl.SoftmaxPrototypes)
    assert model.score(TEST, Y) == 1.0
    predicted = model.predict(TEST)
    assert predicted.tolist() == Y
    assert model.decision_function(TEST).shape == (len(Y), 3)
    assert model.classes_.tolist() == CLASSES
    assert "(mu = 141.5). " in str(model.guarantee_)
    model.save(tmp_path / "m.safetensors")
    with pytest.raises(FileExistsError):
        model.save(tmp_path / "m.safetensors")
    model.save(tmp_path / "m.safetensors", overwrite=True)
    again = PrivateClassifier.load(tmp_path / "m.safetensors")
    assert str(again.guarantee_) == str(model.guarantee_)
    np.testing.assert_array_equal(again.predict(TEST), predicted)


def test_images_with_pixels():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 40)
    images = rng.integers(0, 40, (80, 12, 10, 3), np.uint8)
    images[y == 1, :6] += 200  # bright above
    images[y == 0, 6:] += 200
    model = PrivateClassifier(
        "pixels", ZCDP(10.0), [0, 1], method="mean", random_state=0
    ).fit(images[::2], y[::2])
    assert model.score(images[1::2], y[1::2]) == 1.0
    assert model.decision_function(images).shape == (80,)


@pytest.mark.parametrize(
    ("method", "budget", "options"),
    [
        ("auto", ZCDP(1.0), None),
        ("public", PureDP(1.0), {"n_prototypes": 2}),
        ("public", ZCDP(1.0), {"adjacency": "replace-one"}),
        ("mean", ApproxDP(1.0, 1e-6), {"lattice": LatticeOptions(pool=3)}),
        ("softmax", ApproxDP(1.0, 1e-6), None),
        ("auto", ZCDP(1.0), {"adjacency": "replace-one"}),
    ],
)
def test_it_is_the_estimator_on_the_embeddings(method, budget, options, letters):
    automatic = "mean" if options and options.get("adjacency") else "softmax"
    kind = automatic if method == "auto" else method
    public = None if kind == "mean" else PUBLIC
    direct = BY_METHOD[kind].load()(budget, CLASSES, random_state=3, **(options or {}))
    examples = ()
    if kind == "softmax":  # which starts from the names of the classes
        rows = table(letters, letters.encode(CLASSES))
        examples = replace(rows, texts=tuple(CLASSES)), CLASSES
    X_public = None if public is None else letters.encode(public)
    direct.set_params(public=PublicData(X_public, *examples)).fit(
        table(letters, letters.encode(TEXTS)), Y
    )
    model = (
        make(budget=budget, method=method, options=options)
        .set_params(public=PublicData(public))
        .fit(TEXTS, Y)
    )
    assert model.model_.to_bytes() == direct.to_bytes()
    np.testing.assert_array_equal(
        model.predict(TEST), direct.predict(letters.encode(TEST))
    )
    assert model.score(TEST, Y) == direct.score(letters.encode(TEST), Y)


def test_images_may_come_in_any_form(tmp_path):
    encoder = load_encoder("pixels")
    content = image_bytes()
    (tmp_path / "image.png").write_bytes(content)
    opened = Image.open(io.BytesIO(content))
    pixels = np.asarray(opened)
    forms = [
        content,
        opened,
        pixels,
        tmp_path / "image.png",
        str(tmp_path / "image.png"),
    ]
    rows = np.asarray(items.embed_items(encoder, forms, "X"))
    np.testing.assert_array_equal(
        rows, np.tile(encoder.encode([opened.convert("RGB")]), (5, 1))
    )
    np.testing.assert_array_equal(
        np.asarray(items.embed_items(encoder, np.stack([pixels] * 2), "X")), rows[:2]
    )
    grey = pixels[..., 0]
    rows = np.asarray(
        items.embed_items(encoder, [grey, np.repeat(grey[..., None], 3, axis=2)], "X")
    )
    np.testing.assert_array_equal(rows[0], rows[1])


def sixteen_bits():
    buffer = io.BytesIO()
    Image.fromarray(np.arange(0, 60000, 500, np.uint16).reshape(10, 12)).save(
        buffer, "PNG"
    )
    return buffer.getvalue()


def turned():
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation
    return image_bytes(kind="JPEG", exif=exif.tobytes())


@pytest.mark.parametrize(
    "content",
    [
        turned(),
        sixteen_bits(),
        image_bytes(mode="RGBA"),
        image_bytes(mode="P"),
        image_bytes(mode="1"),
    ],
    ids=["turned", "16 bits", "alpha", "palette", "black and white"],
)
def test_an_image_is_the_same_as_a_file_and_opened(content):
    opened = Image.open(io.BytesIO(content))
    size = opened.size
    rows = np.asarray(
        items.embed_items(load_encoder("pixels"), [content, opened, opened], "X")
    )
    np.testing.assert_array_equal(rows[0], rows[1])
    np.testing.assert_array_equal(rows[0], rows[2])
    assert len(np.unique(rows)) > 5
    assert opened.size == size  # the caller's image stays as it is


@pytest.mark.usefixtures("letters")
def test_texts_may_come_in_any_form():
    for form in (
        tuple,
        np.array,
        lambda texts: np.array(texts, object),
        lambda texts: [t.encode() for t in texts],
    ):
        assert (
            make().fit(form(TEXTS), np.array(Y)).model_.to_bytes()
            == make().fit(TEXTS, Y).model_.to_bytes()
        )


# Items that cannot be used

UNUSABLE_TEXTS = [
    None,
    3,
    "",
    " \n",
    b"\xff",
    f"{SECRET}\0",
    f"odd {SECRET}",
    "\ud800",
    [SECRET],
    np.zeros(3),
]


def unusable_images(folder):
    os.mkfifo(folder / "pipe")
    return [
        None,
        b"",
        SECRET.encode(),
        SECRET,
        "a\0b",
        folder,
        folder / "pipe",
        folder / "none.png",
        image_bytes()[:-30],
        np.zeros((4, 4)),
        np.full((4, 4), SECRET),
        np.zeros((4, 4, 5), np.uint8),
        np.zeros((0, 4), np.uint8),
        object(),
    ]


@pytest.mark.usefixtures("letters")
def test_texts_that_cannot_be_used_are_left_out_with_their_labels(letters):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", WeakBudgetWarning)
        model = make(method="mean").fit(
            [*UNUSABLE_TEXTS, *TEXTS], ["cat"] * len(UNUSABLE_TEXTS) + Y
        )
        direct = dppl.MeanPrototypes(ZCDP(1e4), CLASSES, random_state=3).fit(
            table(letters, letters.encode(TEXTS)), Y
        )
        assert model.model_.to_bytes() == direct.to_bytes()
        found = model.unusable([*TEXTS[:2], *UNUSABLE_TEXTS])
    for method in (model.predict, model.predict_proba, model.decision_function):
        with pytest.raises(
            InputError, match=r"items that cannot be used, .*: at 2, 3"
        ) as refused:
            method([*TEXTS[:2], *UNUSABLE_TEXTS[:2]])
        assert SECRET not in str(refused.value)
    labels = model.predict([*TEXTS[:2], *UNUSABLE_TEXTS], unusable="empty").tolist()
    assert labels == [*model.predict(TEXTS[:2]).tolist(), *[None] * len(UNUSABLE_TEXTS)]
    assert np.isnan(model.predict_proba(UNUSABLE_TEXTS, unusable="empty")).all()
    assert [place for place, _ in found] == [*range(2, 2 + len(UNUSABLE_TEXTS))]
    assert SECRET not in str(found)


@pytest.mark.slow
@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize("method", ["auto", "mean", "softmax"])
@pytest.mark.parametrize("item", UNUSABLE_TEXTS, ids=range(len(UNUSABLE_TEXTS)))
def test_with_one_unusable_record_and_without_it_a_fit_gives_the_same_bytes(
    item, method
):
    with_it = make(method=method).fit(
        [*TEXTS[:7], item, *TEXTS[7:]], [*Y[:7], "gnu", *Y[7:]]
    )
    assert (
        with_it.model_.to_bytes() == make(method=method).fit(TEXTS, Y).model_.to_bytes()
    )


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize("method", ["softmax", "mean"])
def test_persons_are_reduced_whatever_cannot_be_used(method, tmp_path):
    ids = [f"person {i // 3}" for i in range(len(TEXTS))]
    model = make(method=method).fit(TEXTS, Y, groups=ids)
    assert model.guarantee_.unit is Unit.PERSON
    assert (
        model.model_.to_bytes() != make(method=method).fit(TEXTS, Y).model_.to_bytes()
    )
    more = make(method=method).fit(
        [*TEXTS, None, ""], [*Y, "gnu", "cat"], groups=[*ids, "person 0", "nobody else"]
    )
    assert more.model_.to_bytes() == model.model_.to_bytes()


def test_an_account_of_records_is_refused_before_items_are_embedded(
    letters, monkeypatch, tmp_path
):
    monkeypatch.setattr(type(letters), "encode_prepared", None)
    account = Ledger(tmp_path / "ledger.db", "mails", ZCDP(1e5))
    with pytest.raises(ParameterError, match="accounted by the record"):
        make(letters, method="mean").fit(TEXTS, Y, groups=range(len(Y)), ledger=account)
    assert account.releases() == []


@pytest.mark.usefixtures("letters")
def test_a_usable_record_changes_the_bytes():
    """Or equal bytes would mean nothing."""
    with_it = make(method="mean").fit([*TEXTS, "abc"], [*Y, "gnu"])
    assert (
        with_it.model_.to_bytes() != make(method="mean").fit(TEXTS, Y).model_.to_bytes()
    )


def test_an_embedding_that_is_not_finite_cannot_be_used(letters, monkeypatch):
    """Those of a fit are held in float16, as the tables of `dppl train` are."""
    whole = letters.encode_prepared

    def encode(batch, progress=None):
        rows = whole(batch, progress)
        return np.where(
            rows[:, :1] == 50, np.float32(1e6), rows
        )  # a text of 50 letters with the code 0

    monkeypatch.setattr(
        type(letters), "encode_prepared", lambda _, *arguments: encode(*arguments)
    )
    huge = chr(27 * 4) * 50
    model = make(letters, method="mean")
    assert model.unusable(["abc", huge]) == [
        (1, "its embedding is not finite in float16")
    ]
    with_it = model.fit([huge, *TEXTS], ["cat", *Y]).model_.to_bytes()
    assert with_it == make(letters, method="mean").fit(TEXTS, Y).model_.to_bytes()


@pytest.mark.parametrize("method", ["mean", "public"])
def test_under_replace_one_they_stay_as_zero_rows(method, letters):
    """The number of records is public then, so that replacing one must not change it."""
    options = {"adjacency": "replace-one"}
    public = PUBLIC if method == "public" else None
    model = (
        make(method=method, options=options)
        .set_params(public=PublicData(public))
        .fit([None, *TEXTS], ["cat", *Y])
    )
    rows = table(letters, np.vstack([np.zeros((1, 27)), letters.encode(TEXTS)]))
    direct = BY_METHOD[method].load()(ZCDP(1e4), CLASSES, random_state=3, **options)
    direct.set_params(
        public=PublicData(None if public is None else letters.encode(public))
    ).fit(rows, ["cat", *Y])
    assert model.model_.to_bytes() == direct.to_bytes()
    if method == "mean":
        assert (
            model.model_.to_bytes()
            != make(method=method, options=options).fit(TEXTS, Y).model_.to_bytes()
        )


def test_images_that_cannot_be_used_are_rows_of_nan(tmp_path):
    odd = unusable_images(tmp_path)
    encoder = load_encoder("pixels")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = np.asarray(items.embed_items(encoder, [*odd, image_bytes()], "X"))
        found = PrivateClassifier(encoder, ZCDP(1.0)).unusable([image_bytes(), *odd])
    assert np.isnan(rows[:-1]).all()
    assert np.isfinite(rows[-1]).all()
    assert [place for place, _ in found] == [*range(1, 1 + len(odd))]
    assert SECRET not in str(found)


def test_what_is_no_matter_of_an_item_stops_the_work(letters, monkeypatch):
    monkeypatch.setattr(
        embedding, "decode", lambda *_: (_ for _ in ()).throw(MissingExtra("no Pillow"))
    )
    with pytest.raises(MissingExtra):
        items.embed_items(letters, ["a"], "X")
    monkeypatch.undo()
    for error in (MemoryError, ParameterError):
        monkeypatch.setattr(
            letters,
            "prepare",
            lambda *_, error=error: (_ for _ in ()).throw(error("no")),
        )
        with pytest.raises(error):
            items.embed_items(letters, ["a"], "X")


# Neighbours

NEIGHBOURS = {
    "good": ("abc", "gnu"),
    "unusable": (None, "cat"),
    "damaged": (b"\xff" + SECRET.encode(), "cat"),
    "odd": (f"odd {SECRET}", "dog"),
    "long": ("a" * 5000, "dog"),
    "odd label": ("abc", SECRET),
}


def shown(value):
    return repr(vars(value) if isinstance(value, Lattice) else value)


def traces(X, y):
    """Everything that a fit leaves behind but the released values."""
    with heard() as said:
        model = make(method="mean", unknown_labels="ignore").fit(X, y)
    kept = {
        name: repr(value)
        for name, value in vars(model).items()
        if name not in ("_kept", "model_")
    }
    inner = {
        name: shown(value)
        for name, value in vars(model.model_).items()
        if name != "prototypes_"
    }
    return kept, inner, said, len(model.model_.to_bytes()), str(model.guarantee_)


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize("name", NEIGHBOURS)
def test_neighbours_leave_the_same_traces(name):
    item, label = NEIGHBOURS[name]
    first = traces([*TEXTS, item], [*Y, label])
    second = traces(TEXTS, Y)
    assert first == second
    assert first[2] == ["", "", [ZCDP(1e4).weakness]]


def test_no_log_record_tells_of_an_image(caplog):
    caplog.set_level(logging.NOTSET)
    Image.open(io.BytesIO(image_bytes())).load()
    assert caplog.records  # Pillow logs what it reads
    caplog.clear()
    items.embed_items(load_encoder("pixels"), [image_bytes(), image_bytes()[:-30]], "X")
    assert not caplog.records


@pytest.mark.usefixtures("letters")
def test_a_word_about_an_unusable_item_is_noticed(monkeypatch):
    def telling(table, *arguments):
        if np.isnan(np.asarray(table)).any():
            warnings.warn("one item cannot be used", UserWarning, stacklevel=2)
        return whole(table, *arguments)

    whole = reading.codes_of_records
    monkeypatch.setattr(reading, "codes_of_records", telling)
    assert traces([*TEXTS, None], [*Y, "cat"]) != traces(TEXTS, Y)


@pytest.mark.usefixtures("letters")
def test_one_item_moves_one_class_by_one_row():
    first, second = (make(method="mean").fit(TEXTS[:n], Y[:n]).model_ for n in (37, 36))
    steps = np.rint((first.prototypes_ - second.prototypes_) * first.lattice_.scale)
    assert np.count_nonzero(steps.any(axis=1)) == 1
    assert 0 < (steps**2).sum() <= first.lattice_.squared_norm


# Encoders


def test_the_guarantee_lists_an_encoder_that_cannot_promise(letters):
    for independent in (True, False):
        letters.fingerprint = replace(letters.fingerprint, row_independent=independent)
        model = make(letters).fit(TEXTS, Y)
        for guarantee in (
            model.guarantee_,
            dppl.evaluate(model, TEXTS, Y, dppl.GaussianDP(0.4)).guarantee,
        ):
            assert (Term(Caveat.ROWS_MIX) not in guarantee.not_covered) == independent


@pytest.mark.usefixtures("letters")
def test_another_encoder_is_refused(tmp_path):
    model = make().fit(TEXTS, Y)
    model.save(tmp_path / "m.safetensors")
    other = load_encoder("letters?version=2")
    for encoder in ("letters?version=2", other, "pixels"):
        with pytest.raises(InputError, match="another encoder"):
            PrivateClassifier.load(tmp_path / "m.safetensors", encoder)
    PrivateClassifier.load(tmp_path / "m.safetensors", load_encoder("letters"))
    model.encoder = other
    with pytest.raises(InputError, match="another encoder"):
        model.predict(TEST)


def test_a_model_without_an_encoder_is_refused(letters, tmp_path):
    for name, words in (
        (None, "does not name its encoder"),
        ("minilm", "no fingerprint"),
    ):
        estimator = dppl.MeanPrototypes(ZCDP(1.0), CLASSES).fit(
            letters.encode(TEXTS), Y
        )
        estimator.encoder_ = name
        with pytest.raises(InputError, match=words):
            encoder_of_model(estimator)


def test_a_model_is_read_with_the_precision_it_was_made_with(letters, monkeypatch):
    estimator = make(letters).fit(TEXTS, Y).model_
    estimator.encoder_ = replace(letters.fingerprint, dtype="float16").text()
    asked = []
    monkeypatch.setattr(
        classifier,
        "load_encoder",
        lambda uri, **options: asked.append((uri, options)) or letters,
    )
    with pytest.raises(InputError):
        encoder_of_model(estimator)
    assert asked == [
        ("letters", {"device": "auto", "precision": "float16", "trial": True})
    ]


def test_a_model_with_an_encoder_of_onnx_predicts_from_its_file(tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    shapes = (("x", ["rows", 3, 4, 4]), ("y", ["rows", 48]))
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in shapes
    ]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Flatten", ["x"], ["y"])], "flat", ends[:1], ends[1:]
    )
    file = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(file, tmp_path / "flat.onnx")
    (tmp_path / "flat.json").write_text('{"modality": "image", "size": 4}')
    uri = f"onnx:{tmp_path / 'flat.onnx'}"
    images = np.random.default_rng(0).integers(0, 20, (24, 8, 8, 3), dtype=np.uint8)
    y = np.arange(24) % 2 == 1
    images[y, :, :4] += 200  # bright on the left, or on the right
    images[~y, :, 4:] += 200
    model = PrivateClassifier(
        uri, ZCDP(1e4), [False, True], method="mean", random_state=1
    ).fit(images, y)
    model.save(tmp_path / "m.safetensors")
    again = PrivateClassifier.load(tmp_path / "m.safetensors", uri)
    np.testing.assert_array_equal(again.predict(images), model.predict(images))
    assert len(set(again.predict(images))) == 2


def test_a_model_with_an_encoder_can_be_pickled(letters, tmp_path):
    make().fit(TEXTS, Y).save(tmp_path / "m.safetensors")
    model = PrivateClassifier.load(tmp_path / "m.safetensors")
    again = pickle.loads(pickle.dumps(model))
    assert again.encoder is not model.encoder
    assert again.encoder.fingerprint == letters.fingerprint
    np.testing.assert_array_equal(again.predict(TEST), model.predict(TEST))


def test_an_encoder_is_loaded_once(letters, monkeypatch):
    classifier._load_once.cache_clear()
    loaded = []
    monkeypatch.setattr(
        classifier, "load_encoder", lambda uri: loaded.append(uri) or letters
    )
    model = make().set_params(public=PublicData(PUBLIC)).fit(TEXTS, Y)
    model.predict(TEST)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(TEST), model.predict(TEST))
    clone(model).fit(TEXTS, Y)
    assert loaded == ["letters"]
    model.encoder = "letters?version=2"
    model.unusable([])
    assert loaded[1:] == ["letters?version=2"]
    classifier._load_once.cache_clear()


# scikit-learn


@pytest.mark.usefixtures("letters")
def test_probabilities_are_those_of_the_estimator(letters):
    model = make().fit(TEXTS, Y)
    probabilities = model.predict_proba(TEST)
    np.testing.assert_array_equal(
        probabilities, model.model_.predict_proba(letters.encode(TEST))
    )
    assert np.allclose(probabilities.sum(axis=1), 1)
    assert np.allclose(
        make(method="mean").fit(TEXTS, Y).predict_proba(TEST).sum(axis=1), 1
    )
    with pytest.raises(NotFittedError):
        make().predict_proba(TEST)


def test_clones_share_the_encoder(letters):
    model = make(letters, options={"adjacency": "add-remove"}, method="mean")
    again = clone(model)
    assert again.encoder is letters
    assert again.get_params() == model.get_params()
    assert not hasattr(again.fit(TEXTS, Y), "n_features_in_")
    pixels = load_encoder("pixels")
    assert clone(PrivateClassifier(pixels, ZCDP(1.0))).encoder is pixels


@pytest.mark.usefixtures("letters")
def test_in_a_pipeline():
    def lower(texts):
        return [text.lower() for text in texts]

    steps = [
        ("lower", FunctionTransformer(lower)),
        ("model", make().set_params(public=PublicData(PUBLIC))),
    ]
    pipeline = Pipeline(steps).fit([text.upper() for text in TEXTS], Y)
    assert pipeline.score([text.upper() for text in TEST], Y) == 1.0
    assert pipeline.predict(TEST).tolist() == Y
    assert (
        clone(pipeline)
        .set_params(model__method="mean")
        .fit(TEXTS, Y)
        .predict(TEST)
        .tolist()
        == Y
    )


@pytest.mark.usefixtures("letters")
def test_a_ledger_pays(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "mails", ZCDP(1.0))
    model = make(budget=ZCDP(0.75)).fit(TEXTS, Y, ledger=ledger, partition="north")
    assert model.guarantee_.charges == (Charge("mails", 1),)
    with pytest.raises(BudgetExceeded):
        make(budget=ZCDP(0.75)).fit(TEXTS, Y, ledger=ledger, partition="north")


# Errors


@pytest.mark.usefixtures("letters")
@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"budget": 1.0}, ParameterError, "budget must be"),
        ({"method": "best"}, ParameterError, "method must be one of"),
        (
            {"options": {"classes": CLASSES}},
            ParameterError,
            "options must be parameters of SoftmaxPrototypes",
        ),
        ({"options": {"n_prototypes": 2}}, ParameterError, "got 'n_prototypes'"),
        (
            {"method": "mean", "options": {"adjacency": "swap"}},
            ParameterError,
            "adjacency",
        ),
        ({"encoder": "nothing"}, ParameterError, "nothing"),
        ({"classes": ["a", "a"]}, ParameterError, "once"),
        ({"classes": ["cat"]}, UnknownLabelError, "at least one is not"),
    ],
)
def test_parameters_are_checked(changes, error, words):
    with pytest.raises(error, match=words):
        make().set_params(**changes).fit(TEXTS, Y)


@pytest.mark.parametrize(
    ("uri", "X"),
    [
        ("letters", "one text"),
        ("letters", b"one text"),
        ("letters", np.zeros((3, 27))),
        ("letters", np.zeros((3, 4, 4), np.uint8)),
        ("letters", np.zeros(3)),
        ("letters", iter(TEXTS)),
        ("pixels", np.zeros((3, 304))),
        ("pixels", np.zeros((3, 4, 4))),
        ("pixels", np.zeros((3, 3, 4, 4), np.uint8)),
        ("pixels", np.zeros((3, 4, 4, 3, 1), np.uint8)),
    ],
)
@pytest.mark.usefixtures("letters")
def test_what_holds_no_items_is_refused(uri, X):
    with pytest.raises(InputError, match="X must"):
        make(uri).fit(X, CLASSES)
    with pytest.raises(InputError, match=r"public.rows must"):
        make(uri).set_params(public=PublicData(X)).fit([], [])


@pytest.mark.parametrize(
    ("uri", "X"),
    [
        ("letters", [np.zeros((4, 4), np.uint8)] * 3),
        ("letters", [["a"], ["b"]]),
        ("letters", [1, 2.0]),
        ("pixels", [[1.0, 2.0]]),
        ("pixels", [1, 2]),
    ],
)
@pytest.mark.usefixtures("letters")
def test_items_of_another_kind_are_refused_before_the_charge(uri, X, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db", "mails", ZCDP(10.0))
    model = make(uri)
    with pytest.raises(InputError, match=r"X must be a sequence of \w+s, one a record"):
        model.fit(X, Y[: len(X)], ledger=ledger)
    assert ledger.releases() == []
    # One that may be an item, or a missing one, and the others count as unusable.
    for item in ("abc", None, float("nan")):
        make(uri, method="mean").fit([*X, item], Y[: len(X) + 1])


def test_a_short_account_is_noticed_before_private_items_are_embedded(
    letters, tmp_path, monkeypatch
):
    ledger = Ledger(tmp_path / "ledger.db", "mails", ZCDP(0.5))
    embedded = []
    monkeypatch.setattr(
        classifier,
        "embed_items",
        lambda _, items, name, **__: embedded.append(name) or PUBLIC_ROWS,
    )
    PUBLIC_ROWS = items.embed_items(letters, PUBLIC, "public.rows")
    with pytest.raises(BudgetExceeded):
        make(letters).set_params(public=PublicData(PUBLIC)).fit(TEXTS, Y, ledger=ledger)
    assert embedded == ["public.rows"]


@pytest.mark.usefixtures("letters")
def test_another_number_of_labels_is_refused():
    with pytest.raises(InputError, match="same number of rows"):
        make().fit(TEXTS, Y[1:])


@pytest.mark.usefixtures("letters")
def test_a_fit_that_fails_leaves_it_unfitted(tmp_path):
    model = make().fit(TEXTS, Y)
    with pytest.raises(UnknownLabelError):
        model.fit(["abc"], ["Jane"])
    for call in (
        model.predict,
        model.decision_function,
        lambda X: model.score(X, ["cat"]),
        lambda X: model.save(X[0]),
    ):
        with pytest.raises(NotFittedError):
            call([str(tmp_path / "m.safetensors")])
    assert not hasattr(model, "guarantee_")


@pytest.mark.parametrize("method", ["mean", "multilabel"])
def test_no_items_get_no_answers_of_the_usual_shape(method):
    images = np.random.default_rng(0).integers(0, 256, (6, 9, 9, 3), np.uint8)
    several = method == "multilabel"
    labels = [[0], [1]] * 3 if several else [0, 1] * 3
    model = PrivateClassifier(
        "pixels", ZCDP(10.0), [0, 1], method=method, random_state=0
    ).fit(images, labels)
    for none in ([], images[:0], images[:0, :, :, 0]):
        for name in (
            "predict",
            "predict_proba",
            "predict_log_proba",
            "decision_function",
            "similarity",
        ):
            ask = getattr(model, name)
            expected = ask(images)
            answer = ask(none)
            assert answer.shape == (0, *expected.shape[1:]), name
            assert answer.dtype == expected.dtype, name
        with pytest.raises(InputError, match="at least one row to score"):
            model.score(none, [])
    if several:
        assert model.predict_labels([]) == []


def test_labels_of_another_kind_are_refused_before_an_item_is_embedded(monkeypatch):
    images = np.zeros((2, 9, 9, 3), np.uint8)
    model = PrivateClassifier("pixels", ZCDP(10.0), ["0", "1"], method="mean")
    monkeypatch.setattr(
        "dppl.training.classifier.embed_items", lambda *_, **__: pytest.fail("embedded")
    )
    with pytest.raises(InputError, match="y must hold texts"):
        model.fit(images, np.array([0, 1]))
