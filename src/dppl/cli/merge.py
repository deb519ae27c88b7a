"""`dppl merge`: one model of several that institutions released, each by itself."""

from __future__ import annotations

from pathlib import Path

from dppl.cli._output import print_model
from dppl.cli._paths import MODEL, check_output
from dppl.cli._request import argument, flag, option, request
from dppl.cli.fit import summary
from dppl.errors import ParameterError


@request()
class Merge:
    r"""Merge models that institutions released, each by itself, into one.

    It reads no record and costs nothing. Noisy sums of --method mean add up to
    what a fit on all institutions gets; softmax prototypes are averaged, each class
    by its share of the records (docs/federation.md).

    For example:

      dppl merge north.safetensors south.safetensors --out both.safetensors
    """

    models: list[Path] = argument(
        "MODEL", "Model files; institutions are called as their files are."
    )
    out: Path = option("MODEL", "Model file to write.")
    force: bool = flag("Replace the output file if it exists.")

    def run(self) -> None:
        """Merge and save."""
        from dppl.federation import merge

        check_output(self.out, self.models, force=self.force, suffixes=MODEL)
        if len({path.stem for path in self.models}) < len(self.models):
            raise ParameterError(
                "institutions are called as their files are, and two have one name; rename a file."
            )
        model = merge({path.stem: path for path in self.models})
        model.save(self.out, overwrite=self.force)
        print_model(model.guarantee_, self.out, summary(model))
