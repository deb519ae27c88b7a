"""`dppl verify`: whether a model file states what its method costs."""

from __future__ import annotations

import sys
from pathlib import Path

from dppl.cli._output import console, echo, printable, table_of
from dppl.cli._request import argument, request
from dppl.cli._training import Account


@request("ledger")
class Verify(Account):
    """Compute sensitivities, noise and cost of a model again, and compare them with what its file states.

    All follows from the method, its parameters, the number of classes and the
    width of the rows, as before a fit. With a ledger, the charge of the model
    must name this file and have its cost. Whether dppl ran as stated no
    program can see: the file is not signed.

    Exit codes: 0 all agrees; 1 something differs; 2 it cannot be computed
    again, as for a method of your own (in Python: docs/own-method.md);
    4 the file is damaged, or no model.

    For example:

      dppl verify my.safetensors
      dppl verify my.safetensors --ledger ledger.db wards
    """

    model: Path = argument(
        "MODEL", "Model file of `dppl fit`, `dppl train` or `dppl finetune`."
    )

    def run(self) -> None:
        """Verify the model, print a table, and end with the exit code."""
        from dppl.audit import (
            verify,  # here, because the help of a command needs no scikit-learn
        )

        found = verify(self.model, ledger=self.account()["ledger"])
        if found.reason is not None:
            echo(f"Cannot be verified: {printable(found.reason)}")
            sys.exit(2)
        rows = [
            (
                "yes" if one.holds else "NO",
                one.what,
                one.stated if one.holds else [one.stated, "computed:", one.computed],
            )
            for one in found.checks
        ]
        console().print(table_of(("agrees", "what", "as stated"), rows))
        echo("Not checked, since only the file says so:")
        for text in found.believed:
            echo(f"- {printable(text)}")
        # The last line is what a person looks for, and the exit status what a script does.
        if found.holds:
            echo("Verified.")
        else:
            echo("NOT verified: the file states something else than its method.")
        sys.exit(0 if found.holds else 1)
