"""The adapters to timm and transformers, on small models saved to disk and loaded back."""

import copy
import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest

import dppl
from command_line import invoke
from dppl import PublicData
from dppl.encoders import Encoder, Fingerprint, load_encoder
from dppl.encoders import transformers as hf
from dppl.encoders.fixed import FixedShapeEncoder
from dppl.encoders.frozen import FrozenModel
from dppl.encoders.load import EncoderUri, load_windows
from dppl.encoders.tokens import TextAdapter
from dppl.errors import InputError, ParameterError
from dppl.training.classifier import PrivateClassifier, encoder_of_model

pytest.importorskip("torch")
PIL = pytest.importorskip("PIL.Image")
SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
}
SPECIAL = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
}
SQUARE = {
    "do_resize": True,
    "size": {"height": 16, "width": 16},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
}
CLOSE = {"rtol": 1e-3, "atol": 1e-5}


@pytest.fixture(scope="module")
def timm(torch):
    return pytest.importorskip("timm")


@pytest.fixture(scope="module")
def transformers(torch):
    return pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def library(torch):
    return pytest.importorskip("sentence_transformers")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def tokenizer(transformers, tokens):
    """A tokenizer of transformers that ends every text with the last token of its vocabulary, as CLIP's does."""
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokens, model_max_length=48, **SPECIAL
    )
    fast.model_input_names = ["input_ids", "attention_mask"]
    return fast


@pytest.fixture(scope="module")
def bert(transformers, tokenizer, models):
    """The folder of a tiny BERT with its tokenizer."""
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=64,
        initializer_range=0.5,
        **SIZES,
    )
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(
        models / "bert"
    )
    tokenizer.save_pretrained(models / "bert")
    return models / "bert"


@pytest.fixture(scope="module")
def vit(transformers, models):
    """The folder of a tiny vision transformer with its preprocessing."""
    config = transformers.ViTConfig(image_size=16, patch_size=4, **SIZES)
    transformers.ViTModel(config, add_pooling_layer=False).save_pretrained(
        models / "vit"
    )
    write_processor(models / "vit", "ViTImageProcessor")
    return models / "vit"


@pytest.fixture(scope="module")
def clip(transformers, tokenizer, models):
    """The folder of a tiny CLIP."""
    text = {
        "vocab_size": len(tokenizer),
        "eos_token_id": len(tokenizer) - 1,
        "max_position_embeddings": 48,
    }
    config = transformers.CLIPConfig(
        text_config={**SIZES, **text},
        vision_config={**SIZES, "image_size": 16, "patch_size": 4},
        projection_dim=12,
    )
    transformers.CLIPModel(config).save_pretrained(models / "clip")
    tokenizer.save_pretrained(models / "clip")
    write_processor(models / "clip", "CLIPImageProcessor", do_center_crop=False)
    return models / "clip"


@pytest.fixture(scope="module")
def sentences(library, bert, models):
    """The folder of a tiny model of sentence-transformers with a prompt."""
    modules = library.sentence_transformer.modules
    start = modules.Transformer(str(bert), max_seq_length=40)
    model = library.SentenceTransformer(
        modules=[start, modules.Pooling(24, "mean"), modules.Normalize()],
        device="cpu",
        prompts={"all": "not my card: "},
        default_prompt_name="all",
    )
    model.save(str(models / "sentences"))
    return models / "sentences"


def write_processor(folder, kind, **more):
    values = {
        "image_processor_type": kind,
        "image_mean": [0.5] * 3,
        "image_std": [0.25] * 3,
        "resample": 3,
    }
    (folder / "preprocessor_config.json").write_text(
        json.dumps({**SQUARE, **values, "do_normalize": True, **more})
    )


def save(torch, model, path):
    torch.save(model.state_dict(), path)
    return path


# timm


@pytest.fixture(scope="module")
def checkpoints(torch, timm, models):
    """Weights of tiny models of timm with classifiers."""
    for name, options in (("test_vit", {"img_size": 32}), ("test_resnet", {})):
        torch.manual_seed(3)
        model = timm.create_model(name, num_classes=5, **options)
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.running_mean.normal_(std=0.1)
                module.running_var.uniform_(0.5, 1.5)
        save(torch, model, models / f"{name}.pth")
    return models


@pytest.mark.parametrize("name", ["test_vit", "test_resnet"])
def test_timm(name, torch, timm, checkpoints, images, independent, same_bits):
    uri = f"timm:{name}@{checkpoints / name}.pth?size=32&crop_pct=0.9&mean=0.4,0.5,0.6"
    encoder = load_encoder(uri, batch_rows=4)
    assert isinstance(encoder, Encoder)
    independent(encoder, images)
    same_bits(load_encoder(uri, batch_rows=4).encode(images), encoder.encode(images))
    fingerprint = Fingerprint.parse(encoder.fingerprint.text())
    assert (
        fingerprint.uri
        == f"timm:{name}@{name}.pth?size=32&crop_pct=0.9&mean=0.4,0.5,0.6"
    )
    assert (fingerprint.library, fingerprint.device, fingerprint.dtype) == (
        "timm",
        "cpu",
        "float32",
    )

    images = [
        image for image in images if max(image.size) < 8 * min(image.size)
    ]  # others are cut before
    model = timm.create_model(
        name, num_classes=0, **({"img_size": 32} if name == "test_vit" else {})
    ).eval()
    model.load_state_dict(torch.load(checkpoints / f"{name}.pth"), strict=False)
    data = {
        **timm.data.resolve_model_data_config(model),
        "crop_pct": 0.9,
        "mean": (0.4, 0.5, 0.6),
    }
    transform = timm.data.create_transform(
        **{**data, "input_size": (3, 32, 32)}, is_training=False
    )
    inputs = torch.stack([transform(image) for image in images])
    np.testing.assert_allclose(
        np.stack([encoder.prepare(image) for image in images]),
        inputs,
        rtol=0,
        atol=1e-6,
    )
    with torch.inference_mode():
        np.testing.assert_allclose(
            encoder.encode(images), model(inputs).numpy(), **CLOSE
        )


@pytest.mark.parametrize("crop_mode", ["center", "squash"])
def test_images_are_prepared_as_by_timm(crop_mode, timm, images):
    images_module = pytest.importorskip("dppl.encoders.pixels")
    ours = images_module.Preprocessing(
        28, 0.875, crop_mode, "bilinear", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)
    )
    theirs = timm.data.create_transform(
        (3, 28, 28),
        crop_pct=0.875,
        crop_mode=crop_mode,
        interpolation="bilinear",
        mean=ours.mean,
        std=ours.std,
    )
    for image in images:
        if max(image.size) < 8 * min(image.size):
            np.testing.assert_allclose(
                ours(image), theirs(image).numpy(), rtol=0, atol=1e-6
            )


def test_a_thread_of_an_image_is_not_enlarged(monkeypatch):
    from PIL import Image

    from dppl.encoders.pixels import Preprocessing

    sizes = []
    resize = Image.Image.resize
    monkeypatch.setattr(
        Image.Image,
        "resize",
        lambda self, *args: sizes.append(self.size) or resize(self, *args),
    )
    assert Preprocessing(32)(Image.new("RGB", (100_000, 1))).shape == (3, 32, 32)
    assert sizes == [(8, 1)]


def test_vision_transformers_of_torchvision(torch, timm, models, images):
    """The layout of the SWAG checkpoints."""
    models_of_torchvision = pytest.importorskip("torchvision.models")
    other = models_of_torchvision.VisionTransformer(
        image_size=32,
        patch_size=16,
        num_layers=12,
        num_heads=3,
        hidden_dim=192,
        mlp_dim=768,
    ).eval()
    path = save(torch, other, models / "torchvision.pth")
    encoder = load_encoder(f"timm:vit_tiny_patch16_224@{path}?size=32", batch_rows=4)
    other.heads = torch.nn.Identity()
    inputs = torch.from_numpy(np.stack([encoder.prepare(image) for image in images]))
    with torch.inference_mode():
        np.testing.assert_allclose(
            encoder.encode(images), other(inputs).numpy(), **CLOSE
        )


def test_checkpoints_must_fill_the_model(torch, timm, checkpoints, tmp_path):
    with pytest.raises(InputError, match="holds no weights for this model"):
        load_encoder(f"timm:test_resnet@{checkpoints / 'test_vit.pth'}")
    (tmp_path / "text.pth").write_text("no weights")
    with pytest.raises(InputError, match="holds no weights for this model"):
        load_encoder(f"timm:test_resnet@{tmp_path / 'text.pth'}")
    with pytest.raises(InputError, match=r"there is no file .*none\.pth"):
        load_encoder(f"timm:test_resnet@{tmp_path / 'none.pth'}")
    with pytest.raises(ParameterError, match="timm has no model"):
        load_encoder("timm:test_nothing")


@pytest.mark.parametrize(
    "option",
    ["size=0", "size=x", "crop_pct=2", "crop_pct=x", "mean=1", "interpolation=x"],
)
def test_preprocessing_options_are_checked(option, timm, checkpoints):
    with pytest.raises(ParameterError):
        load_encoder(f"timm:test_resnet@{checkpoints / 'test_resnet.pth'}?{option}")


def test_weights_and_preprocessing_decide_the_function(
    torch, timm, checkpoints, models
):
    one = load_encoder(
        f"timm:test_resnet@{checkpoints / 'test_resnet.pth'}?size=32", batch_rows=2
    ).fingerprint
    model = timm.create_model("test_resnet", num_classes=5)
    model.load_state_dict(torch.load(checkpoints / "test_resnet.pth"))
    same = save(torch, model, models / "same.pth")
    model.layer1[0].bn1.running_mean[0] += 1
    other = save(torch, model, models / "other.pth")
    assert load_encoder(
        f"timm:test_resnet@{same}?size=32", batch_rows=4
    ).fingerprint.same_function(one)
    assert not load_encoder(
        f"timm:test_resnet@{other}?size=32", batch_rows=2
    ).fingerprint.same_function(one)
    assert not load_encoder(
        f"timm:test_resnet@{same}?size=33", batch_rows=2
    ).fingerprint.same_function(one)


# frozen models


def frozen(torch, model, device="cpu", precision="auto"):
    from dppl.encoders.frozen import FrozenModel

    return FrozenModel(
        torch,
        model,
        lambda model, tensors: model(tensors["pixel_values"]),
        device,
        precision,
    )


class Stubborn:
    """Made into a batch normalisation that stays in training mode."""

    def train(self, mode=True):
        return super().train(True)


def test_statistics_of_the_batch_are_refused(torch):
    stubborn = type("StubbornNorm", (Stubborn, torch.nn.BatchNorm2d), {})
    for layer in (torch.nn.BatchNorm2d(3, track_running_stats=False), stubborn(3)):
        with pytest.raises(
            ParameterError, match="layer '0' normalises with statistics of the batch"
        ):
            frozen(torch, torch.nn.Sequential(layer))
    kept = frozen(
        torch, torch.nn.Sequential(torch.nn.BatchNorm2d(3).train(), torch.nn.Dropout())
    )
    pixels = np.ones((2, 3, 4, 4), np.float32)
    np.testing.assert_array_equal(
        kept({"pixel_values": pixels}), kept({"pixel_values": pixels})
    )


def test_rotary_embeddings_that_change_are_refused(torch):
    for kind in (
        "dynamic",
        "longrope",
        {"full_attention": "default", "sliding_attention": "dynamic"},
    ):
        layer = torch.nn.Linear(2, 2)
        layer.rope_type = kind
        with pytest.raises(
            ParameterError,
            match=r"layer '0' has a rotary embedding .* the lengths of the texts seen",
        ):
            frozen(torch, torch.nn.Sequential(layer))
    for kind in ("default", "llama3", "yarn", {"full_attention": "linear"}, None):
        layer.rope_type = kind
        frozen(torch, layer)


def test_mixtures_of_experts_get_one_row(torch):
    for config, rows in (
        ({"num_experts": 8}, 1),
        ({"num_local_experts": 2}, 1),
        ({"text_config": {"n_routed_experts": 4}}, 1),
        ({"num_experts": 1, "num_experts_per_tok": 2, "n_routed_experts": None}, None),
        ({"text_config": {"hidden_size": 8}}, None),
    ):
        layer = torch.nn.Linear(2, 2)
        layer.config = SimpleNamespace(to_dict=lambda config=config: config)
        assert frozen(torch, torch.nn.Sequential(layer)).only_rows == rows


def test_precision_and_device(torch, monkeypatch):
    layer = torch.nn.Linear(2, 2)
    with pytest.raises(ParameterError, match="float16"):
        frozen(torch, layer, "cpu", "float16")
    assert frozen(torch, layer, "cpu", "float32").dtype == "float32"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert frozen(torch, layer, "auto").device == "cpu"
    with pytest.raises(ParameterError, match="finds none"):
        frozen(torch, layer, "cuda")


def test_the_number_of_threads_changes_nothing(torch, bert, texts, same_bits):
    encoder = load_encoder(f"hf:{bert}", batch_rows=4)
    before = torch.get_num_threads()
    try:
        outcomes = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            outcomes.append(encoder.encode(texts))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    same_bits(*outcomes)


# transformers


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_hf_texts(pooling, torch, transformers, bert, texts, independent):
    encoder = load_encoder(f"hf:{bert}?pooling={pooling}&max_windows=1", batch_rows=4)
    assert (encoder.modality, encoder.dimension) == ("text", 24)
    assert encoder.fingerprint.uri == f"hf:bert?pooling={pooling}&max_windows=1"
    independent(encoder, texts)
    model = transformers.AutoModel.from_pretrained(bert).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(bert)
    with torch.inference_mode():
        for text, row in zip(texts, encoder.encode(texts), strict=True):
            hidden = model(
                **tokenizer(text, return_tensors="pt", truncation=True)
            ).last_hidden_state[0]
            np.testing.assert_allclose(
                row,
                (hidden[0] if pooling == "cls" else hidden.mean(0)).numpy(),
                **CLOSE,
            )


class Naive(TextAdapter):
    """What dppl does not do: batches padded to their longest text, and no longer."""

    def _shape(self, length):
        return (self.limit, True)

    def rows(self, shape, batch_rows):
        return batch_rows

    def forward(self, inputs, shape):
        return super().forward(
            inputs, (max(len(row["input_ids"]) for row in inputs), True)
        )


def test_the_check_finds_a_naive_batch(bert, texts):
    given = vars(hf.load(EncoderUri("hf", str(bert)), "cpu", "auto"))
    network = Naive(
        **{name: value for name, value in given.items() if name != "prepare"}
    )
    encoder = FixedShapeEncoder(network, "naive", 4)
    assert not encoder.fingerprint.row_independent
    together = encoder.encode(texts)
    assert any(
        (encoder.encode([text])[0] != row).any()
        for text, row in zip(texts, together, strict=True)
    )


@pytest.fixture(scope="module")
def mixtral(transformers, tokenizer, models):
    """The folder of a tiny mixture of experts."""
    config = transformers.MixtralConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=48,
        num_key_value_heads=3,
        num_local_experts=4,
        **SIZES,
    )
    transformers.MixtralModel(config).save_pretrained(models / "mixtral")
    tokenizer.save_pretrained(models / "mixtral")
    return models / "mixtral"


def test_mixtures_of_experts_are_computed_one_row_at_a_time(
    mixtral, texts, independent
):
    encoder = load_encoder(f"hf:{mixtral}")
    assert encoder.batch_rows == 1
    independent(encoder, texts)
    with pytest.raises(ParameterError, match="batch_rows must be 1"):
        load_encoder(f"hf:{mixtral}", batch_rows=4)


def test_a_rotary_embedding_that_adapts_is_refused(
    transformers, tokenizer, tmp_path, monkeypatch
):
    rope = {"rope_type": "dynamic", "factor": 4.0, "rope_theta": 10000.0}
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer),
        max_position_embeddings=16,
        rope_parameters=rope,
        **{**SIZES, "hidden_size": 48},
    )
    transformers.LlamaModel(config).save_pretrained(tmp_path / "llama")
    tokenizer.save_pretrained(tmp_path / "llama")
    with pytest.raises(
        ParameterError, match="layer 'rotary_emb' has a rotary embedding"
    ):
        load_encoder(f"hf:{tmp_path / 'llama'}")
    # The check on synthetic rows finds it too.
    monkeypatch.setattr("dppl.encoders.frozen._refuse_memory", lambda *_: None)
    for batch_rows in (1, 4):
        with pytest.raises(ParameterError, match="changes while it computes"):
            load_encoder(
                f"hf:{tmp_path / 'llama'}?max_tokens=40", batch_rows=batch_rows
            )


def test_buffers_that_change_are_noticed(torch):
    model = torch.nn.Linear(2, 2)
    model.register_buffer("seen", torch.zeros(1), persistent=False)
    found = frozen(torch, model)
    state = found.arguments(8)["state"]
    before = state()
    assert state() == before
    model.seen += 1
    assert state() != before


def test_a_tokenizer_with_tokens_that_the_model_lacks_is_refused(
    transformers, tokenizer, tmp_path
):
    config = transformers.BertConfig(vocab_size=len(tokenizer) - 1, **SIZES)
    transformers.BertModel(config, add_pooling_layer=False).save_pretrained(
        tmp_path / "bert"
    )
    tokenizer.save_pretrained(tmp_path / "bert")
    with pytest.raises(
        ParameterError,
        match=rf"tokens up to number {len(tokenizer) - 1}, and the model embeddings",
    ):
        load_encoder(f"hf:{tmp_path / 'bert'}")


def test_hf_cuts_texts(bert):
    encoder = load_encoder(f"hf:{bert}?max_tokens=6&max_windows=1")
    short, long = encoder.encode(
        ["card payment not arrived", "card payment not arrived why"]
    )
    np.testing.assert_array_equal(short, long)
    for name in ("max_tokens", "max_windows"):
        for wrong in ("0", "x", "1.5", ""):
            with pytest.raises(ParameterError, match=f"{name} must be"):
                load_encoder(f"hf:{bert}?{name}={wrong}")
    with pytest.raises(ParameterError, match="max_tokens must be above 2"):
        load_encoder(f"hf:{bert}?max_tokens=2")


def test_hf_long_texts(torch, transformers, bert, clip, texts, independent, capfd):
    """A text of 46 + 6 tokens is the mean of two windows, of which the library embeds each as a text by itself."""
    encoder = load_encoder(f"hf:{bert}", batch_rows=4)
    assert encoder.fingerprint.preprocessing.endswith(", at most 48, 39 windows")
    independent(encoder, texts)
    independent(load_encoder(f"hf:{clip}?modality=text", batch_rows=4), texts)
    text = [
        ("card", "why", "twice", "my", "account")[place * place % 7 % 5]
        for place in range(52)
    ]
    model, tokenizer = (
        kind.from_pretrained(bert)
        for kind in (transformers.AutoModel, transformers.AutoTokenizer)
    )
    parts = []
    for part in (text[:46], text[6:]):
        with torch.inference_mode():
            hidden = model.eval()(
                **tokenizer(" ".join(part), return_tensors="pt")
            ).last_hidden_state[0]
        assert len(hidden) == 48
        parts.append(hidden.mean(0).numpy())
    mean = (
        np.mean(parts, axis=0)
        * np.linalg.norm(parts, axis=1).mean()
        / np.linalg.norm(np.mean(parts, axis=0))
    )
    capfd.readouterr()
    np.testing.assert_allclose(encoder.encode([" ".join(text)])[0], mean, **CLOSE)
    assert capfd.readouterr() == (
        "",
        "",
    )  # a warning of the library that a text is long would be about that text
    cut = load_encoder(f"hf:{bert}?max_windows=1", batch_rows=4)
    assert not cut.fingerprint.same_function(encoder.fingerprint)


def test_st_long_texts_start_with_the_prompt_in_every_window(
    sentences, texts, independent
):
    encoder = load_encoder(f"st:{sentences}?max_windows=3", batch_rows=4)
    assert encoder.fingerprint.preprocessing.endswith(
        "at most 40, prompt 'not my card: ', 3 windows"
    )
    independent(encoder, texts)
    long = " ".join(["charged twice"] * 40)
    windows = encoder.text_windows.split(encoder.prepare(long))
    assert len(windows) == 3
    starts = {tuple(piece["input_ids"][:5].tolist()) for piece, _ in windows}
    assert starts == {tuple(encoder.prepare("why")["input_ids"][:5].tolist())}
    assert np.linalg.norm(encoder.encode([long])) == pytest.approx(1, rel=1e-6)
    assert load_windows(f"st:{sentences}").cuts(" ".join(["charged twice"] * 1000))


def test_hf_images(torch, transformers, vit, images, independent):
    encoder = load_encoder(f"hf:{vit}", batch_rows=4)
    assert (encoder.modality, encoder.dimension, encoder.fingerprint.pooling) == (
        "image",
        24,
        "cls",
    )
    independent(encoder, images)
    model = transformers.AutoModel.from_pretrained(vit).eval()
    inputs = torch.from_numpy(np.stack([encoder.prepare(image) for image in images]))
    with torch.inference_mode():
        hidden = model(inputs).last_hidden_state.numpy()
    np.testing.assert_allclose(encoder.encode(images), hidden[:, 0], **CLOSE)
    mean = load_encoder(f"hf:{vit}?pooling=mean", batch_rows=4)
    np.testing.assert_allclose(mean.encode(images), hidden.mean(1), **CLOSE)
    assert not mean.fingerprint.same_function(encoder.fingerprint)
    with pytest.raises(ParameterError, match="pooling must be one of"):
        load_encoder(f"hf:{vit}?pooling=max")


def test_a_processor_must_make_one_shape_of_all_images(
    vit, images, independent, tmp_path
):
    shutil.copytree(vit, tmp_path / "vit")
    shortest = {"size": {"shortest_edge": 16}}
    write_processor(
        tmp_path / "vit", "CLIPImageProcessor", do_center_crop=False, **shortest
    )
    with pytest.raises(ParameterError, match="inputs of different shapes"):
        load_encoder(f"hf:{tmp_path / 'vit'}")
    crop = {"do_center_crop": True, "crop_size": {"height": 16, "width": 16}}
    write_processor(tmp_path / "vit", "CLIPImageProcessor", **crop, **shortest)
    independent(load_encoder(f"hf:{tmp_path / 'vit'}", batch_rows=4), images)


def test_hf_models_of_both(torch, transformers, clip, images, texts, independent):
    pictures = load_encoder(f"hf:{clip}", batch_rows=4)
    words = load_encoder(f"hf:{clip}?modality=text", batch_rows=4)
    assert (pictures.modality, words.modality) == ("image", "text")
    assert pictures.dimension == words.dimension == 12
    independent(pictures, images)
    independent(words, texts)


def reference(transformers, folder, texts, **padding):
    """Return what the library's own example gives, text by text."""
    model, tokenizer = (
        kind.from_pretrained(folder)
        for kind in (transformers.AutoModel, transformers.AutoTokenizer)
    )
    inputs = [
        tokenizer(text, truncation=True, max_length=48, return_tensors="pt", **padding)
        for text in texts
    ]
    rows = [
        model.eval().get_text_features(input_ids=one["input_ids"]).pooler_output
        for one in inputs
    ]
    return np.concatenate([row.detach().numpy() for row in rows])


def test_the_tower_of_texts_embeds_into_the_space_of_the_images(
    torch, transformers, clip, images, vit
):
    encoder = load_encoder(f"hf:{clip}", batch_rows=4)
    tower = encoder.text_tower()
    assert (tower.modality, tower.dimension) == ("text", encoder.dimension)
    names = ["card", "my account was charged twice"]
    np.testing.assert_allclose(
        tower.encode(names), reference(transformers, clip, names), rtol=1e-4, atol=1e-5
    )
    assert tower.text_tower() is None
    assert load_encoder(f"hf:{vit}", batch_rows=4).text_tower() is None


def test_images_are_described_by_texts(
    torch, transformers, clip, vit, images, tmp_path, monkeypatch
):
    """In Python and by the command alike; an encoder without a tower for texts says what to do."""
    monkeypatch.chdir(tmp_path)
    classes = ["card", "not-my-account"]
    y = ["card", "not-my-account"] * 4
    for number, (label, image) in enumerate(zip(y, images[:8], strict=True)):
        (tmp_path / "photos" / label).mkdir(parents=True, exist_ok=True)
        image.save(tmp_path / "photos" / label / f"{number}.png")
    (tmp_path / "classes.txt").write_text("".join(f"{name}\n" for name in classes))
    command = ["train", "photos", "--encoder", f"hf:{clip}", "--classes", "classes.txt"]
    command += ["--mu", "1", "--options", "random_state=1"]
    done = invoke([*command, "--descriptions", "names", "--out", "m.safetensors"])
    assert done.exit_code == 0, done.stderr
    paths = sorted((tmp_path / "photos").rglob("*.png"))
    model = dppl.PrivateClassifier(
        f"hf:{clip}",
        dppl.GaussianDP(1.0),
        classes,
        descriptions="names",
        random_state=1,
    )
    model.fit(paths, [path.parent.name for path in paths])
    assert (tmp_path / "m.safetensors").read_bytes() == model.model_.to_bytes()
    assert model.model_.examples_.texts == (("card",), ("not my account",))
    direct = dppl.SoftmaxPrototypes(dppl.GaussianDP(1.0), classes, random_state=1)
    rows = (
        load_encoder(f"hf:{clip}?modality=text")
        .encode(["card", "not my account"])
        .astype(np.float16)
    )
    X = (
        load_encoder(f"hf:{clip}")
        .encode([PIL.open(path) for path in paths])
        .astype(np.float16)
    )
    direct.set_params(public=PublicData(examples=rows, example_classes=classes)).fit(
        X, [path.parent.name for path in paths]
    )
    np.testing.assert_array_equal(model.model_.coef_, direct.coef_)
    # By default only texts are described by the names of their classes.
    assert model.set_params(descriptions="auto").fit(paths, y).model_.examples_ is None
    command[3] = f"hf:{vit}"
    refused = invoke([*command, "--descriptions", "names", "--out", "n.safetensors"])
    assert refused.exit_code == 2
    assert (
        "--descriptions must be a folder with a subfolder of example images for each class"
        in refused.stderr
    )
    assert not list(tmp_path.glob("n.safetensors*"))


def test_siglip_reads_texts_padded_as_it_was_trained(
    torch, transformers, tokenizer, tmp_path, independent, texts
):
    text = {
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 48,
        "projection_size": 24,
    }
    config = transformers.SiglipConfig(
        text_config={**SIZES, **text, "eos_token_id": 1, "bos_token_id": 0},
        vision_config={**SIZES, "image_size": 16, "patch_size": 4},
    )
    transformers.SiglipModel(config).save_pretrained(tmp_path / "siglip")
    tokenizer.save_pretrained(tmp_path / "siglip")
    write_processor(tmp_path / "siglip", "SiglipImageProcessor")
    tower = load_encoder(
        f"hf:{tmp_path / 'siglip'}?modality=text&max_windows=1", batch_rows=4
    )
    expected = reference(transformers, tmp_path / "siglip", texts, padding="max_length")
    np.testing.assert_allclose(tower.encode(texts), expected, rtol=1e-4, atol=1e-5)
    unpadded = reference(transformers, tmp_path / "siglip", texts)
    assert not np.allclose(tower.encode(texts), unpadded, rtol=1e-2, atol=1e-3)
    independent(tower, texts)


@pytest.fixture(scope="module")
def two_towers(transformers, bert, vit, models):
    """A model of images and texts whose embeddings go through the poolers of its towers."""
    model = transformers.VisionTextDualEncoderModel(
        vision_model=transformers.ViTModel.from_pretrained(vit, add_pooling_layer=True),
        text_model=transformers.BertModel.from_pretrained(bert, add_pooling_layer=True),
        config=transformers.VisionTextDualEncoderConfig.from_vision_text_configs(
            transformers.ViTConfig.from_pretrained(vit),
            transformers.BertConfig.from_pretrained(bert),
            projection_dim=12,
        ),
    )
    folder = models / "two-towers"
    model.save_pretrained(folder)
    for file in [*bert.glob("token*"), *vit.glob("preprocessor*")]:
        shutil.copy(file, folder)
    return folder


def test_a_pooler_that_counts_is_in_the_fingerprint(
    transformers, two_towers, texts, tmp_path
):
    model = transformers.AutoModel.from_pretrained(two_towers)
    model.text_model.pooler.dense.weight.data += 1
    shutil.copytree(two_towers, tmp_path / "other")
    model.save_pretrained(tmp_path / "other")
    one, other = (
        load_encoder(f"hf:{folder}?modality=text", batch_rows=4)
        for folder in (two_towers, tmp_path / "other")
    )
    assert not np.allclose(one.encode(texts), other.encode(texts))
    assert not one.fingerprint.same_function(other.fingerprint)
    # A file without it would leave it at its random start.
    state = {
        key: value for key, value in model.state_dict().items() if "pooler" not in key
    }
    model.save_pretrained(tmp_path / "other", state_dict=state)
    with pytest.raises(InputError, match=r"holds no weights for \w+_model\.pooler"):
        load_encoder(f"hf:{tmp_path / 'other'}?modality=text")


def test_models_with_a_part_missing_are_refused(torch, transformers, bert, tmp_path):
    model = transformers.AutoModel.from_pretrained(bert, add_pooling_layer=False)
    state = {
        key: value
        for key, value in model.state_dict().items()
        if "layer.1.output.dense" not in key
    }
    model.save_pretrained(tmp_path / "part", state_dict=state)
    with pytest.raises(
        InputError,
        match=r"holds no weights for encoder\.layer\.1\.output\.dense\.\w+ and 1 more",
    ):
        load_encoder(f"hf:{tmp_path / 'part'}")
    (tmp_path / "empty").mkdir()
    for scheme in ("hf", "st"):
        with pytest.raises(InputError, match="holds no model that can be loaded"):
            load_encoder(f"{scheme}:{tmp_path / 'empty'}")


# sentence-transformers


def test_st_texts(library, sentences, texts, independent):
    encoder = load_encoder(f"st:{sentences}?max_windows=1", batch_rows=4)
    assert encoder.fingerprint.pooling == "mean, normalised"
    assert encoder.fingerprint.preprocessing.endswith(
        "at most 40, prompt 'not my card: '"
    )
    independent(encoder, texts)
    model = library.SentenceTransformer(str(sentences), device="cpu")
    np.testing.assert_allclose(encoder.encode(texts), model.encode(texts), **CLOSE)


def test_an_export_for_onnx_is_another_encoder_of_the_same_function(
    sentences, texts, tmp_path, independent
):
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package)
    path = tmp_path / "sentences.onnx"
    dppl.export.save(f"st:{sentences}", path, to="onnx")
    with pytest.raises(FileExistsError):
        dppl.export.save(f"st:{sentences}", path, to="onnx")
    here = load_encoder(f"st:{sentences}", batch_rows=4)
    there = load_encoder(f"onnx:{path}", batch_rows=4)
    assert there.fingerprint.row_independent
    long = [*texts, " ".join(["charged twice"] * 60)]
    np.testing.assert_allclose(there.encode(long), here.encode(long), **CLOSE)
    independent(there, texts)
    # Bits differ, so no model that was fitted with one predicts with the other.
    model = PrivateClassifier(here, dppl.ZCDP(9.0), ["a", "b"], method="mean").fit(
        texts, np.resize(["a", "b"], len(texts))
    )
    with pytest.raises(InputError, match="this is another encoder"):
        encoder_of_model(model.model_, there)


def test_an_export_that_embeds_otherwise_is_refused(sentences, tmp_path, monkeypatch):
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package)
    call = FrozenModel.to_onnx
    for uri in (f"st:{sentences}?max_windows=1", f"st:{sentences}"):
        with pytest.raises(InputError, match="differ by more than rounding"):
            dppl.export.save(uri, tmp_path / "one.onnx", to="onnx")
        monkeypatch.setattr(
            FrozenModel, "to_onnx", lambda self, arrays: call(changed(self), arrays)
        )
    assert not (tmp_path / "one.onnx").exists()


def changed(frozen):
    """Return a model with another pooling."""
    other = copy.copy(frozen)
    other._call = lambda model, tensors: model(**tensors).last_hidden_state[:, 0]
    return other


def test_only_texts_of_torch_are_exported(vit, sentences, tmp_path):
    for package in ("onnx", "onnxruntime"):
        pytest.importorskip(package)
    with pytest.raises(
        ParameterError, match="must be an encoder of texts that torch computes"
    ):
        dppl.export.save(f"hf:{vit}", tmp_path / "one.onnx", to="onnx")
    with pytest.raises(ParameterError, match="to must be 'onnx' for an encoder"):
        dppl.export.save(f"st:{sentences}", tmp_path / "one", to="hf")


def test_without_a_trial_rows_are_the_same_and_nothing_is_promised(
    sentences, texts, same_bits
):
    tried = load_encoder(f"st:{sentences}", batch_rows=4)
    untried = load_encoder(f"st:{sentences}", batch_rows=4, trial=False)
    assert (tried.fingerprint.row_independent, untried.fingerprint.row_independent) == (
        True,
        False,
    )
    assert untried.fingerprint.same_function(tried.fingerprint)
    same_bits(untried.encode(texts), tried.encode(texts))


@pytest.mark.parametrize(
    "config",
    [
        {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
        {"pooling_mode": "cls"},
    ],
)
def test_st_models_of_every_age(config, library, sentences, texts, tmp_path):
    shutil.copytree(sentences, tmp_path / "model")
    folder = tmp_path / "model"
    (folder / "1_Pooling" / "config.json").write_text(
        json.dumps({"word_embedding_dimension": 24, **config})
    )
    (folder / "config_sentence_transformers.json").unlink()
    limits = json.loads((folder / "sentence_bert_config.json").read_text())
    (folder / "sentence_bert_config.json").write_text(
        json.dumps({**limits, "max_seq_length": 20})
    )
    modules = json.loads((folder / "modules.json").read_text())[:2]
    (folder / "modules.json").write_text(json.dumps(modules))
    encoder = load_encoder(f"st:{folder}?max_windows=1", batch_rows=4)
    assert encoder.fingerprint.pooling == "cls"
    model = library.SentenceTransformer(str(folder), device="cpu")
    np.testing.assert_allclose(encoder.encode(texts), model.encode(texts), **CLOSE)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        (
            "modules.json",
            [
                {"type": "a.Transformer", "path": ""},
                {"type": "modeling_own.Own", "path": "1_Pooling"},
            ],
        ),
        ("1_Pooling/config.json", {"pooling_mode": "max"}),
        (
            "1_Pooling/config.json",
            {"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True},
        ),
        ("1_Pooling/config.json", {"pooling_mode": "mean", "include_prompt": False}),
        ("sentence_bert_config.json", {"do_lower_case": True}),
    ],
)
def test_other_models_of_sentences_are_refused_and_no_code_of_theirs_is_run(
    file, content, sentences, tmp_path
):
    folder = tmp_path / "model"
    shutil.copytree(sentences, folder)
    (folder / "modeling_own.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Own: ...\n"
    )
    (folder / file).write_text(json.dumps(content))
    with pytest.raises(
        InputError, match="must be a transformer whose tokens are pooled"
    ):
        load_encoder(f"st:{folder}")
    assert not (tmp_path / "ran").exists()


def test_a_checkpoint_that_would_run_code_is_refused(torch, timm, tmp_path):
    class Own:
        def __reduce__(self):
            return open, (str(tmp_path / "ran"), "w")

    torch.save({"model": Own()}, tmp_path / "own.pth")
    with pytest.raises(InputError, match="holds no weights for this model"):
        load_encoder(f"timm:test_vit@{tmp_path / 'own.pth'}")
    assert not (tmp_path / "ran").exists()


def test_a_tokenizer_in_the_folder_of_a_module_decides_the_function(
    sentences, tmp_path
):
    """Older models of sentence-transformers keep it there."""
    found = []
    for place, lower in (("a", True), ("b", False)):
        folder = tmp_path / place
        shutil.copytree(sentences, folder)
        modules = json.loads((folder / "modules.json").read_text())
        (folder / "0_Transformer").mkdir()
        for file in [
            *folder.glob("*.json"),
            *folder.glob("*.txt"),
            *folder.glob("model.*"),
        ]:
            if file.name not in ("modules.json", "config_sentence_transformers.json"):
                file.rename(folder / "0_Transformer" / file.name)
        modules[0]["path"] = "0_Transformer"
        (folder / "modules.json").write_text(json.dumps(modules))
        tokenizer = folder / "0_Transformer" / "tokenizer.json"
        if not lower:
            content = json.loads(tokenizer.read_text())
            content["normalizer"] = {"type": "Prepend", "prepend": "a "}
            tokenizer.write_text(json.dumps(content))
        found.append(load_encoder(f"st:{folder}", batch_rows=4).fingerprint)
    assert found[0].weights == found[1].weights
    assert not found[0].same_function(found[1])
