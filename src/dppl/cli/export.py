"""`dppl export`: a model in the format of another library, or as a folder for a model hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dppl._utils import validate
from dppl._utils.progress import progress
from dppl.cli._models import load_model
from dppl.cli._output import echo, note, printable
from dppl.cli._paths import check_output
from dppl.cli._request import argument, flag, option, request
from dppl.cli.predict import is_network
from dppl.errors import ParameterError

_NEXT = {
    "onnx": "onnxruntime.InferenceSession({path!r}).run(None, ...) gives label, scores and probabilities",
    "torch": "torch.export.load({path!r}).module() maps float32 rows to logits",
    "hf": "hf upload OWNER/NAME {path}",
}

_ENCODERS = ("minilm", "st", "hf")  # schemes of encoders of texts that torch computes


@request()
class Export:
    """Write a model for ONNX or PyTorch, or as a folder for a model hub; or an encoder of texts for ONNX.

    onnx is a graph from rows to labels, scores and probabilities; torch a .pt2 file of
    torch.export; hf a folder with the model file and its card. Each holds the
    guarantee, and the first two are read without dppl. They compute what dppl predict
    does, up to rounding (docs/export.md).

    For example:

      dppl export my.safetensors --to onnx --out my.onnx
      dppl export my.safetensors --to torch --out my.pt2
      dppl export my.safetensors --to hf --out my-model --license apache-2.0
      dppl export minilm --to onnx --out minilm.onnx

    The last is the encoder onnx:minilm.onnx, which needs no torch, for training and
    predictions.
    """

    model: Path = argument(
        "MODEL",
        "Model file of `dppl fit` or `dppl train`; or an encoder of texts, such as minilm.",
    )
    to: str = option("|".join(_NEXT), "The format: see below.")
    out: Path = option("PATH", "File to write, or with --to hf the folder.")
    encoder: Path | None = option(
        "FILE",
        "With --to onnx: the model's encoder as an ONNX file, to be put before the classifier.",
        None,
    )
    license: str | None = option(
        "ID",
        "With --to hf: licence of the model, such as apache-2.0. Default unknown.",
        None,
    )
    force: bool = flag("Replace the output file if it exists.")

    def run(self) -> None:
        """Write the file or folder, and say what reads it."""
        from dppl.export import save

        model = self.model
        out = self.out
        validate.one_of(_NEXT, to=self.to)
        to: Any = self.to
        if to != "hf":
            check_output(out, (model, self.encoder), force=self.force)
        if not model.exists() and str(model).partition(":")[0] in _ENCODERS:
            with progress(f"exporting {model}"):
                save(
                    str(model),
                    out,
                    to=to,
                    encoder=self.encoder,
                    license=self.license,
                    overwrite=self.force,
                )
            echo(
                f"Saved to {printable(out)}. Next: dppl train DATA --encoder onnx:{printable(out)} ..."
            )
            return
        fitted = load_model(model)
        if is_network(fitted):
            raise ParameterError(
                f"{model} holds weights of a network, which dppl does not export: use the library that it is written "
                "in. dppl show --for hub writes its card."
            )
        save(
            fitted,
            out,
            to=to,
            encoder=self.encoder,
            license=self.license,
            overwrite=self.force,
        )
        # The file may travel without this terminal, so it holds the same warning.
        if fitted.guarantee_.releases and not fitted.guarantee_.secure_noise:
            note(
                "this model is NOT FOR RELEASE, since its noise came from a seed; the export says so, too."
            )
        echo(
            f"Saved to {printable(out)}. Next: {printable(_NEXT[to].format(path=str(out)))}"
        )
