"""The adapter to ONNX Runtime, on files made here."""

import json
import pickle

import numpy as np
import pytest

from dppl.encoders import load_encoder
from dppl.encoders import onnx as module
from dppl.encoders.load import load_windows
from dppl.errors import InputError, ParameterError

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("PIL")
IMAGES = {
    "modality": "image",
    "size": 16,
    "interpolation": "bilinear",
    "mean": [0.5] * 3,
    "std": [0.25] * 3,
}
TEXTS = {
    "modality": "text",
    "tokenizer": "tokenizer.json",
    "max_tokens": 48,
    "pooling": "mean",
}


def weights(name, *shape):
    values = np.random.default_rng(len(name)).normal(0, 0.3, shape)
    return onnx.numpy_helper.from_array(values.astype(np.float32), name)


def write(path, nodes, inputs, output, initializers, metadata=None):
    """Write a model of some nodes, the last of which makes "y"."""
    helper = onnx.helper
    typed = [
        helper.make_tensor_value_info(name, kind, shape) for name, kind, shape in inputs
    ]
    end = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, output)
    graph = helper.make_graph(nodes, "tests", typed, [end], initializers)
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    helper.set_model_props(model, metadata or {})
    onnx.save(model, path)
    return path


def state(path, values):
    path.with_suffix(".json").write_text(json.dumps(values), encoding="utf-8")
    return f"onnx:{path}"


def image_model(path, rows="rows", between=(), start="x", **more):
    node = onnx.helper.make_node
    nodes = [
        *between,
        node(
            "Conv",
            [start, "filters"],
            ["features"],
            kernel_shape=[4, 4],
            strides=[4, 4],
        ),
        node("Relu", ["features"], ["positive"]),
        node("GlobalAveragePool", ["positive"], ["pooled"]),
        node("Flatten", ["pooled"], ["y"]),
    ]
    inputs = [("x", onnx.TensorProto.FLOAT, [rows, 3, 16, 16])]
    return write(
        path, nodes, inputs, [rows, 11], [weights("filters", 11, 3, 4, 4)], **more
    )


@pytest.fixture
def text_model(tmp_path, tokens):
    node = onnx.helper.make_node
    integer = onnx.TensorProto.INT64
    nodes = [
        node("Gather", ["table", "input_ids"], ["words"]),
        node("Gather", ["kinds", "token_type_ids"], ["types"]),
        node("Add", ["words", "types"], ["sum"]),
        node("MatMul", ["sum", "matrix"], ["product"]),
        node("Tanh", ["product"], ["y"]),
    ]
    inputs = [
        (name, integer, ["rows", "length"]) for name in ("input_ids", "token_type_ids")
    ]
    made = [
        weights("table", tokens.get_vocab_size(), 12),
        weights("kinds", 2, 12),
        weights("matrix", 12, 20),
    ]
    tokens.save(str(tmp_path / "tokenizer.json"))
    return write(tmp_path / "texts.onnx", nodes, inputs, ["rows", "length", 20], made)


def test_images(tmp_path, images, independent):
    path = image_model(tmp_path / "model.onnx")
    encoder = load_encoder(state(path, IMAGES), batch_rows=4)
    assert (encoder.modality, encoder.dimension) == ("image", 11)
    assert (encoder.fingerprint.uri, encoder.fingerprint.library) == (
        "onnx:model.onnx",
        "onnxruntime",
    )
    independent(encoder, images)
    inputs = np.stack([encoder.prepare(image) for image in images])
    session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(
        encoder.encode(images),
        session.run(None, {"x": inputs})[0],
        rtol=1e-5,
        atol=1e-6,
    )


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_texts(pooling, text_model, tokens, texts, independent):
    encoder = load_encoder(
        state(text_model, {**TEXTS, "pooling": pooling}) + "?max_windows=1",
        batch_rows=4,
    )
    assert (encoder.modality, encoder.dimension) == ("text", 20)
    if pooling == "mean":  # the first token of this model knows nothing of the others
        independent(encoder, texts)
    session = runtime.InferenceSession(
        str(text_model), providers=["CPUExecutionProvider"]
    )
    for text, row in zip(texts, encoder.encode(texts), strict=True):
        ids = np.array([tokens.encode(text).ids[:48]])
        if len(tokens.encode(text).ids) <= 48:
            hidden = session.run(
                None, {"input_ids": ids, "token_type_ids": np.zeros_like(ids)}
            )[0][0]
            np.testing.assert_allclose(
                row,
                hidden[0] if pooling == "cls" else hidden.mean(0),
                rtol=1e-5,
                atol=1e-6,
            )


def test_long_texts(text_model, tokens, texts, independent, same_bits):
    uri = state(text_model, TEXTS)
    encoder = load_encoder(uri, batch_rows=4)
    cut = load_encoder(f"{uri}?max_windows=1", batch_rows=4)
    assert (
        encoder.fingerprint.preprocessing
        == f"{cut.fingerprint.preprocessing}, 39 windows"
    )
    independent(encoder, texts)
    short = [text for text in texts if len(tokens.encode(text).ids) <= 48]
    same_bits(encoder.encode(short), cut.encode(short))
    # 52 tokens between both ends, in windows of 46 that share 40: of tokens 0 to 45,
    # and of 6 to 51.
    text = [
        ("card", "why", "twice", "my", "account")[place * place % 7 % 5]
        for place in range(52)
    ]
    parts = cut.encode([" ".join(text[:46]), " ".join(text[6:])]).astype(float)
    mean = (
        parts.mean(0)
        * np.linalg.norm(parts, axis=1).mean()
        / np.linalg.norm(parts.mean(0))
    )
    np.testing.assert_allclose(
        encoder.encode([" ".join(text)])[0], mean, rtol=1e-4, atol=1e-6
    )
    assert load_windows(uri).max_windows == 39
    with pytest.raises(ParameterError, match="not an option of this encoder"):
        load_encoder(
            state(image_model(text_model.with_name("images.onnx")), IMAGES)
            + "?max_windows=2"
        )


def test_the_statement_may_stand_in_the_file(tmp_path, images, same_bits):
    beside = load_encoder(
        state(image_model(tmp_path / "one.onnx"), IMAGES), batch_rows=4
    )
    inside = image_model(tmp_path / "two.onnx", metadata={"dppl": json.dumps(IMAGES)})
    same_bits(
        load_encoder(f"onnx:{inside}", batch_rows=4).encode(images),
        beside.encode(images),
    )


def test_a_model_of_one_batch_size_gets_it(tmp_path, images, independent):
    uri = state(image_model(tmp_path / "model.onnx", rows=2), IMAGES)
    encoder = load_encoder(uri)
    assert encoder.batch_rows == 2
    independent(encoder, images)
    with pytest.raises(ParameterError, match="batch_rows must be 2"):
        load_encoder(uri, batch_rows=4)


def test_with_scales_of_the_whole_batch_a_row_is_computed_alone(
    tmp_path, images, independent, monkeypatch
):
    """As the dynamic quantisation of ONNX Runtime makes them."""
    node = onnx.helper.make_node
    between = [
        node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["coarse"]),
    ]
    uri = state(
        image_model(tmp_path / "model.onnx", between=between, start="coarse"),
        {**IMAGES, "std": [0.01] * 3},
    )
    independent(load_encoder(uri), images)
    with pytest.raises(ParameterError, match="batch_rows must be 1"):
        load_encoder(uri, batch_rows=4)
    monkeypatch.setattr(
        module, "_only_rows", lambda path, rows: rows
    )  # and the check would find it, too
    with pytest.raises(ParameterError, match="mixes the rows of a batch"):
        load_encoder(uri, batch_rows=4)


def test_normalisation_over_the_batch_is_refused(tmp_path):
    node = onnx.helper.make_node
    between = [
        node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
        node("Sub", ["x", "mean"], ["centred"]),
    ]
    uri = state(
        image_model(tmp_path / "model.onnx", between=between, start="centred"), IMAGES
    )
    with pytest.raises(ParameterError, match="mixes the rows of a batch"):
        load_encoder(uri, batch_rows=4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "must be JSON with a modality"),
        ({}, "must be JSON with a modality"),
        ({"modality": "sound"}, "must be JSON with a modality"),
        ({"modality": "image"}, "must have size"),
        (
            {"modality": "text", "tokenizer": "x.json"},
            "must have tokenizer and max_tokens",
        ),
        ({"modality": "text", "tokenizer": "x.json", "max_tokens": 9}, "no tokenizer"),
        ({**IMAGES, "sizes": 3}, "of other fields only output, pooling, crop_pct"),
    ],
)
def test_statements_are_checked(tmp_path, values, message):
    with pytest.raises(InputError, match=message):
        load_encoder(state(image_model(tmp_path / "model.onnx"), values))


@pytest.mark.parametrize(
    ("name", "value"),
    [("pooling", "max"), ("output", "z"), ("size", 0), ("crop_pct", "x")],
)
def test_values_of_statements_are_checked(tmp_path, name, value):
    with pytest.raises(ParameterError):
        load_encoder(
            state(image_model(tmp_path / "model.onnx"), {**IMAGES, name: value})
        )


def test_files_are_checked(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        load_encoder(f"onnx:{tmp_path / 'none.onnx'}")
    with pytest.raises(InputError, match=r"state the preprocessing of model\.onnx in"):
        load_encoder(f"onnx:{image_model(tmp_path / 'model.onnx')}")
    (tmp_path / "text.onnx").write_text("no model")
    with pytest.raises(InputError, match="not a model that ONNX Runtime can open"):
        load_encoder(f"onnx:{tmp_path / 'text.onnx'}")


def test_the_precision_is_that_of_the_file(tmp_path):
    uri = state(image_model(tmp_path / "model.onnx"), IMAGES)
    assert (
        load_encoder(uri, precision="float32").fingerprint
        == load_encoder(uri).fingerprint
    )
    with pytest.raises(
        ParameterError,
        match="precision must be 'auto' or 'float32', which the ONNX file decides",
    ):
        load_encoder(uri, precision="float16")


def test_the_weights_are_in_the_fingerprint(tmp_path):
    one = load_encoder(
        state(image_model(tmp_path / "one.onnx"), IMAGES), batch_rows=2
    ).fingerprint
    path = image_model(tmp_path / "two.onnx")
    model = onnx.load(path)
    model.graph.initializer[0].CopyFrom(weights("filters2", 11, 3, 4, 4))
    model.graph.initializer[0].name = "filters"
    onnx.save(model, path)
    assert not load_encoder(
        state(path, IMAGES), batch_rows=2
    ).fingerprint.same_function(one)


def test_tensors_in_a_file_of_any_name_belong_to_the_model(tmp_path):
    found = []
    for place, factor in (("a", 1.0), ("b", 2.0)):
        folder = tmp_path / place
        folder.mkdir()
        path = image_model(folder / "model.onnx")
        model = onnx.load(path)
        for tensor in model.graph.initializer:
            values = factor * onnx.numpy_helper.to_array(tensor)
            tensor.CopyFrom(onnx.numpy_helper.from_array(values, tensor.name))
        path.unlink()
        outside = {
            "save_as_external_data": True,
            "location": "weights.bin",
            "size_threshold": 0,
        }
        onnx.save_model(model, path, **outside)
        found.append(load_encoder(state(path, IMAGES)).fingerprint)
    assert (tmp_path / "a" / "model.onnx").read_bytes() == (
        tmp_path / "b" / "model.onnx"
    ).read_bytes()
    assert not found[0].same_function(found[1])


def test_tokens_beyond_the_model_are_refused(text_model, tokens, tmp_path):
    model = onnx.load(text_model)
    model.graph.initializer[0].CopyFrom(
        weights("table", tokens.get_vocab_size() - 1, 12)
    )
    onnx.save(model, text_model)
    uri = state(text_model, TEXTS)
    with pytest.raises(ParameterError, match=r"which texts\.onnx cannot take"):
        load_encoder(uri)


def test_a_pickle_is_the_encoder_where_it_arrives_or_is_refused(
    tmp_path, images, same_bits
):
    path = tmp_path / "model.onnx"
    encoder = load_encoder(state(image_model(path), IMAGES), batch_rows=3)
    content = pickle.dumps(encoder)
    again = pickle.loads(content)
    assert again is not encoder
    assert again.fingerprint == encoder.fingerprint
    same_bits(again.encode(images), encoder.encode(images))
    model = onnx.load(path)
    model.graph.initializer[0].CopyFrom(weights("others", 11, 3, 4, 4))
    model.graph.initializer[0].name = "filters"
    onnx.save(model, path)
    with pytest.raises(
        InputError, match="is not the encoder here that it was where it was pickled"
    ):
        pickle.loads(content)
