"""`dppl fit`: release a model of private records. What it prints depends on public things and on what was released."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dppl.checks import report_on_table
from dppl.cli._groups import Account, Budget, Care, Method, Persons, Table, Where
from dppl.cli._output import print_json, print_promise, printable
from dppl.cli._owner import review
from dppl.cli._paths import (
    check_inputs,
    check_output,
    check_table,
    ids_of_persons,
    read_public_list,
    refuse_private,
    require_labels,
)
from dppl.cli._progress import working
from dppl.cli._request import argument, flag, option, request
from dppl.cli.ledger import tell_charge
from dppl.cli.show import whole
from dppl.errors import ParameterError
from dppl.io import read_parts, read_table
from dppl.training import workflow

if TYPE_CHECKING:
    from dppl.estimators import EmbeddingClassifier


@request("out", "classes", "epsilon", "delta", "public")
class Fit:
    """What `dppl fit` is asked."""

    table: Path = argument(
        "TABLE", "Embeddings: .npy, .npz, .parquet, a folder of .parquet or .npy shards, or a URL of one."
    )
    out: Path = option("MODEL", "Model file to write.")
    classes: Path | None = option(
        "FILE", "Public list of classes, one per line. Required: it is never taken from the labels.", None
    )
    public: Path | None = option(
        "TABLE", "Public embeddings by the same encoder: a file, a folder of shards, or a URL.", None
    )
    public_id: str = option("NAME", "Column of --public that names its rows. Default id.", "id")
    examples: Path | None = option(
        "TABLE",
        "softmax: public examples of the classes to start from, labelled embeddings by the same encoder. Never chosen "
        "by looking at private records.",
        None,
    )
    columns: Table
    persons: Persons
    care: Care
    budget: Budget
    method: Method
    account: Account
    where: Where
    force: bool = flag("Replace the output file if it exists.")
    json: bool = flag("Print the whole guarantee as JSON, as `dppl show --json`.")


def fit(request: Fit) -> None:
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

      dppl fit scans.parquet --groups patient --classes classes.txt \
        --epsilon 1 --delta 1e-6 --out my.safetensors

      dppl fit shards/ --engine ray --address auto --classes classes.txt \
        --epsilon 1 --delta 1e-6 --out my.safetensors
    """
    table, labels, ledger = request.table, request.columns.labels, request.account
    # What is public is checked first, so that a slip costs neither time nor budget.
    engine = request.where.opened()
    public_paths = (request.public, request.examples)
    check_output(request.out, (table, request.classes, labels, *public_paths), force=request.force)
    budget = request.budget.spent()
    class_list = read_public_list(request.classes)
    check_inputs(table, labels, *public_paths)
    for name, path in (("public", request.public), ("examples", request.examples)):
        refuse_private(path, (table, labels), name)
    for path in (table, *public_paths):
        check_table(path)
    account = ledger.opened()
    if engine is not None and request.persons.groups is not None:
        raise ParameterError("needs all records of a person in one place; leave out --engine.", parameter="groups")
    if engine is not None and request.care.review:
        raise ParameterError("reads the whole table here; leave out --engine, or use dppl check.", parameter="review")
    from dppl.estimators import PublicData  # here, because the help of a command needs no scikit-learn

    x, y = request.columns.x, request.columns.y
    public = PublicData(
        None if request.public is None else read_table(request.public, x=x, y=None, ids=request.public_id),
        None if request.examples is None else read_table(request.examples, x=x, y=y),
    )
    model = request.method.estimator(
        budget,
        class_list,
        request.public,
        public=public,
        unknown_labels="strict" if request.care.strict else request.care.unknown_labels,
        max_classes_per_person=request.persons.max_classes_per_person,
    )
    # Of the private table nothing is read before the fit but its shape, its labels and its ids.
    private: Any = (
        read_table(table, x=x, y=y, labels=labels)
        if engine is None
        else read_parts(table, x=x, y=y, labels=labels, engine=engine)
    )
    groups = ids_of_persons(table, request.persons.groups, y=y, labels=labels)
    if request.care.review:
        review(partial(report_on_table, private, class_list, groups))
    with working("fitting"):
        model.fit(private, require_labels(private, table), groups=groups, ledger=account, partition=ledger.partition)
    workflow.save(model, request.out, overwrite=request.force)
    print_summary(model, request.out, as_json=request.json)
    tell_charge(ledger.ledger, account, model.guarantee_, err=request.json)
    # The same words whatever the records are, and whatever their table is called.
    typer.echo(
        "Before you trust this model, let the owner of the records see which were left out: dppl check TABLE --classes "
        "FILE, as here. Nothing above says how many they are; it may be all.",
        err=request.json,
    )


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
