"""What a statement says of a model: a JSON-ready dictionary in the form of docs/report.schema.json."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dppl._utils.fingerprint import Fingerprint, in_short
from dppl._utils.outside import parse_json
from dppl.encoders.catalogue import PRESETS, READS
from dppl.encoders.windows import said
from dppl.errors import InputError, ParameterError
from dppl.evaluation import Estimate, Evaluation
from dppl.evaluation.evaluation import Together
from dppl.finetune.network_file import describe as describe_finetuned
from dppl.finetune.network_file import is_finetuned
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.budgets import rounded_up
from dppl.kernel.privacy.guarantee import Charge
from dppl.methods.model_file import describe as describe_model
from dppl.methods.public_data import ExamplesKept
from dppl.methods.registry import BY_METHOD, BY_NAME
from dppl.methods.released import Reported
from dppl.methods.start import chain_of
from dppl.metrics import minority_classes
from dppl.statement import words

FORMAT = 3
# False-positive rates of the trade-off curve: evenly, and for rare false alarms on a
# logarithmic scale.
_EVENLY = [place / 50 for place in range(1, 50)]
_RARELY = [10 ** (place / 5) for place in range(-20, -8)]
_LETTERS = 300  # of a parameter
_SAME = "evaluate this model: dppl evaluate MODEL DATA ... --out FILE."
_WRITES = "`dppl evaluate MODEL DATA ... --out FILE`"
_MEASURED = (
    "n",
    "n_unknown_labels",
    "n_unusable",
    "accuracy",
    "balanced_accuracy",
    "minority_accuracy",
    "chance",
)
# Task, title, what is classified, and schemes of encoders; of others only whoever has
# them knows what they take.
_KINDS: tuple[tuple[str, str, str, Set[str]], ...] = (
    (
        "text-classification",
        "A private classifier of texts",
        "text",
        {"st", *READS},
    ),
    (
        "image-classification",
        "A private classifier of images",
        "image",
        {"pixels", "timm", *PRESETS} - READS.keys(),
    ),
    (
        "tabular-classification",
        "A private classifier of rows of a table",
        "row",
        {"columns"},
    ),
    (
        "tabular-classification",
        "A private classifier of embeddings",
        "embedding",
        set(),
    ),
)


@contextmanager
def file_of(model: Any) -> Iterator[Path]:
    """Give the file of a model, or of a fitted classifier the one that `save` writes: what a reader gets."""
    if isinstance(model, str | os.PathLike):
        yield Path(model)
    elif isinstance(model, Reported):
        with TemporaryDirectory() as folder:
            model.save(path := Path(folder) / "model.safetensors")
            yield path
    else:
        raise ParameterError(
            f"must be a fitted classifier of dppl, or its file; got {type(model).__name__}.",
            parameter="model",
        )


def describe(path: Path) -> dict[str, Any]:
    """Return what a model file of either form says."""
    if is_finetuned(path):
        return describe_finetuned(path)
    return describe_model(path)


def content(
    description: Mapping[str, Any],
    *,
    sha256: str,
    file: str = "model.safetensors",
    delta: float | None = None,
    by: str | None = None,
    purpose: str | None = None,
    evaluation: Mapping[str, Any] | None = None,
    ledger: Mapping[str, Any] | None = None,
    gallery: Mapping[str, Any] | None = None,
    private_evaluation: Mapping[str, Any] | None = None,
    shapes: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return what is known of a model from its file, and apart from it what its publisher measured and paid."""
    guarantee = Guarantee.from_dict(description["guarantee"])
    # IDs of the public rows that a model selected for each class, or else their
    # numbers, which count from 1.
    selected = description.get("public_ids") or [
        [place + 1 for place in several]
        for several in description.get("public_indices") or ()
    ]
    _, title, item, _ = _kind_of(description)
    # Every number is computed from the releases here; a file could state any.
    return {
        "format": FORMAT,
        "title": title,
        "model": {
            "file": file,
            "sha256": sha256,
            "by": by,
            "purpose": purpose,
            "estimator": description["estimator"],
            "item": item,
            "network": "lattice" not in description,
            "labels": description["parameters"].get("max_labels"),
            "does": _does(description, item),
            "facts": _facts(description, guarantee),
            "classes": [str(name) for name in description["classes"]],
            "descriptions": (description.get("examples") or {}).get("texts"),
            "selected": [[str(name) for name in several] for several in selected]
            or None,
        },
        "guarantee": {
            "sentence": guarantee.summary(),
            "numbers": [list(row) for row in words.table(guarantee, delta)],
            "mu": guarantee.mu,
            "implied": guarantee.implied(delta),
            "usual": {
                "delta": (usual := guarantee.usual_delta),
                "epsilon": guarantee.epsilon(usual),
            },
            "n_models": guarantee.n_models,
            "secure_noise": guarantee.secure_noise,
            "exact": guarantee.exact,
            "notion": guarantee.budget.notion,
            "budget": guarantee.budget.to_dict(),
            "unit": guarantee.unit.value,
            "protects": words.text(guarantee.unit),
            "adjacency": guarantee.adjacency,
            # False-positive rates, and the largest true-positive rate there.
            "curve": [
                [rate, guarantee.true_positive_rate(rate)]
                for rate in sorted({*_RARELY, *_EVENLY})
            ],
            "releases": [
                {
                    "statistic": words.text(release.statistic, guarantee.unit),
                    "drawn": words.drawn(release.mechanism, release.times),
                    "times": times,
                    "norm": words.text(release.norm),
                    "sensitivity": words.sensitivity(release, guarantee.unit),
                    "parameters": words.noise(release, guarantee.unit),
                    "cost": words.price(release),
                }
                for release, times in words.in_a_row(guarantee.releases)
            ],
            "statement": guarantee.to_dict(),
            "details": [
                {"name": name, "heading": heading, "items": list(items)}
                for name, heading, items in words.details(guarantee)
            ],
        },
        "ledger": ledger,
        "evaluation": evaluation,
        "private_evaluation": private_evaluation,
        "gallery": gallery,
        "shapes": shapes,
        "checks": _checks(description, guarantee, file, ledger is not None),
    }


def _does(description: Mapping[str, Any], item: str) -> str:
    """Say in a few sentences what the model does, and how."""
    one = {
        "text": "a text",
        "image": "an image",
        "row": "a row of a table",
        "embedding": "an embedding",
    }[item]
    # A method that came with its own module has no label, and is called by its class.
    entry = BY_NAME.get(description["estimator"])
    if entry is None or entry.label is None:
        method = description["estimator"]
    else:
        method = entry.label
    named = description["encoder"]
    if named is None:
        encoder = "not named in the file"
    else:
        encoder = uri_of(named) or in_short(named)
    if "lattice" not in description:  # a fine-tuned network, which takes images
        how = (
            f"{description['n_trained']:,} weights of a public network ({encoder}) were trained on private records; "
            "all others are as published."
        )
    else:
        width = description["lattice"]["n_features"]
        learned = "how they map to classes was learned from private records"
        how = f"A frozen public encoder ({encoder}) turns {one} into {width} numbers; {learned}. Method: {method}."
        if item == "embedding":
            how = f"Embeddings have {width} numbers, by a public encoder ({encoder}). Method: {method}."
    n_classes = len(description["classes"])
    most = description["parameters"].get("max_labels")
    if most is None:
        what = f"one of {n_classes:,} classes"
    else:
        what = f"any of {n_classes:,} labels, several or none"
    return f"It assigns {one} {what}. {how}"


def _facts(description: Mapping[str, Any], guarantee: Guarantee) -> list[list[str]]:
    """Say what the model is, and who made it with what, as names and values."""
    # In this order on every form.
    facts: dict[str, Any] = {"estimator": description["estimator"]}
    if "lattice" in description:
        width = description["lattice"]["n_features"]
        pool = description["lattice"]["pool"]
        if pool == 1:
            facts["features"] = width
        else:
            facts["features"] = f"{width}, {width // pool} after the public map"
    else:
        facts["trained weights"] = description["n_trained"]
        facts["steps"] = description["n_steps"]
        facts["noise multiplier"] = f"{description['noise_multiplier']:.6g}"
        facts["digest of the network"] = description["module"]
    if "max_labels" in description["parameters"]:
        facts["labels of a record"] = (
            f"any number; where labels are counted, at most {description['parameters']['max_labels']} of a record are"
        )
    if "examples" in description:
        facts["public examples"] = ExamplesKept.from_dict(
            description["examples"], len(description["classes"])
        )
    if chain := chain_of(guarantee):
        facts["starts from"] = ", ".join(
            f"{one['sha256'][:12]} (mu {rounded_up(one['mu'], 4)})" for one in chain
        )
    if description["encoder"] is None:
        facts["encoder"] = "not named"
    else:
        facts["encoder"] = in_short(description["encoder"])
    if texts := _texts(description["encoder"]):
        facts["texts"] = texts
    facts["written by"] = description["written_by"]
    facts["software"] = ", ".join(
        f"{name} {version}" for name, version in sorted(guarantee.software.items())
    )
    # None is the default of a parameter, which says nothing.
    given = {
        name: value
        for name, value in sorted(description["parameters"].items())
        if value is not None
    }
    rows = [
        *facts.items(),
        *((name.replace("_", " "), value) for name, value in given.items()),
    ]
    return [[name, str(value)[:_LETTERS]] for name, value in rows]


def _texts(encoder: str | None) -> str:
    """Return which texts an encoder is for, and how much of them it reads; "" if that is not known."""
    try:
        one = Fingerprint.parse(encoder or "")
    except InputError:
        return ""
    languages, _ = READS.get(
        one.uri.partition("?")[0], ("languages as its authors say", "")
    )
    windows = said(one.preprocessing)
    if windows:
        return f"{languages}, read in {windows} at most, and no further"
    return ""


def _checks(
    description: Mapping[str, Any], guarantee: Guarantee, file: str, paid: bool
) -> list[dict[str, str]]:
    """Return how a reader checks what the page says: what for, and the command."""
    name = shlex.quote(file)
    checks = [
        ("The file is the one that this page describes", f"sha256sum {name}"),
        ("Everything it promises, recomputed from its releases", f"dppl show {name}"),
        (
            "Sensitivities, noise and cost, computed again from its parameters",
            f"dppl verify {name}",
        ),
        (
            "All of it for programs, in the form of docs/statement.schema.json",
            f"dppl show {name} --json",
        ),
    ]
    if paid:
        checks.append(
            ("What the account of its data set has paid for", "dppl ledger show LEDGER")
        )
    # An audit needs a method that the command line knows, and a budget above zero.
    entry = BY_NAME.get(description["estimator"])
    budget = guarantee.budget.to_dict()
    if entry is not None and entry.method in BY_METHOD and any(budget.values()):
        cost = [
            f"--{name} {value:g}".replace("e-0", "e-")
            for name, value in budget.items()
            if value
        ]
        if guarantee.adjacency == "add-remove":
            relation = []
        else:
            relation = [f"--options adjacency={guarantee.adjacency}"]
        what = "An audit of the method, which measures a lower bound on its loss and can only refute the promise"
        checks.append((what, " ".join(["dppl audit", entry.method, *cost, *relation])))
    return [{"what": what, "command": command} for what, command in checks]


def uri_of(encoder: str | None) -> str:
    """Return the address of an encoder from its fingerprint; empty if there is none."""
    try:
        if encoder is None:
            return ""
        return Fingerprint.parse(encoder).uri
    except InputError:
        return ""


def task_of(description: Mapping[str, Any]) -> str:
    """Return what hubs call the task; a model whose encoder does not say it classifies rows of numbers."""
    return _kind_of(description)[0]


def _kind_of(description: Mapping[str, Any]) -> tuple[str, str, str, Set[str]]:
    """Return the kind of a model by the scheme of its encoder; without a lattice it is a network, which takes images."""
    scheme = "timm"
    if "lattice" in description:
        scheme = re.split("[?:]", uri_of(description["encoder"]))[0]
    *known, embeddings = _KINDS
    return next((one for one in known if scheme in one[-1]), embeddings)


def account_of(
    books: Iterable[Mapping[str, Any]],
    charges: Sequence[Mapping[str, Any]],
    sha256: str,
) -> dict[str, Any]:
    """Return the account that holds one of the charges, or without any the hash of the file; nothing of others."""
    # The charge that the model names, or the first with its hash; the rest of that
    # account goes on the page with it.
    for book in books:
        for release in book["releases"]:
            # Two ledgers may number their charges alike, so the page says when the hash
            # is of another file.
            same_file = release["model_sha256"] == sha256
            charge = {"dataset": book["dataset"], "number": release["number"]}
            if charge in charges or (not charges and same_file):
                listed = [
                    {
                        **{
                            name: one[name]
                            for name in (
                                "number",
                                "partition",
                                "estimator",
                                "status",
                            )
                        },
                        "mechanism": words.charged(one["mechanism"]),
                        "date": one["charged_at"].partition("T")[0],
                        "cost": words.figures(one["cost"]),
                    }
                    for one in book["releases"]
                ]
                return {
                    **{
                        name: book[name]
                        for name in ("dataset", "adjacency", "unit", "accounting")
                    },
                    "number": release["number"],
                    "same_file": same_file,
                    "budget": words.in_words(book["budget"]),
                    "spent": words.in_words(book["spent"]),
                    "left": words.rounded_down(book["left"], book["budget"]),
                    "releases": listed,
                }
    raise InputError(
        "no account of the ledger paid for this model; name the ledger that did."
    )


def read_evaluation(path: Path) -> dict[str, Any]:
    """Return the evaluation that a file holds."""
    if not path.is_file():
        raise InputError(f"there is no results file {path}; {_WRITES} writes one.")
    try:
        content = parse_json(path.read_bytes())
    except ValueError:
        content = None
    if not isinstance(content, dict) or "accuracy" not in content:
        raise InputError(f"{path} does not hold an evaluation; {_WRITES} writes one.")
    return content


def charges_of_evaluation(content: Mapping[str, Any]) -> tuple[Charge, ...]:
    """Return what paid for an evaluation; nothing did for exact numbers."""
    if not is_private(content):
        return ()
    try:
        return Evaluation.from_dict(dict(content)).guarantee.charges
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"the evaluation lacks a field, or a field has another form; {_SAME}"
        ) from None


def evaluation_of(content: Mapping[str, Any], classes: Sequence[Any]) -> dict[str, Any]:
    """Return accuracies by class and confusions from an evaluation of a model with `classes`."""
    # The file may be of any origin; whatever does not look like an evaluation ends in
    # one error.
    try:
        numbers = {
            name: None if content[name] is None else content[name] + 0
            for name in _MEASURED
        }
        sizes = {str(one["class"]): one["n"] + 0 for one in content["per_class"]}
        accuracies = {
            str(one["class"]): one["accuracy"] + 0
            for one in content["per_class"]
            if one["n"]
        }
        confusions = [
            {
                "class": str(one["class"]),
                "predicted": str(one["predicted"]),
                "n": one["n"],
                "share": one["n"] / sizes[str(one["class"])],
            }
            for one in content["confusions"]
        ]
    except (KeyError, TypeError, ZeroDivisionError):
        raise InputError(
            "the evaluation lacks a field, or a field has another form; make it again with this version of dppl: "
            "dppl evaluate MODEL DATA --json."
        ) from None
    if list(sizes) != [str(name) for name in classes]:
        raise InputError(
            "the evaluation is of a model with other classes; evaluate this model."
        )
    # The smallest quarter of the classes that have records here, as experiments count
    # minorities.
    measured = list(accuracies)
    smallest = {
        measured[place]
        for place in minority_classes([sizes[name] for name in measured])
    }
    per_class = [
        {
            "class": name,
            "n": n,
            "accuracy": accuracies.get(name),
            "minority": name in smallest,
        }
        for name, n in sizes.items()
    ]
    return {**numbers, "per_class": per_class, "confusions": confusions}


def is_private(results: Mapping[str, Any] | Evaluation) -> bool:
    """Return whether results are a private evaluation, which has a guarantee, and not exact numbers."""
    return isinstance(results, Evaluation) or (
        isinstance(results, Mapping) and "guarantee" in results
    )


def of_model(
    content: Mapping[str, Any] | Evaluation,
    description: Mapping[str, Any],
    sha256: str,
) -> dict[str, Any]:
    """Return what a page says of a private evaluation, which must be of a model with the classes of this one."""
    classes = list(map(str, description["classes"]))
    try:
        if isinstance(content, Evaluation):
            evaluation = content
        else:
            evaluation = Evaluation.from_dict(dict(content))
    except (KeyError, TypeError, ValueError):
        raise InputError(
            f"the evaluation lacks a field, or a field has another form; {_SAME}"
        ) from None
    if list(map(str, evaluation.classes)) != classes:
        raise InputError(f"the evaluation is of a model with other classes; {_SAME}")
    # Of a table of predictions nobody knows which file made it.
    named = evaluation.model_sha256
    same_file = None if named is None else named == sha256
    stated = evaluation.together
    together = None
    if same_file:
        # Computed from both guarantees: a file could state any cost.
        together = Together.of(
            Guarantee.from_dict(description["guarantee"]),
            evaluation.guarantee,
            disjoint=stated is not None and stated.disjoint,
        )
    evaluation = replace(evaluation, together=together)
    return {
        "confidence": evaluation.confidence,
        "counted": evaluation.counted,
        "secure_noise": evaluation.guarantee.secure_noise,
        "same_file": same_file,
        "facts": [list(row) for row in evaluation.facts()],
        "per_class": [
            {
                "class": str(one.label),
                "n": str(one.n),
                "recall": _shown(one.recall),
                "precision": _shown(one.precision),
            }
            for one in evaluation.per_class
        ],
        "guarantee": [list(row) for row in evaluation.promise()],
    }


def _shown(estimate: Estimate | None) -> dict[str, Any] | None:
    if estimate is None:
        return None
    return {**estimate.to_dict(), "text": str(estimate)}
