"""`dppl finetune`: private training of weights of a public network, on images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dppl.cli._groups import Account, Budget, Labelled, named_values, say_if_weak
from dppl.cli._output import note, print_promise, printable
from dppl.cli._owner import review
from dppl.cli._paths import check_inputs, check_line, opened_labelled, read_public_list
from dppl.cli._progress import embedding_bar, training_bar, working
from dppl.cli._request import argument, flag, option, request
from dppl.cli.embed import resumable
from dppl.cli.ledger import tell_charge
from dppl.cli.train import check_outputs, stoppable, tell_left_out
from dppl.errors import BudgetError, ParameterError

if TYPE_CHECKING:
    from dppl.finetune import SparseFinetuner
    from dppl.io import Source
    from dppl.kernel.privacy import Guarantee

_BATCH = 5000


@request("network", "out", "classes", "epsilon", "delta", "batch_size")
class Finetune:
    """What `dppl finetune` is asked."""

    data: Path = argument("DATA", "Labelled images: a folder with a subfolder for each class, or any of `dppl embed`.")
    network: str = option(
        "URI",
        "Public network: timm:NAME\\[@CHECKPOINT], or python:MODULE:FUNCTION@WEIGHTS (MODULE may be a .py file, "
        "WEIGHTS is a .safetensors file). Preprocessing follows as in ?size=224&mean=0.5,0.5,0.5&std=0.5,0.5,0.5.",
    )
    out: Path = option("MODEL", "Model file to write.")
    classes: Path | None = option(
        "FILE", "Public list of classes, one per line. Required: it is never taken from the labels.", None
    )
    batch_size: float | None = option(
        "B",
        "Public number to divide the sum of a step by: the sampling rate times a public guess of the number of "
        "records. Never taken from the data. Default 5000, the paper's; name yours.",
        None,
    )
    options: list[str] = option(
        "NAME=VALUE",
        "A parameter of the training, as in Python (docs/finetune.md); may be repeated. train: what is trained, of "
        "head (a new last layer), norm (scale and shift of normalisation layers) and conv (the largest weights of the "
        "convolutions; sparsity is their share), by default all. sampling_rate: probability with which a record takes "
        "part in a step, by default 0.1 with --epsilon and --delta, and 1 with --mu or a ledger. epochs, by default "
        "200; clip; learning_rate; head_learning_rate; block: images that are computed at once. unknown_labels and "
        "random_state are as of `dppl fit`.",
        (),
    )
    items: Labelled
    review: bool = flag(
        "First show what `dppl check` shows on your terminal, never in a log or pipe, and ask whether to go on. No "
        "guarantee covers your choice."
    )
    budget: Budget
    device: str = option("auto|cpu|cuda", "Where the network runs. Default auto.", "auto")
    account: Account
    force: bool = flag("Replace the output file if it exists.")


def finetune(request: Finetune) -> None:
    r"""Train weights of a public network privately on images, and save them.

    For where a classifier on embeddings (`dppl train`) is not enough. Needs
    torch. The model holds the trained weights alone; `dppl predict` and
    `dppl evaluate` build the public network again and check that it is the
    same.

    After an interruption the same command continues with the next step; the
    step that was interrupted counts. With random_state it begins anew.
    Prepared images and the checkpoint are kept in MODEL.work until the model is
    saved. Records that cannot be used are left out and listed in
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
        --options train=head,norm --options epochs=50 --out my.safetensors
    """
    from dppl.encoders.load import is_code
    from dppl.finetune import SparseFinetuner, workflow
    from dppl.finetune.networks import load_network

    data, out, labels = request.data, request.out, request.items.labels
    folder, report = check_outputs(out, (data, request.classes, labels), force=request.force)
    budget = request.budget.spent()
    if budget.is_zero:
        raise BudgetError(f"{budget} lets nothing be released, so there is nothing to train; spend more.")
    options = _options(request, SparseFinetuner)
    classes = read_public_list(request.classes)
    check_inputs(data, labels)
    account = request.account.opened()
    source = opened_labelled(data, request.items)
    if source.modality != "image":
        raise ParameterError(f"{data} must hold images; it holds {source.modality}s.")
    with working(f"loading {request.network}"):
        network = load_network(request.network, device=request.device)  # type: ignore[arg-type]
    # The batch size is public and divides the sum of gradients: a count of the records would need a budget.
    batch = _BATCH if request.batch_size is None else request.batch_size
    model = SparseFinetuner(network.module, budget, classes, head=network.head, batch_size=batch, **options)
    if request.batch_size is None:
        note(
            f"--batch-size is {_BATCH}, as in the paper. With many fewer records than that divided by the sampling "
            "rate the network hardly learns: name the rate times a public guess of their number."
        )
    if request.review:
        from dppl.checks import report_on_source

        review(partial(report_on_source, source, classes))
    say_if_weak(budget)
    with stoppable(folder, check_line(data, request.classes, request.items)), resumable(folder):
        workflow.train(
            model,
            network,
            source,
            out,
            folder,
            watch=_watched,
            overwrite=request.force,
            ledger=account,
            partition=request.account.partition,
        )
    # All of it is in the model file, or was public before.
    code = " --encoder URI, which names the network" if is_code(request.network) else ""
    kind = f"SparseFinetuner: {len(model.classes_)} classes, trained {', '.join(model.train)}."
    typer.echo(f"{kind} Saved to {printable(out)}. Next: dppl predict {printable(out)} DATA{code}")
    print_promise(model.guarantee_, out)
    tell_charge(request.account.ledger, account, model.guarantee_)
    tell_left_out(report)


def _options(request: Finetune, kind: type[SparseFinetuner]) -> dict[str, Any]:
    """Return the parameters that ``--options`` names, before a network is loaded."""
    from dppl.finetune import Recipe

    taken = {"module", "budget", "classes", "head", "batch_size", "recipe"}
    moves = {one.name for one in fields(Recipe)}
    options = named_values(request.options, known=sorted(set(kind._get_param_names()) - taken | moves))
    options["recipe"] = Recipe(**{name: options.pop(name) for name in moves & set(options)})
    if isinstance(options.get("train"), str):
        options["train"] = (options["train"],)
    if "sparsity" in options and "conv" not in options.get("train", ("conv",)):
        raise ParameterError(
            "has no effect without conv in train; add it, or leave the sparsity out.", parameter="sparsity"
        )
    return options


@contextmanager
def _watched(stage: Source | Guarantee) -> Iterator[Callable[[int], object] | None]:
    """Show how far it is: never how well it goes, which is private."""
    from dppl.finetune import workflow
    from dppl.io import Source

    if isinstance(stage, Source):
        with embedding_bar(stage, "reading") as progress:
            yield progress
    else:
        (release,) = stage.releases
        spent = partial(workflow.epsilon_after, stage)
        with training_bar(release.times, spent, workflow.delta_of(stage)) as progress:
            yield progress
