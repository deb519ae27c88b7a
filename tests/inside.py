"""The one place where tests reach past what dppl offers, and why; `tests/meta/test_private.py` holds the others to it."""

from inspect import signature

from safetensors.numpy import load

from dppl.evaluation import measuring


def behind(measure):
    """Return the records and the noise source behind a `Measure`, as a method that cheats would reach them."""
    return measure._counter


def paid_for(measure):
    """Return what was paid for, by name; a fault swaps a mechanism in it."""
    return measure._paid


def scores_of(model, rows, unusable="error"):
    """Return one score a class, where `decision_function` of two classes has one a row: an export has both."""
    return model._scores(rows, unusable)


def sharpness_of(model):
    """Return the factor between scores and logits, of which users see only probabilities."""
    return model._sharpness()


def tensors_of(model):
    """Return the bytes of each tensor in the file of a model."""
    tensors = load(model.to_bytes())
    return {name: tensor.tobytes() for name, tensor in tensors.items()}


def takes(kind, parameter):
    """Whether an estimator class has a parameter."""
    return parameter in signature(kind).parameters


def evaluated(measure, n_classes):
    """Return what an evaluation says of answers with noise, without a model and rows that they are about."""
    tables = measuring._asked(measure, n_classes)
    return measuring._said(tables, list(range(n_classes)), 0.9, None)


def relation_of(model):
    """Return the terms in which a stream says how two of its data sets may differ."""
    return model._relation
