"""`dppl export`: a model in the format of another library, or as a folder for a model hub."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from dppl import _validate
from dppl.cli._output import note, printable
from dppl.cli._paths import check_inputs, check_output, opened
from dppl.cli._request import argument, flag, option, request
from dppl.cli.predict import is_network
from dppl.errors import ParameterError

_NEXT = {
    "onnx": "onnxruntime.InferenceSession({path!r}).run(None, ...) gives label, scores and probabilities",
    "torch": "torch.export.load({path!r}).module() maps float32 rows to logits",
    "hf": "hf upload OWNER/NAME {path}",
}


@request()
class Export:
    """What `dppl export` is asked."""

    model: Path = argument("MODEL", "Model file of `dppl fit` or `dppl train`.")
    to: str = option("|".join(_NEXT), "The format: see below.")
    out: Path = option("PATH", "File to write, or with --to hf the folder.")
    encoder: Path | None = option(
        "FILE", "With --to onnx: the model's encoder as an ONNX file, to be put before the classifier.", None
    )
    license: str | None = option("ID", "With --to hf: licence of the model, such as apache-2.0. Default unknown.", None)
    force: bool = flag("Replace the output file if it exists.")


def export(request: Export) -> None:
    """Write a model for ONNX or PyTorch, or as a folder for a model hub.

    onnx is a graph from rows to labels, scores and probabilities; torch a .pt2 file of torch.export; hf a folder with
    the model file and its card. Each holds the guarantee, and the first two are read without dppl. They compute what
    dppl predict does, up to rounding (docs/export.md).

    For example:

      dppl export my.safetensors --to onnx --out my.onnx
      dppl export my.safetensors --to onnx --encoder encoder.onnx --out whole.onnx
      dppl export my.safetensors --to torch --out my.pt2
      dppl export my.safetensors --to hf --out my-model --license apache-2.0
    """
    from dppl.export import save

    model, out, encoder = request.model, request.out, request.encoder
    _validate.one_of(_NEXT, to=request.to)
    to: Any = request.to
    check_inputs(model, encoder)
    if to == "hf":
        _check_folder(out, model, request.force)
    else:
        check_output(out, (model, encoder), force=request.force)
    fitted = opened(model)
    if is_network(fitted):
        raise ParameterError(
            f"{model} holds weights of a network, which dppl does not export: use the library that it is written in. "
            "dppl show --card writes its card."
        )
    save(fitted, out, to=to, encoder=encoder, license=request.license, overwrite=request.force)
    if fitted.guarantee_.releases and not fitted.guarantee_.fit_for_release:
        note("this model is NOT FOR RELEASE, since its noise came from a seed; the export says so, too.")
    typer.echo(f"Saved to {printable(out)}. Next: {printable(_NEXT[to].format(path=str(out)))}")


def _check_folder(out: Path, model: Path, force: bool) -> None:
    """Refuse a folder that cannot be one, or that holds the model that is read."""
    from dppl.export.files import FILES

    if not out.parent.is_dir():
        raise ParameterError(f"--out must lie in an existing folder; {out.parent} is not one; create it first.")
    if out.exists() and not out.is_dir():
        raise ParameterError(f"--out must name a folder with --to hf; {out} is a file.")
    if out.exists() and out.resolve() == model.resolve().parent:
        raise ParameterError("--out must not be the folder of the model that is read; choose another.")
    taken = next((name for name in FILES if (out / name).exists()), None)
    if taken is not None and not force:
        raise ParameterError(f"--out must name a new folder; {out} holds {taken}; choose another, or add --force.")
