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
    """Checks that may stop a run before anything is embedded or charged; by default, no record can."""

    unusable: str = option(
        "skip|stop|ask",
        "What to do if records cannot be used, have labels outside the class list or, with --groups, have no id. "
        "skip: leave them out silently. stop: exit before anything is embedded or charged, which reveals one bit "
        "about the records. ask: first show what `dppl check` shows, on your terminal only. No guarantee covers that "
        "bit or your answer. Default skip.",
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
        """If the options ask for it, show which records a run can use, or stop if some cannot be used.

        `read` returns the table or source, the classes if known, and the ids of
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
            # A multi-label record is used without its unknown labels, but not by a
            # strict run.
            outside = several is not None and bool(
                report["labels"] and report["labels"]["unknown"]
            )
            nobody = bool(report.get("persons", {}).get("missing_ids"))
            refuse_unusable_records(report["used"] - (outside or nobody), report["n"])

    def strictly(self, options: dict[str, Any]) -> dict[str, Any]:
        """Return the parameters of a fit; a run that stops at unusable records has strict labels."""
        if self.unusable != "stop":
            return options
        if "unknown_labels" in options:
            raise ParameterError(
                "stop sets unknown_labels itself; leave that out of --options.",
                parameter="unusable",
            )
        return options | {"unknown_labels": "strict"}
