"""One ONNX graph from what an encoder takes to labels."""

import json

import numpy as np
import pytest

import dppl
from dppl.encoders import load_encoder
from dppl.errors import InputError
from dppl.export import onnx_graph as module
from dppl.export import to_onnx

onnx = pytest.importorskip("onnx", reason="needs the extra export")
runtime = pytest.importorskip("onnxruntime", reason="needs the extra onnx")
image = pytest.importorskip("PIL.Image", reason="needs the extra images")
IMAGES = {
    "modality": "image",
    "size": 8,
    "interpolation": "bilinear",
    "mean": [0.5] * 3,
    "std": [0.25] * 3,
}
WORDS = ("card", "not", "arrived", "charged", "twice", "cancel", "the", "it")
node = onnx.helper.make_node
types = onnx.TensorProto


def weights(name, *shape, dtype=np.float32):
    values = np.random.default_rng(len(name)).normal(0, 0.5, shape)
    return onnx.numpy_helper.from_array(values.astype(dtype), name)


def write(
    path, nodes, inputs, output, constants, stated, *, opset=17, kind=types.FLOAT
):
    """Write an encoder of some nodes, the last of which makes "y", and state how it is prepared for."""
    typed = [
        onnx.helper.make_tensor_value_info(name, of, shape)
        for name, of, shape in inputs
    ]
    end = onnx.helper.make_tensor_value_info("y", kind, output)
    graph = onnx.helper.make_graph(nodes, "tests", typed, [end], constants)
    made = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=7
    )
    onnx.save(made, path)
    path.with_suffix(".json").write_text(json.dumps(stated), encoding="utf-8")
    return path


def of_images(path, *, pooling="none", opset=17, kind=types.FLOAT):
    dtype = np.float32 if kind == types.FLOAT else np.float16
    nodes = [node("Conv", ["x", "filters"], ["y"], kernel_shape=[4, 4], strides=[4, 4])]
    inputs = [("x", kind, ["rows", 3, 8, 8])]
    constants = [weights("filters", 5, 3, 4, 4, dtype=dtype)]
    output = ["rows", 5, 2, 2]
    return write(
        path,
        nodes,
        inputs,
        output,
        constants,
        {**IMAGES, "pooling": pooling},
        opset=opset,
        kind=kind,
    )


def of_texts(path, tokens, pooling, *, masked):
    nodes = [
        node("Gather", ["table", "input_ids"], ["words"]),
        node("Tanh", ["words"], ["y"]),
    ]
    inputs = [("input_ids", types.INT64, ["rows", "length"])]
    if masked:
        inputs.append(("attention_mask", types.INT64, ["rows", "length"]))
        nodes.append(node("Identity", ["attention_mask"], ["unused"]))
    tokens.save(str(path.with_name("tokenizer.json")))
    stated = {
        "modality": "text",
        "tokenizer": "tokenizer.json",
        "max_tokens": 16,
        "pooling": pooling,
    }
    constants = [weights("table", tokens.get_vocab_size(), 6)]
    return write(path, nodes, inputs, ["rows", "length", 6], constants, stated)


@pytest.fixture(scope="module")
def tokens():
    library = pytest.importorskip("tokenizers", reason="needs the extra onnx")
    vocabulary = {piece: i for i, piece in enumerate(["[PAD]", "[UNK]", *WORDS])}
    made = library.Tokenizer(library.models.WordLevel(vocabulary, unk_token="[UNK]"))
    made.pre_tokenizer = library.pre_tokenizers.Whitespace()
    return made


def images(n=30):
    made = np.random.default_rng(1).integers(0, 256, (n, 8, 8, 3), np.uint8)
    made[::2, :, :4] //= 4
    return [image.fromarray(one) for one in made]


def fit(path, items):
    """Fit a classifier on what the encoder makes of items."""
    encoder = load_encoder(f"onnx:{path}")
    model = dppl.PrivateClassifier(
        encoder, dppl.ZCDP(100.0), ["even", "odd"], method="mean", random_state=0
    )
    return encoder, model.fit(items, np.resize(["even", "odd"], len(items)))


def check(model, path, items, inputs):
    """Hold the whole way to the model on items that the encoder has prepared."""
    content = module.to_bytes(model, encoder=path)
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    assert {one.name for one in session.get_inputs()} == set(inputs)
    label, scores, probabilities = session.run(None, inputs)
    np.testing.assert_allclose(
        scores[:, 1] - scores[:, 0], model.decision_function(items), atol=1e-5
    )
    np.testing.assert_allclose(probabilities, model.predict_proba(items), atol=1e-4)
    assert label.tolist() == model.predict(items).tolist()
    assert len(set(label)) == 2
    said = session.get_modelmeta().custom_metadata_map
    assert said["dppl.guarantee"] == model.guarantee_.summary()
    assert said["dppl.preprocessing"] in model.model_.encoder_


@pytest.mark.parametrize("pooling", ["none", "mean"])
@pytest.mark.parametrize("opset", [11, 17])
def test_from_pixels(pooling, opset, tmp_path):
    path = of_images(tmp_path / "model.onnx", pooling=pooling, opset=opset)
    encoder, model = fit(path, images())
    check(
        model,
        path,
        images(),
        {"x": np.stack([encoder.prepare(one) for one in images()])},
    )


def test_from_pixels_in_half_precision(tmp_path):
    path = of_images(tmp_path / "model.onnx", pooling="mean", kind=types.FLOAT16)
    encoder, model = fit(path, images())
    pixels = np.stack([encoder.prepare(one) for one in images()]).astype(np.float16)
    session = runtime.InferenceSession(
        module.to_bytes(model, encoder=path), providers=["CPUExecutionProvider"]
    )
    label, _, probabilities = session.run(None, {"x": pixels})
    np.testing.assert_allclose(probabilities, model.predict_proba(images()), atol=1e-2)
    assert (label == model.predict(images())).mean() > 0.9


@pytest.mark.parametrize("pooling", ["mean", "cls"])
@pytest.mark.parametrize("masked", [True, False])
def test_from_tokens(pooling, masked, tokens, tmp_path):
    rng = np.random.default_rng(3)
    texts = [
        " ".join(rng.choice(WORDS[at % 2 * 4 :][:4], 1 + at % 7)) for at in range(40)
    ]
    path = of_texts(tmp_path / "model.onnx", tokens, pooling, masked=masked)
    encoder, model = fit(path, texts)
    prepared = [encoder.prepare(text)["input_ids"] for text in texts]
    ids = np.zeros((40, 9), np.int64)
    for row, one in zip(ids, prepared, strict=True):
        row[: len(one)] = one
    mask = (np.arange(9) < [[len(one)] for one in prepared]).astype(np.int64)
    inputs = {"input_ids": ids} | (
        {"attention_mask": mask} if masked or pooling == "mean" else {}
    )
    check(model, path, texts, inputs)


def test_options_of_the_encoder_are_the_models(tokens, tmp_path):
    path = of_texts(tmp_path / "model.onnx", tokens, "mean", masked=True)
    texts = [" ".join(WORDS[at % 2 * 4 :][:4]) for at in range(20)]
    encoder = load_encoder(f"onnx:{path}?max_windows=3")
    model = dppl.PrivateClassifier(
        encoder, dppl.ZCDP(100.0), ["even", "odd"], method="mean", random_state=0
    )
    made = module.to_onnx(
        model.fit(texts, np.resize(["even", "odd"], 20)), encoder=path
    )
    (said,) = [
        one.value for one in made.metadata_props if one.key == "dppl.preprocessing"
    ]
    assert said.endswith("at most 16, padding 0, 3 windows")


def test_another_encoder_is_refused(tmp_path):
    path = of_images(tmp_path / "model.onnx")
    _, model = fit(path, images())
    other = of_images(tmp_path / "other.onnx", pooling="mean")
    with pytest.raises(
        InputError,
        match=r"other.onnx is not the encoder that the model was fitted with",
    ):
        to_onnx(model, encoder=other)


def test_an_encoder_of_another_width_is_refused_where_the_model_names_none(tmp_path):
    model = dppl.MeanPrototypes(dppl.ZCDP(1.0), ["a"]).fit(np.eye(4), ["a"] * 4)
    path = of_images(tmp_path / "model.onnx")
    with pytest.raises(InputError, match="gives 20 features, but the model expects 4"):
        to_onnx(model, encoder=path)
