"""Low-rank adapters of linear layers, trained privately: for one data set, or for each task of a stream."""

from collections.abc import Callable
from functools import partial
from typing import Any

from dppl._utils.optional import optional
from dppl.errors import ParameterError
from dppl.finetune.sparse import SparseFinetuner
from dppl.finetune.weights import WeightKind, WeightSelection, head_of
from dppl.lab.film import FilmEnsemble
from dppl.methods.parameters import Count, parameters


@parameters
class LoraFinetuner(SparseFinetuner):
    """Train a new head and a low-rank addition to every other linear layer of a public network (LoRA).

    A layer x ↦ Wx + b becomes x ↦ Wx + b + BAx. A starts at random, and B at zero, so
    that training starts from the public network [1]_, [2]_.

    Parameters
    ----------
    rank : int, default=4
        Number of rows of A.

    Notes
    -----
    Layers of subclasses of `torch.nn.Linear` stay as they are: others may read their
    weights. A is drawn with `random_state`, or 0.

    **Privacy.** Unit: one record. Relation: add or remove one record. Released: as by
    `SparseFinetuner`. Sensitivity: as there, over the head and all A and B jointly.
    Public inputs: as there, and what is drawn at random. Not covered: as there.

    References
    ----------
    .. [1] Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Wang, Chen (2022), LoRA: low-rank
    adaptation of large language models, ICLR.
    .. [2] Yu, Naik, Backurs, Gopi, Inan, Kamath, Kulkarni, Lee, Manoel, Wutschitz,
    Yekhanin, Zhang (2022), Differentially private fine-tuning of language models, ICLR.
    """

    rank: Count = 4

    def _selected(self, n_classes: int) -> tuple[Any, WeightSelection]:
        module, selection = super()._selected(n_classes)
        torch = optional("torch", "torch", "torch")
        head = head_of(module, self.head)
        places = [
            name
            for name, layer in module.named_modules()
            if type(layer) is torch.nn.Linear and name != head
        ]
        if not places:
            raise ParameterError(
                "must have linear layers besides its head, for LoRA to adapt.",
                parameter="module",
            )
        generator = torch.Generator().manual_seed(self.random_state or 0)
        for name in places:
            layer = module.get_submodule(name)
            module.set_submodule(name, _adapted(torch, layer, self.rank, generator))
        chosen = {
            *selection,
            *(f"{name}.{one}.weight" for name in places for one in "AB"),
        }
        # In the order of the module, as all selections.
        return module, {
            name: None for name, _ in module.named_parameters() if name in chosen
        }


@parameters
class LoraEnsemble(FilmEnsemble):
    r"""Train a new head and low-rank additions to a public network for each task, and let all tasks vote.

    Tobaben et al. (arXiv:2411.04680v2, appendix B.4) name it as an alternative to FiLM.

    Parameters
    ----------
    rank : int, default=4
        As of `LoraFinetuner`.

    Notes
    -----
    **Privacy.** Unit: one record; with ``tasks="overlapping"`` a person with at most
    one record in each task; with `groups` a person. Relation: add one to one task, or
    remove it; or that in several tasks. Released: as by `FilmEnsemble`. Sensitivity: as
    for `LoraFinetuner` for the task that holds the record, and nothing for all others.
    Public inputs: as of `FilmEnsemble`. Not covered: as there.
    """

    rank: Count = 4

    @property
    def _kind(self) -> Callable[..., SparseFinetuner]:
        train: tuple[WeightKind, ...] = ("head",)
        return partial(LoraFinetuner, train=train, rank=self.rank)


def _adapted(torch: Any, layer: Any, rank: int, generator: Any) -> Any:
    nn = torch.nn

    class Adapted(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer
            self.A = nn.Linear(layer.in_features, rank, bias=False).to(layer.weight)
            self.B = nn.Linear(rank, layer.out_features, bias=False).to(layer.weight)
            drawn = torch.randn(self.A.weight.shape, generator=generator)
            self.A.weight.data.copy_(drawn / layer.in_features**0.5)
            self.B.weight.data.zero_()

        def forward(self, x: Any) -> Any:
            return self.layer(x) + self.B(self.A(x))

    return Adapted()
