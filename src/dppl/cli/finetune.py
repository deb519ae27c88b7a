"""`dppl finetune`: private training of weights of a public network, on images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import TYPE_CHECKING

from dppl._progress import progress
from dppl.cli._groups import NoiseBudget, Persons, parse_pairs
from dppl.cli._output import note, print_model, printable, tell_owner
from dppl.cli._request import argument, option, request
from dppl.cli.embed import resumable
from dppl.cli.ledger import print_charge
from dppl.cli.train import Training
from dppl.errors import ParameterError

if TYPE_CHECKING:
    from dppl.io import Source
    from dppl.kernel.privacy import Guarantee

_BATCH = 5000


@request("network", "out", "classes", "epsilon", "delta", "batch_size")
class Finetune(NoiseBudget, Training, Persons):
    r"""Train weights of a public network privately on images, and save them.

    For where a classifier on embeddings (`dppl train`) is not enough. Needs
    torch. The model holds the trained weights alone; `dppl predict` and
    `dppl evaluate` build the public network again.

    After an interruption the same command continues with the next step; with
    random_state it starts over. Prepared images and the checkpoint are kept in
    MODEL.work until the model is saved. Records that cannot be used are skipped
    and listed in MODEL.private.jsonl, for the owner of the data only. How
    many they are is private: type `dppl check` with the same data first.

    For example:

      dppl check scans/ --classes classes.txt

      dppl finetune scans/ --network timm:vit_base_patch16_224 \
        --classes classes.txt --epsilon 1 --delta 1e-6 \
        --batch-size 500 --out my.safetensors
    """

    data: str = argument("DATA", "Labelled images, as for `dppl embed`.")
    network: str = option(
        "URI",
        "Public network: timm:NAME\\[@CHECKPOINT], or python:MODULE:FUNCTION@WEIGHTS (MODULE may be a .py file, "
        "WEIGHTS is a .safetensors file). Preprocessing follows as in ?size=224&mean=0.5,0.5,0.5&std=0.5,0.5,0.5.",
    )
    batch_size: float | None = option(
        "B",
        "Public number to divide the sum of a step by: the sampling rate times a guess of the number of records, never "
        "their count. Default 5000, the paper's; name yours.",
        None,
    )
    options: list[str] = option(
        "NAME=VALUE",
        "A parameter of the training, as in Python (docs/finetune.md); may be repeated. train: of head (a new last "
        "layer), norm (scale and shift of normalisation layers) and conv (the largest weights of the convolutions; "
        "sparsity is their share), by default all; auto: head and norm, or head alone if classes have too few records "
        "for the budget. sampling_rate: probability that a record takes part in a step, by default 0.1 with --epsilon "
        "and --delta, and 1 with --mu or a ledger. epochs, by default 200; clip; learning_rate; head_learning_rate; "
        "block. unknown_labels and random_state are as of `dppl fit`.",
        (),
    )

    def run(self) -> None:
        """Train, save and print."""
        from dppl.encoders.load import is_code
        from dppl.finetune import Recipe, SparseFinetuner, workflow
        from dppl.finetune.networks import load_network
        from dppl.finetune.sparse import usual_rate
        from dppl.planning import parts_to_train

        folder, report = self.check_outputs()
        budget, classes, account = self.budget(), self.class_list(), self.account()
        # Wrong options show before a network is loaded.
        taken = {"module", "budget", "classes", "head", "recipe"}
        moves = {one.name for one in fields(Recipe)} - {"batch_size"}
        known = sorted(set(SparseFinetuner._get_param_names()) - taken | moves)
        options = self.strictly(parse_pairs(self.options, "options", known))
        # The batch size is public and divides the sum of gradients: a count of the records would need a budget.
        batch = _BATCH if self.batch_size is None else self.batch_size
        options["recipe"] = Recipe(batch_size=batch, **{name: options.pop(name) for name in moves & options.keys()})
        if options.get("train") == "auto":
            rate = options.get("sampling_rate") or usual_rate(budget, account.get("ledger"))
            options["train"] = parts_to_train(budget, len(classes), batch / rate)
            if options["train"] == ("head",):
                note("For so few records and this budget `dppl train` with the same network is expected to be better.")
        # One part is typed without a comma.
        if isinstance(options.get("train"), str):
            options["train"] = (options["train"],)
        source = self.open_labelled()
        if source.modality != "image":
            raise ParameterError(f"{self.shown()} must hold images; it holds {source.modality}s.")
        with progress(f"loading {self.network}"):
            network = load_network(self.network)
        model = SparseFinetuner(network.module, budget, classes, head=network.head, **options)
        if self.batch_size is None:
            note(
                f"--batch-size is {_BATCH}, as in the paper. With many fewer records than that divided by the sampling "
                "rate the network hardly learns: name the rate times a public guess of their number."
            )
        self.check_first(lambda: (source, classes), fit=True)
        note(budget.weakness)
        with self.stoppable(folder), resumable(folder):
            workflow.train(model, network, source, self.out, folder, watch=_watch, overwrite=self.force, **account)
        code = " --encoder URI, which names the network" if is_code(self.network) else ""
        what = f"SparseFinetuner: {len(model.classes_)} classes, trained {', '.join(model.train)}."
        print_model(model.guarantee_, self.out, what, code)
        if self.ledger is not None and model.guarantee_.ledger_entry is not None:
            print_charge(self.ledger[0], account["ledger"], model.guarantee_)
        tell_owner("the model", printable(report))


@contextmanager
def _watch(stage: Source | Guarantee) -> Iterator[Callable[[int], object]]:
    """Show how far it is: never how well it goes, which is private."""
    from dppl.io import Source

    if isinstance(stage, Source):
        with progress("reading", stage.count) as advance:
            yield advance
        return
    (release,) = stage.releases
    done = 0
    with progress("training", release.times) as advance:

        def reach(step: int) -> None:
            # The training says how many steps are done, including an earlier run.
            nonlocal done
            advance(step - done)
            done = step

        yield reach
