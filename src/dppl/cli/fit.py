"""`dppl fit`: release a model of private records. What it prints depends on public things and on what was released."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dppl import io
from dppl.cli._groups import Account, Budget, Care, Method, Table, Where, say_if_weak
from dppl.cli._output import print_promise, printable
from dppl.cli._owner import review
from dppl.cli._paths import check_inputs, check_output, ids_of_persons, read_public_list, refuse_private, require_labels
from dppl.cli._progress import working
from dppl.cli._request import argument, flag, option, request
from dppl.cli.ledger import tell_charge
from dppl.errors import ParameterError

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
    examples: Path | None = option(
        "TABLE",
        "softmax: public examples of the classes to start from, labelled embeddings by the same encoder. Never chosen "
        "by looking at private records.",
        None,
    )
    columns: Table
    care: Care
    budget: Budget
    method: Method
    account: Account
    where: Where
    force: bool = flag("Replace the output file if it exists.")


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

      dppl fit shards/ --engine auto --classes classes.txt \
        --epsilon 1 --delta 1e-6 --out my.safetensors
    """
    table, labels, groups = request.table, request.columns.labels, request.care.groups
    x, y = request.columns.x, request.columns.y
    # What is public is checked first, so that a slip costs neither time nor budget.
    engine = request.where.opened()
    public_paths = (request.public, request.examples)
    check_output(request.out, (table, request.classes, labels, *public_paths), force=request.force)
    budget = request.budget.spent()
    class_list = read_public_list(request.classes)
    check_inputs(labels)
    check_inputs(table, *public_paths, tables=True)
    for name, path in zip(("public", "examples"), public_paths, strict=True):
        refuse_private(path, (table, labels), name)
    account = request.account.opened()
    if engine is not None and groups is not None:
        raise ParameterError("needs all records of a person in one place; leave out --engine.", parameter="groups")
    if engine is not None and request.care.review:
        raise ParameterError("reads the whole table here; leave out --engine, or use dppl check.", parameter="review")
    from dppl.estimators import PublicData
    from dppl.training.workflow import save

    public = PublicData(
        None if request.public is None else io.read_table(request.public, x=x, y=None),
        None if request.examples is None else io.read_table(request.examples, x=x, y=y),
    )
    model = request.method.estimator(budget, class_list, request.public, public=public)
    # Of the private table nothing is read before the fit but its shape, its labels and its ids.
    private: Any = (
        io.read_table(table, x=x, y=y, labels=labels)
        if engine is None
        else io.read_parts(table, x=x, y=y, labels=labels, engine=engine)
    )
    ids = ids_of_persons(table, groups, y=y, labels=labels)
    if request.care.review:
        from dppl.checks import report_on_table

        review(partial(report_on_table, private, class_list, ids))
    say_if_weak(budget)
    with working("fitting"):
        partition = request.account.partition
        model.fit(private, require_labels(private, table), groups=ids, ledger=account, partition=partition)
    save(model, request.out, overwrite=request.force)
    print_summary(model, request.out)
    tell_charge(request.account.ledger, account, model.guarantee_)
    # The same words whatever the records are, and whatever their table is called.
    typer.echo(
        "Before you trust this model, let the owner of the records see which were left out: dppl check TABLE --classes "
        "FILE, as here. Nothing above says how many they are; it may be all."
    )


def print_summary(model: EmbeddingClassifier, out: Path, code: str = "") -> None:
    """Say what was released. Everything here is in the model file, or was public before."""
    kind = f"{type(model).__name__}: {len(model.classes_)} classes, {model.n_features_in_} features, {model.adjacency}."
    started = "" if model.examples_ is None else f" Started from public examples: {model.examples_}."
    typer.echo(f"{kind}{started} Saved to {printable(out)}. Next: dppl predict {printable(out)} DATA{code}")
    print_promise(model.guarantee_, out)
