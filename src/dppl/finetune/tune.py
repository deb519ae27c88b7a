"""From a source of images to a fine-tuned model, and from its file back to predictions; `dppl finetune` goes this way.

Public things and the account come first, then the private images, then the training.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dppl._utils.files import reserved
from dppl._utils.fingerprint import Fingerprint
from dppl.encoders.load import Device, refuse_code
from dppl.engines import Engine
from dppl.errors import InputError
from dppl.finetune.network_file import describe, most_bytes
from dppl.finetune.networks import Network, load_network
from dppl.io import PERSON, Source, read_ids, read_table
from dppl.kernel.privacy import Guarantee
from dppl.methods.fit_plan import of_persons
from dppl.training import pipeline

if TYPE_CHECKING:
    from dppl.finetune.sparse import SparseFinetuner
    from dppl.kernel.privacy import Ledger

# Shows how far a stage is: reading a source, whose progress it takes, or a training by
# what it is to guarantee.
TrainingWatch: TypeAlias = Callable[
    [Source | Guarantee], AbstractContextManager[Callable[[int], object] | None]
]


def train(
    model: SparseFinetuner,
    network: Network,
    source: Source,
    out: Path,
    folder: Path,
    *,
    watch: TrainingWatch,
    overwrite: bool = False,
    engine: Engine | None = None,
    ledger: Ledger | None = None,
    partition: str | None = None,
    asked: str = "",
) -> None:
    """Read labelled images, train on them, and write the model, then the report on skipped records.

    Folder and options are as in `dppl.training.pipeline.train`. `watch` is opened with
    the source while it is read, then with the guarantee, and is called with the number
    of steps that are done.

    After an interruption the same call goes on where it stopped, unless the model has a
    seed: then the training starts over.
    """
    if source.label_type is None:
        raise InputError("the records have no labels.")
    guarantee = model.plan(network.shape, ledger=ledger)
    persons = source.person_type is not None
    if persons:
        guarantee = of_persons(guarantee, whole=True)
    checkpoint = folder / pipeline.TRAINING
    if ledger is not None and not checkpoint.exists():  # what was begun is paid for
        ledger.check(guarantee, partition=partition)
    classes = np.asarray(model.classes)
    strict = model.unknown_labels == "strict"
    pipeline.check_records(source, network, classes, model.unknown_labels)
    fingerprint = network.fingerprint.text()
    room = most_bytes(guarantee, model.width, [*classes.tolist(), fingerprint])
    with (
        pipeline.work_in(folder),
        # Room for the model before the hours of work, and before it is paid for.
        reserved(out, room, overwrite=overwrite) as output,
    ):
        with watch(source) as progress:
            done = pipeline.embed_all(
                source,
                network,
                folder / "private",
                progress,
                strict=strict,
                engine=engine,
            )
        table = read_table(done.table)
        left_out = pipeline.left_out_of(
            done.report, table, classes, np.ones(len(table), bool)
        )
        with watch(guarantee) as progress:
            model.fit(
                network.inputs(table),
                table.y,
                groups=read_ids(done.table, PERSON) if persons else None,
                ledger=ledger,
                partition=partition,
                checkpoint=checkpoint if model.random_state is None else None,
                progress=progress,
            )
        model.encoder_ = fingerprint
        pipeline.save(model, output, out, left_out, folder, asked)


class Finetuned:
    """A file of a fine-tuned model that names its network. Of the network nothing is read before a prediction."""

    multilabel = False

    def __init__(self, path: Path) -> None:
        self.path = path
        self.description = describe(path)
        self.classes_ = np.array(self.description["classes"])
        self.guarantee_ = Guarantee.from_dict(self.description["guarantee"])

    def to_bytes(self) -> bytes:
        """Return the content of the file."""
        return self.path.read_bytes()

    def predictor(
        self, network: str | None = None, *, device: Device = "auto"
    ) -> tuple[Network, Callable[[Any], NDArray[np.float32]]]:
        """Rebuild the public network, and return it with what gives the rows that it prepares probabilities.

        Where the file names Python code, `network` must say it: which code runs is not
        for a model file to say.
        """
        from dppl.finetune.sparse import (
            SparseFinetuner,
        )  # here, because a description needs no scikit-learn

        name = self.description["encoder"]
        if name is None:
            raise InputError(
                f"{self.path} does not name its network, nor how images are prepared for it. Save it again in Python: "
                "SparseFinetuner.load(path, module).save(path, network='python:...' or 'timm:...', overwrite=True)."
            )
        named = Fingerprint.parse(name)
        if network is None:
            refuse_code(named.uri)
        found = load_network(named.uri if network is None else network, device=device)
        if not found.fingerprint.same_function(named):
            raise InputError(
                f"the model was fitted on the network {named.uri!r}; this is another one, or has other weights or "
                f"preprocessing: {found.fingerprint.uri!r}. Name the right one."
            )
        model = SparseFinetuner.load(self.path, found.module)
        return found, lambda rows: model.predict_proba(found.inputs(rows))
