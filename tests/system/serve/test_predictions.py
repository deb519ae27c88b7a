"""Answers are those of the model, bit for bit, whoever asks at the same time."""

import threading
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pytest

import dppl
from dppl.errors import ParameterError
from dppl.methods.released import Least
from dppl.prediction.predictions import Predictions
from dppl.serve import Limits, open_model
from system.serve.conftest import Y, as_table, png, served, texts_of


def exactly(model, rows):
    """Return what a model says of each row by itself."""
    return [
        (
            model.predict(row[None]).tolist()[0],
            model.predict_proba(row[None])[0].tolist(),
        )
        for row in rows
    ]


def told(answer):
    assert answer.status == 200, answer.body
    return [
        (one["label"], one["probabilities"]) for one in answer.json()["predictions"]
    ]


def test_embeddings_one_and_many(digits, sample):
    model = dppl.load(digits)
    rows = np.asarray(sample.X_test[:20], np.float64)
    with served([open_model(digits)]) as client:
        many = client.post(embeddings=rows.tolist(), probabilities=True)
        one = client.post(embeddings=rows[3].tolist(), probabilities=True)
    assert many.json()["model"] == "digits"
    assert told(many) == exactly(model, rows)
    assert told(one) == exactly(model, rows[3:4])


def test_the_likeliest_classes_come_first(digits, sample):
    row = np.asarray(sample.X_test[0], np.float64)
    (probabilities,) = dppl.load(digits).predict_proba(row[None])
    with served([open_model(digits)]) as client:
        (found,) = client.post(embeddings=[row.tolist()], top=4).json()["predictions"]
        (none,) = client.post(embeddings=[row.tolist()], top=0).json()["predictions"]
    assert [one["label"] for one in found["top"]] == np.argsort(-probabilities)[
        :4
    ].tolist()
    assert [one["probability"] for one in found["top"]] == sorted(
        probabilities.tolist()
    )[::-1][:4]
    assert found["label"] == found["top"][0]["label"]
    assert (found["probabilities"], none["top"]) == (None, [])


def test_the_label_comes_first_among_classes_of_the_same_probability(digits):
    found = Predictions(
        labels=[7], classes=np.arange(10), probabilities=np.full((1, 10), 0.1)
    )
    tied = replace(open_model(digits), classify=lambda row, similarity: found)
    assert [one.label for one in tied.prediction(np.ones(32), 3, False).top] == [
        7,
        0,
        1,
    ]


def test_texts(animals):
    texts = texts_of(Y, 1)
    model = dppl.PrivateClassifier.load(animals)
    rows = model.encoder.encode(texts)
    with served([open_model(animals)]) as client:
        answer = client.post(texts=texts, probabilities=True)
        alone = client.post(texts=texts[0])
    assert told(answer) == exactly(dppl.load(animals), rows)
    assert [label for label, _ in told(answer)] == model.predict(texts).tolist() == Y
    assert alone.json()["predictions"][0]["label"] == "cat"


def test_an_item_that_cannot_be_used_has_no_label_and_harms_no_other(animals):
    with served([open_model(animals)]) as client:
        answer = client.post(texts=["abcde", " ", "odd one", "fghij", "a\0b"])
        zero = client.post(embeddings=[[0.0] * 27, [1.0] + [0.0] * 26])
    found = answer.json()["predictions"]
    assert [one["label"] for one in found] == ["cat", None, None, "dog", None]
    assert [one["reason"] for one in found] == [
        None,
        "empty",
        "not_prepared",
        None,
        "nul_characters",
    ]
    first, second = zero.json()["predictions"]
    assert first["reason"] == "no_direction"
    assert first["message"] == "it has no direction (NaN, infinity, only zeros)"
    assert second["label"] is not None


def test_images(pictures):
    images = [png("below"), png("above"), b"no image", b""]
    with served([open_model(pictures)]) as client:
        found = client.upload(*images, model="pictures", top=1).json()["predictions"]
    assert [one["label"] for one in found] == ["dark above", "dark below", None, None]
    assert [len(one["top"]) for one in found] == [1, 1, 0, 0]
    assert [one["reason"] for one in found[2:]] == [
        "unknown_format",
        "empty",
    ]


def test_several_models_by_name(digits, animals, sample):
    row = sample.X_test[0].tolist()
    with served([open_model(digits), open_model(animals)]) as client:
        assert client.get("/health").json() == {
            "status": "ok",
            "models": ["digits", "animals"],
        }
        assert client.post(embeddings=row, model="digits").json()["model"] == "digits"
        assert client.post(texts="abc", model="animals").json()["model"] == "animals"
        assert client.post(embeddings=row).status == 404
        assert client.post(embeddings=row, model="other").status == 404
        assert client.post(texts="abc", model="digits").json()["error"] == "other_kind"
        assert client.get("/model").status == 404
        about = client.get("/model?model=animals").json()
    model = dppl.load(animals)
    assert (about["takes"], about["features"], about["classes"]) == (
        ["embeddings", "texts"],
        27,
        ["cat", "dog", "gnu"],
    )
    assert about["statement"] == str(model.guarantee_)
    assert about["summary"] == model.guarantee_.summary()
    assert sha256(animals.read_bytes()).hexdigest() in about["card"]


def in_company(client, requests):
    """Send all requests at once, each by a thread of its own; return the bodies of the answers."""
    together = threading.Barrier(len(requests))
    bodies = [b""] * len(requests)

    def send(place):
        together.wait()
        bodies[place] = client.post(**requests[place]).body

    threads = [
        threading.Thread(target=send, args=(place,)) for place in range(len(requests))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return bodies


class Holding:
    """An encoder that holds its first batch back until all items of a round are prepared, and so in the queue.

    With `mixing` it says that it keeps rows apart, and does not.
    """

    def __init__(self, encoder, mixing):
        self._encoder = encoder
        self._mixing = mixing
        self.modality = encoder.modality
        self.fingerprint = encoder.fingerprint
        self.window = encoder.window
        self._changed = threading.Condition()
        self._prepared = 0
        self._wanted = 0
        self.batches = 0

    def wait_for(self, items):
        self._wanted = self._prepared + items

    def prepare(self, item):
        with self._changed:
            self._prepared += 1
            self._changed.notify_all()
        return self._encoder.prepare(item)

    def encode_prepared(self, batch):
        with self._changed:
            assert self._changed.wait_for(lambda: self._prepared >= self._wanted, 60)
        self.batches += 1
        rows = self._encoder.encode_prepared(batch)
        return rows + 0.01 * rows.mean(axis=0) if self._mixing else rows


def differing(model, *, mixing):
    """Return how many answers differ in three rounds of concurrent requests from those of the same requests alone."""
    encoder = Holding(model.encoder, mixing)
    texts = texts_of(Y[:30], 4)
    requests = [{"texts": [text], "probabilities": True} for text in texts]
    requests[5] = {"texts": texts[:9], "probabilities": True}
    rounds = []
    with served([replace(model, encoder=encoder)]) as client:
        alone = [client.post(**request).body for request in requests]
        before = encoder.batches
        for _ in range(3):
            encoder.wait_for(38)
            rounds.append(in_company(client, requests))
        assert before == 30
        assert encoder.batches - before < 3 * 30  # or nothing was embedded together
    return sum(
        one != other
        for bodies in rounds
        for one, other in zip(alone, bodies, strict=True)
    )


def test_the_answer_to_an_item_does_not_depend_on_its_company(text_model):
    assert differing(text_model, mixing=False) == 0


def test_an_encoder_that_mixes_rows_would_be_noticed(text_model):
    assert differing(text_model, mixing=True) > 0


def test_rows_of_embeddings_do_not_depend_on_their_company(digits, sample):
    """Matrix products of other shapes round otherwise, so rows are classified one at a time."""
    rows = np.asarray(sample.X_test, np.float64)
    with served([open_model(digits)], limits=Limits(items=len(rows))) as client:
        assert told(
            client.post(embeddings=rows.tolist(), probabilities=True)
        ) == exactly(dppl.load(digits), rows)


def test_the_encoder_of_the_model_is_the_one_of_the_service(text_model, letters):
    rows = as_table(letters, ["abc"])
    assert text_model.encoder.fingerprint == letters.fingerprint
    assert np.asarray(rows).tolist() == text_model.encoder.encode(["abc"]).tolist()


def test_an_item_that_the_model_is_not_sure_of_has_no_label_and_the_nearest_classes(
    digits, sample
):
    model = dppl.load(digits)
    rows = np.asarray(sample.X_test[:40], np.float64)
    confidence = model.predict_proba(rows).max(axis=1)
    near = model.similarity(rows)
    sure = np.median(confidence)
    close = np.quantile(near, 0.25)
    labels = model.predict(rows, min_confidence=sure, min_similarity=close).tolist()
    far = near < close
    reasons = [
        "none_of_these" if f else "not_sure" if c < sure else None
        for f, c in zip(far, confidence, strict=True)
    ]
    asked = {"embeddings": rows.tolist(), "top": 1}
    with served([open_model(digits)]) as client:
        by_request = client.post(
            **asked, min_confidence=sure, min_similarity=close
        ).json()["predictions"]
        always = client.post(**asked).json()["predictions"]
    with served([open_model(digits, least=Least(sure, close))]) as client:
        by_service = client.post(**asked).json()["predictions"]
        other = client.post(**asked, min_confidence=0, min_similarity=-1).json()[
            "predictions"
        ]
        about = client.get("/model").json()
    assert by_request == by_service
    assert [one["label"] for one in by_service] == labels
    assert [one["reason"] for one in by_service] == reasons
    assert {"none_of_these", "not_sure", None} == set(reasons)
    assert [len(one["top"]) for one in by_service] == [
        3 if label is None else 1 for label in labels
    ]
    assert [one["similarity"] for one in by_service] == [
        model.similarity(row[None])[0] for row in rows
    ]
    assert (
        [one["label"] for one in other]
        == [one["label"] for one in always]
        == model.predict(rows).tolist()
    )
    assert {one["similarity"] for one in always} == {None}
    assert (about["min_confidence"], about["min_similarity"]) == (sure, close)


def test_a_model_without_similarities_says_so(digits, sample):
    model = replace(open_model(digits), has_similarity=False)
    with served([model]) as client:
        answer = client.post(embeddings=sample.X_test[0].tolist(), min_similarity=0.1)
    assert (answer.status, answer.json()["error"]) == (422, "no_similarity")


def test_a_model_of_multilabel_requires_nothing_of_one(sample, tmp_path):
    model = dppl.MultiLabelPrototypes(
        dppl.GaussianDP(2.0), sample.classes, random_state=0
    )
    model.fit(sample.X, sample.y[:, None].tolist()).save(
        tmp_path / "several.safetensors"
    )
    with pytest.raises(ParameterError, match="one label a record"):
        open_model(tmp_path / "several.safetensors", least=Least(0.5))
    row = sample.X_test[0].tolist()
    with served([open_model(tmp_path / "several.safetensors")]) as client:
        refused = client.post(embeddings=row, min_confidence=0.5)
        (found,) = client.post(embeddings=row).json()["predictions"]
    assert (refused.status, refused.json()["error"]) == (422, "multilabel")
    assert "one label a record" in refused.json()["message"]
    assert found["labels"] == model.predict_labels(np.array([row]))[0]
