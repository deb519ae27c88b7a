"""`dppl fit`: release a model of private records. What it prints depends on public things and on what was released."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dppl import _validate
from dppl.cli import _options as options
from dppl.cli._methods import build, check_examples, chosen_method, method_option
from dppl.cli._options import DATA, METHOD, budget_from_options, option
from dppl.cli._output import print_json, print_promise, printable
from dppl.cli._owner import report_on_table
from dppl.cli._paths import (
    check_inputs,
    check_output,
    check_same_encoder,
    check_table,
    ids_of_persons,
    refuse_private,
    require_labels,
    required_classes,
)
from dppl.cli._progress import working
from dppl.cli._review import review
from dppl.cli.ledger import open_account, tell_charge
from dppl.cli.show import whole
from dppl.engines import engine_of
from dppl.errors import ParameterError
from dppl.io import EmbeddingTable, read_classes, read_parts, read_table
from dppl.kernel.privacy.guarantee import ADJACENCIES
from dppl.training import workflow

if TYPE_CHECKING:
    from dppl.estimators import EmbeddingClassifier

_Public = Annotated[
    Path | None, option("TABLE", "Public embeddings by the same encoder: a file, a folder of shards, or a URL.", DATA)
]
_PublicId = Annotated[str, option("NAME", "Column of --public that names its rows. Default id.", DATA)]
_Examples = Annotated[
    Path | None,
    option(
        "TABLE",
        "softmax: public examples of the classes to start from, labelled embeddings by the same encoder. Never chosen "
        "by looking at private records.",
        DATA,
    ),
]
_Method = Annotated[str, method_option("the first that offers the relation and can spend the budget")]
_Clip = Annotated[
    str | None,
    option("auto|D_MIN,D_MAX", "public: bounds on 1 + cosine similarity, from 0 to 2. Default auto.", METHOD),
]
_Metric = Annotated[
    str | None, option("cosine|euclidean", "mean: euclidean needs replace-one. Default cosine.", METHOD)
]
_Pool = Annotated[
    int, option("N", "mean, public: average this many neighbouring coordinates. Default 1.", METHOD, min=1)
]
_Center = Annotated[
    bool,
    typer.Option(
        "--center-public",
        help="mean, public: subtract the mean of --public. softmax centres by itself.",
        rich_help_panel=METHOD,
    ),
]
_Rotation = Annotated[
    str | None,
    option(
        "auto|SEED",
        "mean, public: rotate, for encoders with a few huge coordinates; auto rotates if --public needs it. softmax "
        "rotates by itself.",
        METHOD,
    ),
]


@options.first("out", "classes", "epsilon", "delta", "public")
def fit(
    table: options.Table,
    out: options.ModelOut,
    classes: options.Classes = None,
    labels: options.Labels = None,
    public: _Public = None,
    public_id: _PublicId = "id",
    examples: _Examples = None,
    x: options.X = "x",
    y: options.Y = "y",
    person: options.Person = None,
    classes_per_person: options.ClassesPerPerson = None,
    unknown_labels: options.UnknownLabels = "error",
    strict: options.Strict = False,
    ask: options.Review = False,
    epsilon: options.Epsilon = None,
    delta: options.Delta = None,
    mu: options.Mu = None,
    rho: options.Rho = None,
    max_records: options.MaxRecords = None,
    method: _Method = "auto",
    adjacency: options.Adjacency = "add-remove",
    prototypes: options.Prototypes = None,
    clip: _Clip = None,
    mechanism: options.Mechanism = None,
    metric: _Metric = None,
    pool: _Pool = 1,
    center_public: _Center = False,
    rotation: _Rotation = None,
    ledger: options.Ledger = None,
    dataset: options.Dataset = None,
    partition: options.Partition = None,
    engine: options.EngineOption = "local",
    address: options.Address = None,
    seed: options.Seed = None,
    force: options.Force = False,
    as_json: options.WholeJson = False,
) -> None:
    r"""Train a private classifier and save it as one file that may be published.

    The classes come from a public file. What is printed depends only on
    public inputs and on what is released. Rows that cannot be used are left out
    without a word, even if they are all: type `dppl check` with the same table
    first.

    For example:

      dppl check train.npz --classes classes.txt

      dppl fit train.npz --classes classes.txt --public web.npz \
        --epsilon 1 --delta 1e-6 --out my.safetensors

      dppl fit train.npz --classes classes.txt --examples named.npz \
        --epsilon 1 --delta 1e-6 --out my.safetensors

      dppl fit train.npy --labels y.txt --classes classes.txt \
        --mu 0.5 --out my.safetensors

      dppl fit train.parquet --classes classes.txt --public web.parquet \
        --epsilon 1 --out my.safetensors

      dppl fit scans.parquet --person patient --classes classes.txt \
        --epsilon 1 --delta 1e-6 --out my.safetensors

      dppl fit shards/ --engine ray --address auto --classes classes.txt \
        --epsilon 1 --delta 1e-6 --out my.safetensors
    """
    spread = engine_of(engine, address)
    check_output(out, (table, classes, public, labels, examples), force=force)
    given: dict[str, Any] = {
        "adjacency": adjacency,
        "center": "public" if center_public else None,
        "clip": _parsed_clip(clip),
        "max_classes_per_person": classes_per_person,
        "mechanism": mechanism,
        "metric": metric,
        "n_prototypes": prototypes,
        "pool": pool,
        "random_state": seed,
        "rotation": _parsed_rotation(rotation),
        "strict": strict,
        "unknown_labels": unknown_labels,
    }
    _validate.one_of(ADJACENCIES, adjacency=adjacency)
    budget = budget_from_options(mu, rho, epsilon, delta, max_records)
    method = chosen_method(method, budget, given, public)
    if examples is not None:
        check_examples("--examples", method)
    classes = required_classes(classes)
    check_inputs(table, classes, public, labels, examples)
    for path in (table, public, examples):
        if path is not None:
            check_table(path)
    refuse_private(public, (table, labels), "--public")
    refuse_private(examples, (table, labels), "--examples")
    class_list = read_classes(classes)
    account = open_account(ledger, dataset, partition)
    in_parts = engine != "local"
    if in_parts and person is not None:
        raise ParameterError("needs all records of a person in one place; leave out --engine.", parameter="groups")
    if in_parts and ask:
        raise ParameterError("--review reads the whole table here; leave out --engine, or use dppl check.")
    how: dict[str, Any] = {"x": x, "y": y, "labels": labels}
    private = read_parts(table, **how, engine=spread) if in_parts else read_table(table, **how)
    public_rows = None if public is None else read_table(public, x=x, y=None, ids=public_id)
    example_rows = None if examples is None else read_table(examples, x=x, y=y)
    for rows, path in ((public_rows, public), (example_rows, examples)):
        if rows is not None and path is not None:
            check_same_encoder(rows, path, private, table)
    groups = None if person is None else ids_of_persons(table, person, y=y, labels=labels)
    if examples is not None and example_rows is not None:
        require_labels(example_rows, examples)
    from dppl.estimators import PublicData  # here, because the help of a command needs no scikit-learn

    given["public"] = PublicData(public_rows, example_rows)
    model = build(method, budget, class_list, given)
    if ask and isinstance(private, EmbeddingTable):
        review(partial(report_on_table, private, class_list, groups))
    with working("fitting"):
        model.fit(private, require_labels(private, table), groups=groups, ledger=account, partition=partition)
    workflow.save(model, out, overwrite=force)
    print_summary(model, out, as_json=as_json)
    tell_charge(ledger, account, model.guarantee_, err=as_json)
    # The same words whatever the records are, and whatever their table is called.
    typer.echo(
        "Before you trust this model, let the owner of the records see which were left out: dppl check TABLE --classes "
        "FILE, as here. Nothing above says how many they are; it may be all.",
        err=as_json,
    )


def _parsed_clip(text: str | None) -> str | tuple[float, float] | None:
    if text is None or text == "auto":
        return text
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise ParameterError(f"--clip must be auto or D_MIN,D_MAX, for instance 0.8,1.6; got {text!r}.") from None
    return low, high


def _parsed_rotation(text: str | None) -> str | int | None:
    if text is None or text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise ParameterError(f"--rotation must be auto or an integer; got {text!r}.") from None


def print_summary(model: EmbeddingClassifier, out: Path, *, as_json: bool, needs_code: bool = False) -> None:
    """Say what was released. Everything here is in the model file, or was public before."""
    if as_json:
        print_json(whole(out))
        return
    kind = f"{type(model).__name__}: {len(model.classes_)} classes, {model.n_features_in_} features, {model.adjacency}."
    started = "" if model.examples_ is None else f" Started from public examples: {model.examples_}."
    code = " --encoder URI, as here" if needs_code else ""
    typer.echo(f"{kind}{started} Saved to {printable(out)}. Next: dppl predict {printable(out)} DATA{code}")
    print_promise(model.guarantee_, out)
