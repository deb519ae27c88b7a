"""The model card: what a released model guarantees, as Markdown with YAML front matter, as model hubs expect it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from typing import Any

from dppl._fingerprint import Fingerprint
from dppl.encoders.load import is_code
from dppl.encoders.presets import PRESETS
from dppl.errors import InputError
from dppl.estimators.public_data import ExamplesKept
from dppl.kernel.privacy import Guarantee, Release
from dppl.kernel.privacy.budgets import USUAL_DELTA
from dppl.statement import words
from dppl.statement.words import in_a_row

_MOST_CLASSES = 50
_INTENDED = (
    "To give one of the classes below to records like those that it was trained on. Anybody may have the model, and "
    "predictions cost nothing more. The guarantee is about the training records and says nothing about accuracy: noise "
    "hides rare classes first. Measure the accuracy of each class on labelled records that are not private before "
    "relying on it, above all where predictions decide about people.\n"
)


# Hub names of encoders that dppl calls otherwise; what "hf:" and "st:" load is called there as here.
_HUB_NAMES = {"minilm": "sentence-transformers/all-MiniLM-L6-v2"} | {
    name: preset.place for name, preset in PRESETS.items() if "://" not in preset.place
}
_TEXTS = ("minilm", "st")
_IMAGES = ("pixels", "timm", *PRESETS)
_ON_EMBEDDINGS = """```python
import dppl

model = dppl.load("model.safetensors")  # no pickle, no code
labels = model.predict(embeddings)  # of shape (n, {n_features}), by the encoder below
print(model.guarantee_)
```
"""
_ON_ITEMS = """```python
import dppl

model = dppl.PrivateClassifier.load("model.safetensors")  # loads the encoder, which must be on this machine
labels = model.predict({items})
```
"""
_ON_IMAGES = """```console
dppl predict model.safetensors images/{network} > labels.csv
```

The public network beneath is not in the file.
"""
_ON_NETWORK = """```python
from dppl.{package} import {estimator}

model = {estimator}.load("model.safetensors", network)  # the public network, which is not in the file
labels = model.predict(images)  # as the network takes them
```
"""


def model_card(description: dict[str, Any], *, sha256: str | None = None, license: str = "unknown") -> str:
    """Return the card of a model.

    Parameters
    ----------
    description : dict
        What `dppl.estimators.model_file.describe` returns, or `dppl.finetune.model_file.describe`.
    sha256 : str, default=None
        Hash of the model file.
    license : str, default="unknown"
        Under which the model is published, as model hubs abbreviate it, such as ``"apache-2.0"``. The encoder's own may
        bind it too.

    Returns
    -------
    str
        Markdown. Depends on the model file alone, so it may be published with it.
    """
    guarantee = description["guarantee"]
    promise = Guarantee.from_dict(guarantee)
    sections = [
        _front_matter(description, promise, sha256, license),
        f"# {_cell(description['estimator'])} with differential privacy\n",
        _cell(promise.summary()) + "\n",
        _table(words.table(promise)),
        "## Use\n",
        _how_to_use(description),
        "## Intended use\n",
        _INTENDED,
        "## Guarantee\n",
        _table(
            [
                ("notion", guarantee["notion"]),
                *guarantee["budget"].items(),
                ("unit", words.protected(promise)),
                ("adjacency", f"{guarantee['adjacency']}: {guarantee['neighbours']}"),
                ("randomness", "operating system" if guarantee["fit_for_release"] else "**seeded: NOT FOR RELEASE**"),
                ("accounting", "of exactly what was drawn" if guarantee["exact"] else "**approximate: RESEARCH USE**"),
                ("ledger", guarantee["ledger_entry"] or "none"),
                ("software", ", ".join(f"{name} {version}" for name, version in guarantee["software"].items())),
            ]
        ),
        *(["## Releases\n"] if promise.releases else []),
        *(_release(release, times) for release, times in in_a_row(promise.releases)),
        "## Treated as public\n",
        _items(guarantee["public_inputs"]),
        "## Assumed\n",
        _items(guarantee["assumptions"]),
        "## Not covered\n",
        _items(guarantee["not_covered"]),
        "## Model\n",
        _table(
            [
                ("estimator", description["estimator"]),
                *((f"parameter `{name}`", value) for name, value in sorted(description["parameters"].items())),
                ("encoder", description["encoder"] or "not named"),
                *_what_is_fitted(description),
                ("classes", _classes(description["classes"])),
                *_examples(description),
                ("written by", description["written_by"]),
                ("file sha256", sha256 or "not computed"),
            ]
        ),
    ]
    return "\n".join(sections)


def _front_matter(description: dict[str, Any], promise: Guarantee, sha256: str | None, license: str) -> str:
    guarantee = description["guarantee"]
    fields: dict[str, Any] = {
        "library_name": "dppl",
        "license": license,
        "pipeline_tag": task_of(description),
        "tags": ["differential-privacy", "classification", "embeddings" if "lattice" in description else "images"],
        "base_model": _base_model(description["encoder"]),
        "differential_privacy": {
            "notion": guarantee["notion"],
            **guarantee["budget"],
            **_implied(promise),
            "unit": guarantee["unit"],
            "adjacency": guarantee["adjacency"],
            "fit_for_release": guarantee["fit_for_release"],
            "exact": guarantee["exact"],
        },
        "model_sha256": sha256,
    }
    lines = [f"{name}: {_yaml(value)}" for name, value in fields.items() if value is not None]
    return "\n".join(["---", *lines, "---", ""])


def task_of(description: dict[str, Any]) -> str:
    """Return what hubs call the task: of a model whose encoder does not tell, that of rows of numbers."""
    if "lattice" not in description:
        return "image-classification"
    scheme = _scheme(description["encoder"])
    tasks = {"text-classification": _TEXTS, "image-classification": _IMAGES}
    return next((task for task, schemes in tasks.items() if scheme in schemes), "tabular-classification")


def _base_model(encoder: str | None) -> str | None:
    """Return the encoder's name on the hub, if its URI says one."""
    scheme, name = _scheme(encoder), _uri(encoder).partition("?")[0].partition(":")[2]
    if scheme in _HUB_NAMES:
        return _HUB_NAMES[scheme]
    return name if scheme in ("hf", "st") and name.count("/") == 1 else None


def _uri(encoder: str | None) -> str:
    try:
        return "" if encoder is None else Fingerprint.parse(encoder).uri
    except InputError:
        return ""


def _scheme(encoder: str | None) -> str:
    return _uri(encoder).partition("?")[0].partition(":")[0]


def _how_to_use(description: dict[str, Any]) -> str:
    if "lattice" not in description:
        uri = _uri(description["encoder"])
        if not uri:
            estimator = description["estimator"]
            return _ON_NETWORK.format(package="lab" if estimator == "FilmEnsemble" else "finetune", estimator=estimator)
        # Code is named by whoever runs it, and never by a model file alone.
        return _ON_IMAGES.format(network=f" --encoder {shlex.quote(uri)}" if is_code(uri) else "")
    code = _ON_EMBEDDINGS.format(n_features=description["lattice"]["n_features"])
    items = {"text-classification": '["a text", "another"]', "image-classification": '["a.jpg", "b.png"]'}
    task = task_of(description)
    return f"{_ON_ITEMS.format(items=items[task])}\nOr from embeddings:\n\n{code}" if task in items else code


def _implied(promise: Guarantee) -> dict[str, float]:
    """Return mu and one epsilon that the releases imply, where they do, so that machines can compare models."""
    implied = promise.implied()
    mu = {} if implied["mu"] is None else {"implied_mu": implied["mu"]}
    epsilons = {at["delta"]: at["epsilon"] for at in implied["epsilon"]}
    if USUAL_DELTA not in epsilons:
        return mu
    return mu | {"implied_epsilon": epsilons[USUAL_DELTA], "implied_delta": USUAL_DELTA}


def _yaml(value: Any) -> str:
    """Write a value in JSON, which YAML contains, but for numbers such as 1e-06: YAML 1.1 wants a point in them."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(name)}: {_yaml(part)}" for name, part in value.items()) + "}"
    text = json.dumps(value)
    return text.replace("e", ".0e") if isinstance(value, float) and "e" in text and "." not in text else text


def _release(release: Release, times: int) -> str:
    rows = [
        ("mechanism", release.drawn if times == 1 else f"{release.drawn}, {times} times"),
        ("statistic", release.statistic),
        (f"{release.norm} sensitivity", words.measured(release, str(release.sensitivity))),
        *(
            (name, words.measured(release, str(value)) if name.endswith("noise_std") else value)
            for name, value in release.parameters.items()
        ),
        *((f"cost {name}{'' if times == 1 else ' each'}", value) for name, value in release.cost.items()),
    ]
    return _table(rows)


def _table(rows: Iterable[tuple[str, Any]]) -> str:
    lines = ["| | |", "|---|---|", *(f"| {_cell(name)} | {_cell(value)} |" for name, value in rows)]
    return "\n".join(lines) + "\n"


def _items(texts: Iterable[str]) -> str:
    return "\n".join(f"- {_cell(text)}" for text in texts) + "\n"


def _cell(value: Any) -> str:
    """Keep a text of a foreign file on its line and inside its cell, and no link or image."""
    text = "".join(char if char.isprintable() else " " for char in str(value))
    # No bracket: an image in a card would be loaded from wherever a class says.
    return re.sub(r"[\\\[|]", r"\\\g<0>", text).replace("<", "&lt;")


def _what_is_fitted(description: dict[str, Any]) -> list[tuple[str, Any]]:
    """Return what a model takes: embeddings, or a public network whose weights it replaces."""
    if "lattice" in description:
        return [("features", description["lattice"]["n_features"])]
    return [
        ("trained weights", description["n_trained"]),
        ("steps", description["n_steps"]),
        ("noise multiplier", f"{description['noise_multiplier']:.6g}"),
        ("digest of the network", description["module"]),
    ]


def _examples(description: dict[str, Any]) -> list[tuple[str, str]]:
    """Return what is known of the public examples that the fit started from."""
    if "examples" not in description:
        return []
    kept = ExamplesKept.from_dict(description["examples"], len(description["classes"]))
    rows = [("public examples of the classes", str(kept))]
    if kept.texts is not None:
        described = zip(description["classes"], kept.texts, strict=True)
        rows.append(
            ("public descriptions", _classes([f"{name}: {' / '.join(some)}" for name, some in described if some]))
        )
    return rows


def _classes(classes: list[Any]) -> str:
    shown = ", ".join(map(str, classes[:_MOST_CLASSES]))
    return shown if len(classes) <= _MOST_CLASSES else f"{shown} and {len(classes) - _MOST_CLASSES} more"
