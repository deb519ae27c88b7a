"""The model card: what a released model guarantees, as Markdown with YAML front matter, as model hubs expect it."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from dppl.encoders.catalogue import PRESETS
from dppl.encoders.load import is_code
from dppl.errors import InputError
from dppl.evaluation import Evaluation
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.budgets import USUAL_DELTA
from dppl.kernel.privacy.guarantee import Charge
from dppl.statement import words
from dppl.statement.data import content, is_private, of_model, task_of, uri_of

_MOST_CLASSES = 50
# Hub names of encoders that dppl calls otherwise; what "hf:" and "st:" load is called
# there as here.
_HUB_NAMES = {"minilm": "sentence-transformers/all-MiniLM-L6-v2"} | {
    name: preset.place for name, preset in PRESETS.items() if "://" not in preset.place
}


def model_card(
    description: dict[str, Any],
    *,
    sha256: str | None = None,
    license: str = "unknown",
    results: Mapping[str, Any] | Evaluation | None = None,
) -> str:
    """Return the card of a model.

    Parameters
    ----------
    description : dict
        What `dppl.methods.model_file.describe` returns, or
        `dppl.finetune.network_file.describe`.
    sha256 : str, default=None
        Hash of the model file.
    license : str, default="unknown"
        The licence of the model, as model hubs abbreviate it, such as ``"apache-2.0"``.
        The encoder's own may bind it too.
    results : Evaluation or mapping, default=None
        A private evaluation of the model. Exact numbers are refused: a card is made to
        be published.

    Returns
    -------
    str
        Markdown. Depends on the model file and on a private evaluation alone, so it may
        be published with it.
    """
    from dppl.statement.rendering import (
        rendered,
    )  # here, because templates are needed by nothing else

    evaluated = None
    if results is not None:
        if not is_private(results):
            raise InputError(
                "a card may be published, so it takes a private evaluation; exact numbers are for a page."
            )
        evaluated = of_model(results, description, sha256 or "")
    said = content(description, sha256=sha256 or "not computed")
    uri = uri_of(description["encoder"])
    # Names and descriptions come from a file and are cut where lists are long.
    texts = zip(
        said["model"]["classes"], said["model"]["descriptions"] or (), strict=False
    )
    return rendered(
        "card.md",
        model=said["model"],
        guarantee=said["guarantee"],
        private_evaluation=evaluated,
        ledger="; ".join(
            str(Charge.from_dict(one)) for one in description["guarantee"]["charges"]
        ),
        front_matter=_front_matter(description, sha256, license),
        task=task_of(description),
        features=description.get("lattice", {}).get("n_features"),
        several="max_labels" in description["parameters"],
        uri=uri,
        # Code is named by whoever runs it, and never by a model file alone.
        network=f" --encoder {shlex.quote(uri)}" if uri and is_code(uri) else "",
        classes=words.listed(said["model"]["classes"], _MOST_CLASSES),
        texts=words.listed(
            [f"{name}: {' / '.join(some)}" for name, some in texts if some],
            _MOST_CLASSES,
        ),
    )


def _front_matter(description: dict[str, Any], sha256: str | None, license: str) -> str:
    """Return what hubs read, with mu and one epsilon that the releases imply, so that machines can compare models."""
    guarantee = description["guarantee"]
    implied = Guarantee.from_dict(description["guarantee"]).implied()
    # The encoder's name on the hub, if its URI says one.
    scheme, _, name = uri_of(description["encoder"]).partition("?")[0].partition(":")
    base = _HUB_NAMES.get(scheme)
    if scheme in ("hf", "st") and name.count("/") == 1:
        base = name
    # Recomputed from the releases, whatever notion the budget was given in.
    epsilons = {at["delta"]: at["epsilon"] for at in implied["epsilon"]}
    privacy = {
        "notion": guarantee["notion"],
        **guarantee["budget"],
        "implied_mu": implied["mu"],
        "implied_epsilon": epsilons.get(USUAL_DELTA),
        "implied_delta": USUAL_DELTA if USUAL_DELTA in epsilons else None,
        **{
            name: guarantee[name]
            for name in ("unit", "adjacency", "secure_noise", "exact")
        },
    }
    fields: dict[str, Any] = {
        "library_name": "dppl",
        "license": license,
        "pipeline_tag": task_of(description),
        "tags": [
            "differential-privacy",
            "classification",
            "embeddings" if "lattice" in description else "images",
        ],
        "base_model": base,
        "differential_privacy": {
            name: value for name, value in privacy.items() if value is not None
        },
        "model_sha256": sha256,
    }
    return "\n".join(
        f"{name}: {_yaml(value)}" for name, value in fields.items() if value is not None
    )


def _yaml(value: Any) -> str:
    """Write a value in JSON, which YAML contains, except for numbers such as 1e-06: YAML 1.1 needs a point in them."""
    if isinstance(value, dict):
        return (
            "{"
            + ", ".join(
                f"{json.dumps(name)}: {_yaml(part)}" for name, part in value.items()
            )
            + "}"
        )
    text = json.dumps(value)
    if isinstance(value, float) and "e" in text and "." not in text:
        return text.replace("e", ".0e")
    return text
