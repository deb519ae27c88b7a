"""What gives every classifier its report."""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Reported"]


class Reported:
    """Mixin of classifiers, which say what they promise by the file that `save` writes."""

    if TYPE_CHECKING:

        def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
            """Write the released model to one file."""

    def report(self, *, results: Any = None, ledger: Any = None, public: Any = None, by: str | None = None) -> Any:
        """Return the report of the released model, which notebooks show: what it does and promises, how to check it.

        Parameters
        ----------
        results : path or mapping, default=None
            What `dppl evaluate --json` printed. It is not covered by the guarantee.
        ledger : Ledger or path, default=None
            The ledger that paid for the model.
        public : path, default=None
            Public images or texts among which the model selected.
        by : str, default=None
            Who made the model, for the reader.

        Returns
        -------
        dppl.statement.Report
            As of `dppl.statement.make_report`.
        """
        # By name, because a report knows all layers above this one.
        return import_module("dppl.statement").make_report(self, results=results, ledger=ledger, public=public, by=by)
