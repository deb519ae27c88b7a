"""The option `--unusable`: what happens before a charge if records cannot be used."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dppl._utils import validate
from dppl.cli._records import Records
from dppl.cli._request import option, request
from dppl.errors import ParameterError


@request(panel="data")
class BeforeCharge(Records):
    """What may stop a run before anything is embedded or charged; without these options no record decides that."""

    unusable: str = option(
        "skip|stop|ask",
        "What to do if records cannot be used, have labels outside the class list or, with --groups, no id. skip: no "
        "word of them. stop: before anything is embedded or charged, which is one bit about the records. ask: first "
        "show on your terminal alone what `dppl check` shows. No guarantee covers that bit, or your answer. Default "
        "skip.",
        "skip",
        typed={"strict": "--unusable stop", "review": "--unusable ask"},
    )

    def __post_init__(self) -> None:
        validate.one_of(("skip", "stop", "ask"), unusable=self.unusable)
        if self.unusable == "ask":
            from dppl.cli._owner import terminal

            with terminal():  # or nothing is read
                pass

    def check_first(
        self,
        read: Callable[[], tuple[Any, ...]],
        *,
        fit: bool = False,
        several: Any = None,
    ) -> None:
        """Show its owner what a run can use, and stop if that is not enough, as far as the options ask for it.

        `read` returns a table or source, the classes if they are known, and ids of
        persons. A strict `fit` stops by itself: it knows the encoder.
        """
        if self.unusable == "skip" or (fit and self.unusable == "stop"):
            return
        from dppl.cli._owner import report_on, review
        from dppl.kernel.checking import refuse_unusable_records

        several = several or self.several()
        report = report_on(*read(), several=several)
        if self.unusable == "ask":
            review(report, fit=fit)
        else:
            # A record of several labels is used without those that are unknown, but not
            # by a strict run.
            outside = several is not None and bool(
                report["labels"] and report["labels"]["unknown"]
            )
            nobody = bool(report.get("persons", {}).get("missing_ids"))
            refuse_unusable_records(report["used"] - (outside or nobody), report["n"])

    def strictly(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return parameters of a fit, of which a strict run is one."""
        if self.unusable != "stop":
            return options
        if "unknown_labels" in options:
            raise ParameterError(
                "stop goes without --options unknown_labels.", parameter="unusable"
            )
        return options | {"unknown_labels": "strict"}
