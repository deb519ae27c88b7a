"""A model as a `torch.nn.Module`."""

import io
import json
from functools import cache
from typing import Any

from dppl._utils.optional import optional
from dppl._utils.types import Float
from dppl.export.scorer import Scorer, fitted, scorer_of, statement

# The entry of a .pt2 file that holds what is said of the model.
STATEMENT = "dppl.json"


def to_torch(model: Any) -> Any:
    """Return a module that maps rows to logits.

    Parameters
    ----------
    model : EmbeddingClassifier, PrivateClassifier or PrivateSearch
        Fitted.

    Returns
    -------
    torch.nn.Module
        Maps a floating tensor of shape (n, n_features) to logits of shape (n,
        n_classes), float64: the scores of `decision_function` times ``sharpness``,
        whose softmax is `predict_proba`. Rows without a direction (NaN, infinity, only
        zeros) have NaN. Its ``classes`` are the labels in the order of the columns, and
        ``statement`` is the guarantee with what else is known of the model.

    Raises
    ------
    MissingExtra
        If torch is not installed.
    InputError
        If the model cannot be exported.

    Notes
    -----
    Arithmetic is in float64. In training mode it is the same; no weight of it requires a gradient.
    """
    model = fitted(model)
    return _module_class()(scorer_of(model), statement(model)).eval()


def to_bytes(model: Any) -> bytes:
    """Return `to_torch` as a file of `torch.export`, whose entry ``dppl.json`` holds the statement."""
    torch = optional("torch", "torch", "torch")
    module = to_torch(model)
    example = torch.ones(2, module.n_features)
    program = torch.export.export(
        module, (example,), dynamic_shapes={"rows": {0: torch.export.Dim("n_rows")}}
    )
    file = io.BytesIO()
    torch.export.save(
        program,
        file,
        extra_files={STATEMENT: json.dumps(module.statement, allow_nan=False)},
    )
    return file.getvalue()


@cache
def _module_class() -> Any:
    """Make the class when torch is at hand: the package imports without it."""
    torch = optional("torch", "torch", "torch")

    class ExportedClassifier(torch.nn.Module):  # type: ignore[misc, name-defined]
        """Runs `dppl.export.scorer.Scorer`; also holds what that asks of torch."""

        maximum = staticmethod(torch.maximum)
        logaddexp = staticmethod(torch.logaddexp)

        def __init__(self, scorer: Scorer, said: dict[str, Any]) -> None:
            super().__init__()
            self.scorer = scorer
            self.n_features = scorer.n_features
            self.sharpness = scorer.sharpness
            self.classes = scorer.classes.tolist()
            self.statement = said
            self.forward(
                torch.ones(1, self.n_features)
            )  # which registers the constants

        def forward(self, rows: Any) -> Any:
            """Return logits."""
            return self.sharpness * self.scorer.scores(rows.double(), self)

        def constant(self, name: str, value: Float) -> Any:
            if not hasattr(self, name):
                self.register_buffer(name, torch.from_numpy(value.copy()))
            return getattr(self, name)

        def largest(self, rows: Any) -> Any:
            return rows.abs().amax(1, keepdim=True)

        def length(self, rows: Any) -> Any:
            return rows.square().sum(1, keepdim=True).sqrt()

        def pooled(self, rows: Any, dim: int, pool: int) -> Any:
            return rows[:, : dim * pool].unflatten(1, (dim, pool)).sum(2)

    return ExportedClassifier
