"""Everything that a fit leaves behind but the released values: attributes, file size, words, logs, warnings."""

import contextlib
import io
import logging
import os
import tempfile
import warnings

import numpy as np

from dppl import PrivateSearch, SoftmaxPrototypes, errors
from dppl.continual import ContinualPrototypes
from dppl.kernel.lattice import Lattice
from dppl.methods import EmbeddingClassifier

RELEASED = (
    "projection_",
    "prototypes_",
    "public_indices_",
    "coef_",
    "intercept_",
    "intercepts_",
    "shares_",
    "coef_noise_",
    "path_",
    "path_variance_",
    "path_sizes_",
    "centers_",
)


@contextlib.contextmanager
def _written():
    """Collect what is written to the descriptors of output, as libraries in C do."""
    with tempfile.TemporaryFile() as sink:
        kept = {number: os.dup(number) for number in (1, 2)}
        try:
            for number in kept:
                os.dup2(sink.fileno(), number)
            yield sink
        finally:
            for number, copy in kept.items():
                os.dup2(copy, number)
                os.close(copy)


@contextlib.contextmanager
def heard():
    """List what is printed, logged and warned of."""
    output = io.StringIO()
    log = io.StringIO()
    said = []
    handler = logging.StreamHandler(log)
    root = logging.getLogger()
    level = logging.getLogger().level
    root.addHandler(handler)
    root.setLevel(0)
    try:
        with (
            _written() as sink,
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
            warnings.catch_warnings(record=True) as caught,
        ):
            warnings.simplefilter("always")
            # What an earlier fit of the same budget was warned of is warned of again.
            errors.warn_once.cache_clear()
            yield said
            sink.seek(0)
            output.write(sink.read().decode())
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        said += [
            output.getvalue(),
            log.getvalue(),
            [str(warning.message) for warning in caught],
        ]


def traces(fit):
    """Return them for the model that `fit` returns, as a text; it says nothing, but of a weak budget."""
    with heard() as said:
        model = fit()
    weak = isinstance(model, EmbeddingClassifier) and bool(model.budget.weakness)
    assert said == ["", "", [model.budget.weakness] if weak else []]
    kept = {
        name: repr(vars(value) if isinstance(value, Lattice) else value)
        for name, value in vars(model).items()
    }
    if isinstance(
        model, SoftmaxPrototypes
    ):  # whose centre is released; the name holds its hash
        lattice = model.lattice_
        kept["lattice_"] = repr(
            vars(lattice) | {"center": lattice.center.shape, "name": len(lattice.name)}
        )
    for name in RELEASED:
        if isinstance(getattr(model, name, None), np.ndarray):
            kept[name] = repr((getattr(model, name).shape, getattr(model, name).dtype))
    if isinstance(model, ContinualPrototypes):  # the numbers of tasks are public
        sums = model.released_
        kept["released_"] = repr(
            (sums.n_sums, sums.total.shape, sums.present.shape, sums.evidence.shape)
        )
    words = repr(model), model.get_params()
    if isinstance(model, PrivateSearch):
        kept |= {name: type(kept[name]) for name in kept if name.startswith("best_")}
        model = model.best_estimator_
    return repr((kept, len(model.to_bytes()), str(model.guarantee_), words))


def messages_of(error):
    """Yield the messages of an error and of those that a traceback would show with it."""
    while error is not None:
        yield str(error)
        error = error.__cause__ or (
            None if error.__suppress_context__ else error.__context__
        )
