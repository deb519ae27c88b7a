"""Controls of sparse fine-tuning: masks and starts at random, and the bound without noise."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import replace
from typing import Any, Literal, Self

import numpy as np

from dppl._utils.optional import optional
from dppl.errors import Argument, BudgetError, ParameterError
from dppl.finetune.gradients import as_inputs
from dppl.finetune.layers import to_group_norm
from dppl.finetune.sparse import SparseFinetuner
from dppl.finetune.trainer import Training
from dppl.finetune.weights import (
    WeightSelection,
    head_of,
    is_convolution,
    select_weights,
)
from dppl.kernel.mechanisms import SampledGaussian
from dppl.kernel.privacy import ApproxDP
from dppl.kernel.privacy.sensitivity import RADIUS
from dppl.lab.moments_accountant import multiplier_by_moments
from dppl.methods.parameters import parameters

_BATCH = 256  # of statistics, which are means over batches


@parameters
class ControlFinetuner(SparseFinetuner):
    """Train weights of a network as `SparseFinetuner` does, or other weights, from another start, or with more noise.

    Parameters
    ----------
    mask : {"largest", "random"}, default="largest"
        Which weights of the convolutions are trained: the largest [1]_, or as many at
        random.
    start : {"public", "random"}, default="public"
        Whether weights start as they are, or at random, with group normalisation in the
        place of batch normalisation: DP-SGD from scratch [2]_.
    accounting : {"distributions", "moments"}, default="distributions"
        How the noise is found for an ApproxDP budget: by privacy loss distributions, or
        as published, by the moments accountant (Rényi divergences) [2]_, which proves
        less, and so asks for more noise. The statement gives what this noise costs.

    Notes
    -----
    Masks and starts are drawn with `random_state`, or 0.

    **Privacy.** Unit: one record. Relation: add or remove one record. Released: as by
    `SparseFinetuner`. Sensitivity: as there. Public inputs: as there, and what is drawn
    at random. Not covered: as there.

    References
    ----------
    .. [1] Luo, Wu, Adeli, Fei-Fei (2021), Scalable differential privacy with sparse
    network finetuning, CVPR, section 4.4.
    .. [2] Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang (2016),
    arXiv:1607.00133.
    """

    mask: Literal["largest", "random"] = "largest"
    start: Literal["public", "random"] = "public"
    accounting: Literal["distributions", "moments"] = "distributions"

    def _training(self, shape: tuple[int, ...], **further: Any) -> Training:
        training = super()._training(shape, **further)
        if self.accounting == "distributions":
            return training
        if not isinstance(training.budget, ApproxDP):
            raise BudgetError(
                "the moments accountant is for approximate DP; use ApproxDP, not "
                f"{training.budget!r}."
            )
        if training.heads:
            raise ParameterError(
                "must be 'distributions' with a default head, whose releases it does not count; or leave out ",
                Argument("default_head", True),
                ".",
                parameter="accounting",
            )
        one = training.measurements["gradients"]
        noise = one.mechanism
        # The rate at which coins are tossed, rounded as they are.
        rate = 1.0
        if isinstance(noise, SampledGaussian):
            rate = noise.describe(training.gradients.statistic).parameters[
                "sampling_rate"
            ]
        multiplier = multiplier_by_moments(
            training.budget.epsilon, training.budget.delta, rate, training.steps
        )
        # Never less than what is proved of it otherwise.
        noise = with_noise(noise, max(multiplier * RADIUS, noise.noise_std))
        release = noise.describe(training.gradients.statistic)
        training.measurements = {
            "gradients": replace(one, mechanism=noise, release=release)
        }
        training.guarantee = replace(training.guarantee, releases=(release,))
        return training

    def _selected(self, n_classes: int) -> tuple[Any, WeightSelection]:
        module, selection = super()._selected(n_classes)
        torch = optional("torch", "torch", "torch")
        with torch.random.fork_rng():
            torch.manual_seed(self.random_state or 0)
            if self.start == "random":
                module = to_group_norm(module)
                head = head_of(module, self.head)
                for name, layer in module.named_modules():
                    if name != head and hasattr(layer, "reset_parameters"):
                        layer.reset_parameters()
            parts = self.train
            if self.mask == "random" and not isinstance(parts, Mapping):
                # The largest of equally distributed numbers are anywhere.
                drawn = deepcopy(module)
                for layer in filter(is_convolution, drawn.modules()):
                    layer.weight.data.normal_()
                selection = select_weights(
                    drawn, parts, sparsity=self.sparsity, head=self.head
                )
        return module, selection


class NonPrivateFinetuner(ControlFinetuner):
    """A bound: the same samples and clipped gradients, in whole numbers, and no guarantee."""

    def fit(self, X: Any, y: Any) -> Self:  # type: ignore[override]
        """Train, and promise nothing; no ledger, whose charge would say that noise was drawn."""
        super().fit(X, y)
        del self.guarantee_
        return self

    def _training(self, shape: tuple[int, ...], **further: Any) -> Training:
        training = super()._training(shape, **further)
        one = training.measurements["gradients"]
        # One step of rounding, of 2²² that a record may add.
        quiet = with_noise(one.mechanism, 1.0)
        training.measurements = {"gradients": replace(one, mechanism=quiet)}
        return training


def with_noise(mechanism: Any, noise_std: float) -> Any:
    """Return the mechanism with another noise in each release."""
    if isinstance(mechanism, SampledGaussian):
        return replace(mechanism, each=replace(mechanism.each, noise_std=noise_std))
    return replace(mechanism, noise_std=noise_std)


class NonPrivateStatistics(NonPrivateFinetuner):
    """A bound whose batch normalisation has the running statistics of its training records.

    Luo et al. recompute them (section 4.4) after Li, Wang, Shi, Liu, Hou (2016), Revisiting
    batch normalization for practical domain adaptation, arXiv:1603.04779. They hold sums
    over all records, without noise.
    """

    def fit(self, X: Any, y: Any) -> Self:  # type: ignore[override]
        """Recompute the statistics, then train with them, and promise nothing."""
        self._seen = as_inputs(X)
        super().fit(X, y)
        del self._seen
        return self

    def _selected(self, n_classes: int) -> tuple[Any, WeightSelection]:
        module, selection = super()._selected(n_classes)
        torch = optional("torch", "torch", "torch")
        kinds = torch.nn.modules.batchnorm._NormBase
        if not any(
            isinstance(layer, kinds) and layer.running_mean is not None
            for layer in module.modules()
        ):
            raise ParameterError(
                "must have batch normalisation with running statistics, to recompute them.",
                parameter="module",
            )
        records = torch.from_numpy(np.array(self._seen, np.float32))
        device = next(module.parameters()).device
        torch.optim.swa_utils.update_bn(records.to(device).split(_BATCH), module)
        return module, selection
