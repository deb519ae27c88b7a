"""The presets for texts in many languages, on small models of their architectures with made-up weights."""

import numpy as np
import pytest

from dppl.encoders import PRESETS, load_encoder
from dppl.encoders.catalogue import READS, reads
from dppl.encoders.fixed import FixedShapeEncoder
from dppl.encoders.load import load_windows
from dppl.encoders.windows import said
from dppl.errors import InputError

pytest.importorskip("torch")
TEXTS = ["Schmerzen im Rücken", "my back hurts", "j'ai mal au dos", "боль в спине"] * 2
SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "max_position_embeddings": 514,
}
NAMES = [name for name, preset in PRESETS.items() if preset.languages]


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    """A cache of the hub with both models: tokens of SentencePiece, as XLM-R has them."""
    tokenizers = pytest.importorskip("tokenizers")
    transformers = pytest.importorskip("transformers")
    library = pytest.importorskip("sentence_transformers")
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    own = tokenizers.Tokenizer(tokenizers.models.Unigram())
    own.pre_tokenizer = tokenizers.pre_tokenizers.Metaspace()
    trainer = tokenizers.trainers.UnigramTrainer(
        vocab_size=120, special_tokens=special, unk_token="<unk>"
    )
    own.train_from_iterator([*TEXTS, "query: passage: 0123456789"], trainer)
    own.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=own,
        model_max_length=512,
        bos_token="<s>",
        cls_token="<s>",
        pad_token="<pad>",
        sep_token="</s>",
        eos_token="</s>",
        unk_token="<unk>",
    )
    kinds = {
        "e5-small": (transformers.BertConfig, transformers.BertModel),
        "e5-base": (transformers.XLMRobertaConfig, transformers.XLMRobertaModel),
    }
    cache = tmp_path_factory.mktemp("hub")
    for name, (config, model) in kinds.items():
        inner = cache / "inner" / name
        made = config(vocab_size=len(tokenizer), initializer_range=0.5, **SIZES)
        model(made, add_pooling_layer=False).save_pretrained(inner)
        tokenizer.save_pretrained(inner)
        modules = library.sentence_transformer.modules
        start = modules.Transformer(str(inner), max_seq_length=512)
        whole = library.SentenceTransformer(
            modules=[start, modules.Pooling(24, "mean"), modules.Normalize()],
            device="cpu",
        )
        place = cache / f"models--{PRESETS[name].place.replace('/', '--')}"
        whole.save(str(place / "snapshots" / "1"))
        (place / "refs").mkdir()
        (place / "refs" / "main").write_text("1")
    return cache


@pytest.fixture
def cached(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(hub))
    return hub


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_its_model_with_the_prompt_of_its_authors(name, cached):
    library = pytest.importorskip("sentence_transformers")
    encoder = load_encoder(name, batch_rows=4)
    assert encoder.fingerprint.row_independent
    assert encoder.fingerprint.uri == name
    assert said(encoder.fingerprint.preprocessing) == READS[name][1]
    assert "prompt 'query: '" in encoder.fingerprint.preprocessing
    (place,) = cached.glob(f"models--*-{name}/snapshots/1")
    model = library.SentenceTransformer(str(place), device="cpu")
    expected = model.encode([f"query: {text}" for text in TEXTS])
    np.testing.assert_allclose(encoder.encode(TEXTS), expected, rtol=1e-3, atol=1e-5)
    assert load_windows(name).cuts("Rücken " * 9000)


def test_what_is_not_there_is_named_as_it_is_downloaded(tmp_path, monkeypatch):
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for uri, place in (
        ("e5-small", "intfloat/multilingual-e5-small"),
        ("st:intfloat/multilingual-e5-base", "intfloat/multilingual-e5-base"),
        # As the library completes it.
        ("st:all-mpnet-base-v2", "sentence-transformers/all-mpnet-base-v2"),
    ):
        with pytest.raises(InputError, match=f"`hf download {place}` puts"):
            load_windows(uri)


def test_languages_are_named_before_anything_is_loaded():
    assert reads("minilm").startswith("minilm reads English; e5-small and e5-base ")
    assert reads("e5-base").startswith("e5-base reads about 100 languages, German,")
    assert (
        reads("st:some/model?revision=3")
        == "st:some/model reads the languages of the model"
    )
    assert reads("hf:some/model") == reads("vit-b-16") == ""


def test_a_trial_is_paid_once_on_a_machine_with_its_settings(
    cached, tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    tries = []
    trial = FixedShapeEncoder._try
    monkeypatch.setattr(
        FixedShapeEncoder, "_try", lambda self: tries.append(self) or trial(self)
    )
    first = load_encoder("e5-small", batch_rows=4)
    again = load_encoder("e5-small", batch_rows=4)
    assert len(tries) == 1
    assert again.fingerprint == first.fingerprint
    smaller = {shape: rows for shape, rows in first._smaller.items() if rows}
    assert {shape: rows for shape, rows in again._smaller.items() if rows} == smaller
    assert smaller
    # Whatever can change a bit is another trial: batches, settings, a damaged entry.
    load_encoder("e5-small", batch_rows=2)
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "SSE41")
    load_encoder("e5-small", batch_rows=4)
    assert len(tries) == 3
    for entry in (tmp_path / "dppl" / "trials").iterdir():
        entry.write_text("[[")
    load_encoder("e5-small", batch_rows=4)
    assert len(tries) == 4
    # A trial in which a bit moved is not kept.
    monkeypatch.setattr(FixedShapeEncoder, "_try", lambda self: (1e-7, 0.0))
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX")
    before = len([*(tmp_path / "dppl" / "trials").iterdir()])
    assert not load_encoder("e5-small", batch_rows=4).fingerprint.row_independent
    assert len([*(tmp_path / "dppl" / "trials").iterdir()]) == before
