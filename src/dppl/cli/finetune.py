"""`dppl finetune`: private training of weights of a public network, on images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from dppl._utils.progress import progress
from dppl.cli._output import note, printable, tell_owner
from dppl.cli._pairs import parse_pairs
from dppl.cli._records import Engine, Persons
from dppl.cli._request import argument, option, request
from dppl.cli._training import NoiseBudget
from dppl.cli.embed import resumable
from dppl.cli.train import Training
from dppl.errors import ParameterError

if TYPE_CHECKING:
    from dppl.io import Source
    from dppl.kernel.privacy import Guarantee


@request("network", "out", "classes", "epsilon", "delta", "n_records")
class Finetune(NoiseBudget, Training, Persons, Engine):
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
        --n-records 8000 --out my.safetensors
    """

    data: str = argument("DATA", "Labelled images, as for `dppl embed`.")
    network: str = option(
        "URI",
        "Public network: timm:NAME[@CHECKPOINT], or python:MODULE:FUNCTION@WEIGHTS (MODULE may be a .py file, "
        "WEIGHTS is a .safetensors file). Preprocessing follows as in ?size=224&mean=0.5,0.5,0.5&std=0.5,0.5,0.5.",
    )
    n_records: int = option(
        "N",
        "A guess of the number of records, never their count (of persons, with ids).",
        min=1,
    )
    options: list[str] = option(
        "NAME=VALUE",
        "A parameter of the training, as in Python (docs/finetune.md); may be repeated. train: auto is the "
        "recommended training, between two fits of the default method; or parts among head (a new last layer), norm "
        "(scale and shift of normalisation layers) and conv (the largest weights of the convolutions; sparsity is "
        "their share), by the paper's recipe. default_head: whether the default method gives the head. keep_filters: "
        "whether filters keep their mean and deviation. sampling_rate: probability that a record takes part in a step; "
        "1 with --mu or a ledger. epochs; clip; learning_rate; head_learning_rate; block; precision. unknown_labels, "
        "random_state: as of `dppl fit`.",
        (),
    )

    def run(self) -> None:
        """Train, save and print."""
        from dppl.encoders.load import is_code
        from dppl.finetune import Recipe, SparseFinetuner, tune
        from dppl.finetune.networks import load_network
        from dppl.finetune.sparse import usual_rate
        from dppl.methods import SoftmaxPrototypes
        from dppl.training import pipeline

        asked = self.asked(self.network)
        if self.was_killed_at_its_end(asked):
            return
        report = self.check_outputs()
        engine = self.tasks()
        budget = self.budget()
        classes = self.class_list()
        account = self.account()
        # Wrong options show before a network is loaded.
        taken = {"module", "budget", "classes", "head", "recipe"}
        moves = {one.name for one in fields(Recipe)} - {"batch_size"}
        known = sorted(set(SparseFinetuner._get_param_names()) - taken | moves)
        options = self.strictly(parse_pairs(self.options, "options", known))
        recipe = {name: options.pop(name) for name in moves & options.keys()}
        Recipe(**recipe)
        source = self.open_labelled()
        if source.modality != "image":
            raise ParameterError(
                f"{self.shown()} must hold images; it holds {source.modality}s."
            )
        labels = options.get("unknown_labels", "error")
        default = SoftmaxPrototypes(budget, classes, unknown_labels=labels)
        # What was begun is paid for. A fit of the default method costs the same.
        begun = (self.folder / pipeline.TRAINING).exists()
        with progress("reading labels"):
            pipeline.refuse_early(default, source, **({} if begun else account))
        with progress(f"loading {self.network}"):
            network = load_network(self.network)
        ledger = account.get("ledger")
        parts = options.pop("train", "auto")
        if parts == "auto":
            model = SparseFinetuner.recommended(
                network.module,
                budget,
                classes,
                self.n_records,
                head=network.head,
                ledger=ledger,
            )
            if model.train == ("head",):
                note(
                    "For so few records and this budget `dppl train` with the same network is expected to be better."
                )
        else:
            train: Any = (
                (parts,) if isinstance(parts, str) else parts
            )  # one is typed without a comma
            model = SparseFinetuner(
                network.module, budget, classes, train=train, head=network.head
            )
        model.set_params(**options)
        if model.sampling_rate is None:
            rate = usual_rate(budget, ledger)
        else:
            rate = model.sampling_rate
        # A count of the records, which divides the sum of gradients, would need a
        # budget.
        model.recipe = replace(model.recipe, batch_size=rate * self.n_records, **recipe)
        self.check_first(lambda: (source, classes), fit=True)
        note(budget.weakness)
        self.note_persons()
        with self.stoppable(), resumable(self.folder):
            tune.train(
                model,
                network,
                source,
                self.out,
                self.folder,
                watch=_watch,
                overwrite=self.force,
                asked=asked,
                engine=engine,
                **account,
            )
        code = ""
        if is_code(self.network):
            code = " --encoder URI, which names the network"
        what = f"SparseFinetuner: {len(model.classes_)} classes, trained {', '.join(model.train)}."
        self.print_release(model, account, what, code)
        tell_owner("the model", printable(report))


@contextmanager
def _watch(stage: Source | Guarantee) -> Iterator[Callable[[int], object]]:
    """Show how far it is: never how well it goes, which is private."""
    from dppl.finetune.schedule import training_of
    from dppl.io import Source

    if isinstance(stage, Source):
        with progress("reading", stage.count) as advance:
            yield advance
        return
    done = 0
    steps = training_of(stage).times
    with progress("training", steps) as advance:

        def reach(step: int) -> None:
            # The training says how many steps are done, including an earlier run.
            nonlocal done
            advance(step - done)
            done = step

        yield reach
