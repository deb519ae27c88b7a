"""What a training of the parameters in a file guarantees, computed again."""

import os
from typing import Any

import numpy as np

from dppl._utils import tensorfile
from dppl.finetune.gradients import noise_within
from dppl.finetune.heads import default_heads
from dppl.finetune.network_file import KEY
from dppl.finetune.schedule import n_steps, releases_of, statistic_of
from dppl.finetune.trainer import guarantee_of
from dppl.kernel.privacy import Guarantee
from dppl.kernel.privacy.budgets import budget_from_dict
from dppl.kernel.privacy.terms import Unit
from dppl.methods.fit_plan import of_persons


def planned(path: str | os.PathLike[str]) -> tuple[dict[str, Any], Guarantee]:
    """Return what a file says, unchecked except for damage, and what a training of its parameters guarantees."""
    fields, tensors = tensorfile.read(path, KEY)
    given = fields["parameters"]
    size = len(tensors["values"]) - (fields["width"] or 0)
    recipe = given["recipe"]
    rate = given["sampling_rate"]
    if size <= 0:  # a width that no file of this size has room for
        raise ValueError("the file says that a head is wider than all it holds")
    budget = budget_from_dict(fields["guarantee"]["budget"])
    heads = []
    if recipe["default_head"]:
        heads = default_heads(budget, np.array(fields["classes"]))
    before, after, mu = releases_of(heads, fields["width"])
    noise = noise_within(budget, n_steps(recipe["epochs"], rate), rate, mu)
    releases = [*before, noise.describe(statistic_of(size)), *after]
    guarantee = guarantee_of(budget, releases, row_independent=recipe["block"] == 1)
    whole = Unit(fields["guarantee"]["unit"]) is Unit.PERSON
    return fields, of_persons(guarantee, whole=True) if whole else guarantee
