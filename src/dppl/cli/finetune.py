"""`dppl finetune`: from raw images to weights of a public network that were trained privately."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from dppl import _validate
from dppl.cli import _options as options
from dppl.cli._options import DATA, ENCODER, METHOD, budget_from_options, option
from dppl.cli._output import note, print_json, print_promise, printable
from dppl.cli._owner import report_on_source
from dppl.cli._paths import check_inputs, check_line, check_output, opened_source, required_classes
from dppl.cli._progress import embedding_bar, training_bar, working
from dppl.cli._review import review
from dppl.cli.embed import how_to_label, resumable
from dppl.cli.ledger import open_account, tell_charge
from dppl.cli.show import whole
from dppl.cli.train import check_folder, checkable, leftover, tell_left_out
from dppl.encoders.load import Device, is_code
from dppl.errors import BudgetError, ParameterError
from dppl.finetune import workflow
from dppl.finetune.networks import load_network
from dppl.finetune.selection import PARTS, Part
from dppl.io import Columns, Source, read_classes
from dppl.kernel.privacy import ApproxDP, Budget, Guarantee, PureDP
from dppl.kernel.reading import UnknownLabels
from dppl.training.workflow import report_of

if TYPE_CHECKING:
    from dppl.finetune import SparseFinetuner

_BATCH = 5000


@options.first("network", "out", "classes", "epsilon", "delta", "batch_size")
def finetune(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DATA",
            help="Labelled images: a folder with a subfolder for each class, or any of `dppl embed`.",
            show_default=False,
        ),
    ],
    network: Annotated[
        str,
        option(
            "URI",
            "Public network: timm:NAME\\[@CHECKPOINT], or python:MODULE:FUNCTION@WEIGHTS (MODULE may be a .py file, "
            "WEIGHTS is a .safetensors file). Preprocessing follows as in ?size=224&mean=0.5,0.5,0.5&std=0.5,0.5,0.5.",
            ENCODER,
        ),
    ],
    out: options.ModelOut,
    classes: options.Classes = None,
    labels: Annotated[Path | None, option("FILE", "CSV file that names files and labels.", DATA)] = None,
    x: options.Items = None,
    y: options.ItemLabels = None,
    identity: options.Id = None,
    kind: options.Kind = "auto",
    split: options.Split = None,
    encoding: options.Encoding = None,
    delimiter: options.Delimiter = None,
    unknown_labels: options.UnknownLabels = "error",
    strict: options.Strict = False,
    ask: options.Review = False,
    epsilon: Annotated[
        float | None, option("E", "Approximate DP. Needs --delta: Gaussian noise is never pure DP.", options.BUDGET)
    ] = None,
    delta: options.Delta = None,
    mu: Annotated[
        float | None,
        option(
            "M",
            "Gaussian DP, for full batches or a ledger. 0.2368, 0.5 and 1 are epsilon 1, 2.3 and 4.9 at delta 1e-6. "
            "Above 0: without private records there is nothing to train.",
            options.BUDGET,
        ),
    ] = None,
    rho: options.Rho = None,
    max_records: options.MaxRecords = None,
    train: Annotated[
        str,
        option(
            "PART,...",
            f"What is trained, of {', '.join(PARTS)}: a new last layer; scale and shift of the normalisation layers; "
            "the largest weights of the convolutions. Default all three, as in the paper; head,norm is FiLM, and head "
            "takes the least time.",
            METHOD,
        ),
    ] = ",".join(PARTS),
    sparsity: Annotated[
        float | None, option("P", "conv: share of the convolutions' weights. Default 0.01.", METHOD)
    ] = None,
    batch_size: Annotated[
        float | None,
        option(
            "B",
            "Public number to divide the sum of a step by: the sampling rate times a public guess of the number of "
            "records. Never taken from the data. Default 5000, the paper's; name yours.",
            METHOD,
        ),
    ] = None,
    sampling_rate: Annotated[
        float | None,
        option(
            "Q",
            "Probability with which a record takes part in a step. Default 0.1 with --epsilon and --delta, and 1 with "
            "--mu, --rho or a ledger, which know no other.",
            METHOD,
        ),
    ] = None,
    epochs: Annotated[float, option("N", "Steps in which a record takes part on average. Default 200.", METHOD)] = 200,
    clip: Annotated[float, option("C", "Longest gradient of a record. Default 1.", METHOD)] = 1.0,
    learning_rate: Annotated[float, option("R", "Of all but the head. Default 0.01.", METHOD)] = 0.01,
    head_learning_rate: Annotated[float, option("R", "Of the head. Default 0.8.", METHOD)] = 0.8,
    block: Annotated[
        int, option("N", "Images that are computed at once; decides time and memory only. Default 32.", METHOD, min=1)
    ] = 32,
    workers: options.Workers = None,
    device: Annotated[str, option("auto|cpu|cuda", "Where the network runs. Default auto.", ENCODER)] = "auto",
    work: Annotated[
        Path | None,
        option(
            "FOLDER", "Keep prepared images and the checkpoint there. Default: MODEL.work, removed at the end.", ENCODER
        ),
    ] = None,
    ledger: options.Ledger = None,
    dataset: options.Dataset = None,
    partition: options.Partition = None,
    seed: options.Seed = None,
    force: options.Force = False,
    as_json: options.WholeJson = False,
) -> None:
    r"""Train weights of a public network privately on images, and save them.

    For where a classifier on embeddings (`dppl train`) is not enough. Needs
    torch. The model holds the trained weights alone; `dppl predict` and
    `dppl evaluate` build the public network again and check that it is the
    same.

    After an interruption the same command continues with the next step; the
    step that was interrupted counts. With --seed it begins anew. Prepared
    images and the checkpoint are kept in MODEL.work until the model is saved.
    Records that cannot be used are left out and listed in
    MODEL.private.jsonl, for the owner of the data only. How many they are is
    private, and shown nowhere: type `dppl check` with the same data first.
    Labels are compared with --classes before any image is prepared.

    For example:

      dppl check scans/ --classes classes.txt

      dppl finetune scans/ --network timm:vit_base_patch16_224 \
        --classes classes.txt --epsilon 1 --delta 1e-6 \
        --batch-size 500 --out my.safetensors

      dppl finetune scans/ --classes classes.txt --mu 0.5 --batch-size 5000 \
        --network "python:net.py:make@net.safetensors?size=32" \
        --train head,norm --epochs 50 --out my.safetensors
    """
    from dppl.finetune import SparseFinetuner  # here, because the help of a command needs no scikit-learn

    report = report_of(out)
    for path in (out, report):
        check_output(path, (data, classes, labels), force=force)
    budget = budget_from_options(mu, rho, epsilon, delta, max_records)
    if budget.is_zero:
        raise BudgetError(f"{budget} lets nothing be released, so there is nothing to train; spend more.")
    rate = _sampling_rate(sampling_rate, budget, ledger)
    parts = tuple(part.strip() for part in train.split(","))
    for part in parts:
        _validate.one_of(PARTS, train=part)
    if sparsity is not None and "conv" not in parts:
        raise ParameterError("--sparsity has no effect without conv in --train; add it, or leave the sparsity out.")
    classes = required_classes(classes)
    check_inputs(data, classes, labels)
    folder = out.with_name(f"{out.name}.work") if work is None else work
    check_folder(folder, (data, labels) if work is not None else (data, labels, classes))
    class_list = read_classes(classes)
    account = open_account(ledger, dataset, partition)
    columns = Columns(x, y, identity)
    how: dict[str, Any] = {"labels": labels, "split": split, "encoding": encoding, "delimiter": delimiter}
    source = opened_source(data, kind=kind, columns=columns, **how)
    if source.modality != "image":
        raise ParameterError(f"{data} must hold images; it holds {source.modality}s.")
    if source.label_type is None:
        raise ParameterError(f"{data} has no labels; {how_to_label(source)}.")
    if batch_size is None:
        note(
            f"--batch-size is {_BATCH}, that of the paper, for {_BATCH / rate:.6g} records at this sampling rate. With "
            "many fewer the network hardly learns: name the rate times a public guess of their number."
        )
    with working(f"loading {network}"):
        found = load_network(network, device=cast(Device, device))
    model = SparseFinetuner(
        found.module,
        budget,
        class_list,
        sparsity=0.01 if sparsity is None else sparsity,
        train=cast(tuple[Part, ...], parts),
        head=found.head,
        sampling_rate=rate,
        batch_size=_BATCH if batch_size is None else batch_size,
        epochs=epochs,
        clip=clip,
        learning_rate=learning_rate,
        head_learning_rate=head_learning_rate,
        block=block,
        unknown_labels=cast(UnknownLabels, unknown_labels),
        random_state=seed,
    )
    if ask:
        review(partial(report_on_source, source, class_list))
    owners_look = check_line(data, classes, kind=None if kind == "auto" else kind, **asdict(columns), **how)
    with checkable(owners_look), leftover(folder), resumable(folder):
        workflow.train(
            model,
            found,
            source,
            out,
            folder,
            watch=_watched,
            keep=work is not None,
            overwrite=force,
            workers=workers,
            ledger=account,
            partition=partition,
            strict=strict,
        )
    _print_summary(model, out, needs_code=is_code(network), as_json=as_json)
    tell_charge(ledger, account, model.guarantee_, err=as_json)
    tell_left_out(report, err=as_json)


def _sampling_rate(rate: float | None, budget: Budget, ledger: str | None) -> float:
    """Return the sampling rate, by default one that the budget and the ledger can account for."""
    if isinstance(budget, PureDP):
        raise BudgetError("--epsilon without --delta is pure DP, which Gaussian noise cannot give; add --delta D.")
    sampled = rate is not None and rate != 1
    if sampled:
        _validate.probability(sampling_rate=rate)
    if sampled and not isinstance(budget, ApproxDP):
        raise BudgetError("--sampling-rate below 1 is accounted in --epsilon and --delta; give these, or leave it out.")
    if sampled and ledger is not None:
        raise BudgetError("--sampling-rate below 1 goes with no --ledger, which cannot add its cost to others.")
    if rate is not None:
        return rate
    from dppl.finetune.sparse import usual_sampling_rate

    return usual_sampling_rate(budget, ledger)


@contextmanager
def _watched(stage: Source | Guarantee) -> Iterator[Callable[[int], object] | None]:
    """Show how far it is: never how well it goes, which is private."""
    if isinstance(stage, Source):
        with embedding_bar(stage, "reading") as progress:
            yield progress
    else:
        (release,) = stage.releases
        spent = partial(workflow.epsilon_after, stage)
        with training_bar(release.times, spent, workflow.delta_of(stage)) as progress:
            yield progress


def _print_summary(model: SparseFinetuner, out: Path, *, needs_code: bool, as_json: bool) -> None:
    """Say what was released. Everything here is in the model file, or was public before."""
    if as_json:
        print_json(whole(out))
        return
    code = " --encoder URI, which names the network" if needs_code else ""
    kind = f"SparseFinetuner: {len(model.classes_)} classes, trained {', '.join(model.train)}."
    typer.echo(f"{kind} Saved to {printable(out)}. Next: dppl predict {printable(out)} DATA{code}")
    print_promise(model.guarantee_, out)
