"""A model as a `torch.nn.Module`."""

from __future__ import annotations

import io
import json
from functools import cache
from typing import Any

from dppl._optional import optional
from dppl.export.scorer import TINY, Head, Scorer, fitted, scorer_of
from dppl.export.statement import statement

__all__ = ["STATEMENT", "to_bytes", "to_torch"]

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
        Maps a floating tensor of shape (n, n_features) to logits of shape (n, n_classes), float64: the scores of
        `decision_function` times ``sharpness``, whose softmax is `predict_proba`. Rows without a direction (NaN,
        infinity, only zeros) have NaN. Its ``classes`` are the labels in the order of the columns, and ``statement`` is
        the guarantee with what else is known of the model.

    Raises
    ------
    MissingExtra
        If torch is not installed.
    InputError
        If the model cannot be exported.

    Notes
    -----
    Arithmetic is that of float64. In training mode it is the same; no weight of it requires a gradient.
    """
    model = fitted(model)
    return _module_class()(scorer_of(model), statement(model)).eval()


def to_bytes(model: Any) -> bytes:
    """Return `to_torch` as a file of `torch.export`, whose entry ``dppl.json`` holds the statement."""
    torch = _torch()
    module = to_torch(model)
    example = torch.ones(2, module.n_features)
    program = torch.export.export(module, (example,), dynamic_shapes={"rows": {0: torch.export.Dim("n_rows")}})
    file = io.BytesIO()
    torch.export.save(program, file, extra_files={STATEMENT: json.dumps(module.statement, allow_nan=False)})
    return file.getvalue()


def _torch() -> Any:
    return optional("torch", "torch", "torch")


@cache
def _module_class() -> Any:
    """Make the class when torch is at hand: the package imports without it."""
    torch = _torch()

    class ExportedHead(torch.nn.Module):  # type: ignore[misc, name-defined]
        """See `dppl.export.scorer.Head`."""

        def __init__(self, head: Head) -> None:
            super().__init__()
            for name in ("weights", "offsets", "center", "projection"):
                value = getattr(head, name)
                self.register_buffer(name, None if value is None else torch.from_numpy(value.copy()))
            self.moves = head.moves

        def forward(self, rows: Any) -> Any:
            """Return scores of rows φ."""
            if self.center is not None:
                rows = rows - self.center
            if self.projection is not None:
                rows = rows @ self.projection.T
            if self.moves:
                rows = rows / rows.square().sum(1, keepdim=True).sqrt().clamp(min=TINY)
            return rows @ self.weights.T + self.offsets

    class ExportedClassifier(torch.nn.Module):  # type: ignore[misc, name-defined]
        """See `dppl.export.scorer.Scorer`."""

        def __init__(self, scorer: Scorer, said: dict[str, Any]) -> None:
            super().__init__()
            self.n_features, self.pool, self.moves = scorer.n_features, scorer.pool, scorer.moves
            self.kept = scorer.dim * scorer.pool
            center = None if scorer.center is None else torch.from_numpy(scorer.center.copy())
            self.register_buffer("center", center)
            self.heads = torch.nn.ModuleList(map(ExportedHead, scorer.heads))
            self.together = getattr(torch, scorer.together)
            self.sharpness, self.classes, self.statement = scorer.sharpness, scorer.classes.tolist(), said

        def forward(self, rows: Any) -> Any:
            """Return logits."""
            features = _unit(rows.double())
            if self.moves:
                if self.center is not None:
                    features = features - self.center
                features = _unit(features[:, : self.kept].unflatten(1, (-1, self.pool)).sum(2))
            scores = self.heads[0](features)
            for head in list(self.heads)[1:]:
                scores = self.together(scores, head(features))
            return self.sharpness * scores

    return ExportedClassifier


def _unit(rows: Any) -> Any:
    # Dividing by the largest entry first keeps squares of huge and tiny rows in range.
    rows = rows / rows.abs().amax(1, keepdim=True)
    return rows / rows.square().sum(1, keepdim=True).sqrt()
