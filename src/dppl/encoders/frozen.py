"""Models of torch: frozen, hashed, one thread a batch.

Two kinds of models of transformers need more than batches of fixed shapes. One with a
mixture of experts multiplies all tokens of a batch that go to one expert, so the shape
of that product depends on the other rows; it gets one row a batch. A rotary embedding
that adapts to the lengths seen so far remembers other records; such a model is refused.
"""

import hashlib
import io
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from dppl._utils.optional import optional
from dppl._utils.types import Array, Float32
from dppl.errors import Argument, MissingExtra, ParameterError


def load_torch(extra: str) -> Any:
    """Import torch, and check that torchvision, if it is installed, can be imported with it."""
    torch = optional("torch", "torch", extra)
    if find_spec("torchvision") is not None:
        try:
            import_module("torchvision")
        except (ImportError, OSError, RuntimeError) as error:
            raise MissingExtra(
                f"torchvision does not go with torch {torch.__version__}, so timm and transformers cannot be imported. "
                "Install both from one index, for a CPU: pip install --force-reinstall torch torchvision "
                "--index-url https://download.pytorch.org/whl/cpu. Without timm, pip uninstall torchvision is enough."
            ) from error
    return torch


class FrozenModel:
    """A module of torch in evaluation mode on its device, without gradients.

    Weights are float32; `call` takes the model and tensors by name to embeddings. A
    mixture of experts takes one row at a time (`only_rows`). Statistics of the batch,
    and rotary embeddings that change with what was seen, are refused.
    """

    def __init__(
        self,
        torch: Any,
        model: Any,
        call: Callable[[Any, dict[str, Any]], Any],
        device: str,
        precision: str,
    ) -> None:
        self.device = device_of(torch, device)
        self.dtype = {"auto": "float16" if self.device == "cuda" else "float32"}.get(
            precision, precision
        )
        if self.dtype == "float16" and self.device == "cpu":
            raise ParameterError(
                "precision='float16' is for a GPU; on a CPU it must be 'float32'."
            )
        self._torch = torch
        self._call = call
        self.model = model.float().eval().requires_grad_(False).to(self.device)
        _refuse_memory(torch, self.model)
        self.only_rows = 1 if _has_experts(self.model) else None

    def arguments(self, on_cpu: int) -> dict[str, Any]:
        """Return what an `Adapter` of this model takes from it; on a CPU a batch has so many rows."""
        return {
            "dtype": self.dtype,
            "device": self.device,
            "compute": self,
            "batch_rows": on_cpu if self.device == "cpu" else 256,
            "only_rows": self.only_rows,
            "pool": self.pool,
            # All buffers, those included that no file holds.
            "state": lambda: tensors_digest("", self.model.named_buffers()),
        }

    def __call__(self, arrays: dict[str, Array]) -> Float32:
        """Embed a batch."""
        torch = self._torch
        half = self.dtype == "float16"
        with (
            torch.inference_mode(),
            exact_products(torch, self.device),
            torch.autocast("cuda", torch.float16, enabled=half, cache_enabled=False),
        ):
            tensors = {
                name: torch.from_numpy(array).to(self.device)
                for name, array in arrays.items()
            }
            embeddings: Float32 = self._call(self.model, tensors).float().cpu().numpy()
        return embeddings

    def to_onnx(self, arrays: dict[str, Array]) -> bytes:
        """Return an ONNX file from integer arrays of rows and lengths, such as these, to embeddings."""
        torch = self._torch
        call = self._call
        names = list(arrays)

        class Whole(torch.nn.Module):  # type: ignore[misc, name-defined]
            def __init__(self, model: Any) -> None:
                super().__init__()
                self.model = model

            def forward(self, *tensors: Any) -> Any:
                return call(self.model, dict(zip(names, tensors, strict=True)))

        content = io.BytesIO()
        # Tracing needs no further package. It warns of data-dependent branches, which
        # `dppl.export` tests by comparing embeddings.
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                Whole(self.model).eval(),
                tuple(map(torch.from_numpy, arrays.values())),
                content,
                dynamo=False,
                opset_version=17,
                input_names=names,
                output_names=["embeddings"],
                dynamic_axes={
                    **{name: {0: "rows", 1: "length"} for name in names},
                    "embeddings": {0: "rows"},
                },
            )
        return content.getvalue()

    @contextmanager
    def pool(self, workers: int) -> Iterator[ThreadPoolExecutor]:
        """Start workers in which torch uses a single thread, whatever its global setting."""
        torch = self._torch
        before = torch.get_num_threads()
        pool = ThreadPoolExecutor(
            workers, initializer=torch.set_num_threads, initargs=(1,)
        )
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(before)  # later threads inherit the last setting


@contextmanager
def exact_products(torch: Any, device: str) -> Iterator[None]:
    """Compute float32 on a GPU in full precision and with deterministic kernels, whatever the global settings.

    TensorFloat-32 rounds factors to 10 bits, so that rows would depend on their batch.
    """
    if device == "cpu":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


def tensors_digest(description: str, tensors: Iterable[tuple[str, Any]]) -> str:
    """Return the SHA-256 of a description and of tensors with their names, in the order of these."""
    digest = hashlib.sha256(description.encode())
    for name, tensor in sorted(tensors, key=lambda item: item[0]):
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(
            tensor.detach()
            .cpu()
            .contiguous()
            .reshape(-1)
            .view(import_module("torch").uint8)
            .numpy()
        )
    return digest.hexdigest()


def device_of(torch: Any, device: str) -> str:
    """Resolve "auto" to a device, and check that a named one is available."""
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise ParameterError(
            Argument("device", "cuda"),
            " needs a GPU that torch can use; it finds none.",
        )
    if device != "auto":
        return device
    return "cuda" if available else "cpu"


def _refuse_memory(torch: Any, model: Any) -> None:
    """Refuse layers by which one record would change the embeddings of others."""
    norms = torch.nn.modules.batchnorm._BatchNorm
    for name, module in model.named_modules():
        # Rotary embeddings that transformers adapts to the longest text so far, or to
        # the batch computed last.
        kind = getattr(module, "rope_type", None)  # one, or one for each type of layer
        if isinstance(kind, dict):
            kinds = list(kind.values())
        else:
            kinds = [kind]
        if isinstance(module, norms) and (
            module.training or module.running_mean is None
        ):
            what = "normalises with statistics of the batch"
        elif any("dynamic" in str(one) or one == "longrope" for one in kinds):
            what = (
                "has a rotary embedding of the type 'dynamic' or 'longrope', which changes with the lengths of the "
                "texts seen before"
            )
        else:
            continue
        raise ParameterError(
            f"layer {name!r} {what}, so that one record would change the embeddings of others; dppl refuses such a "
            "model."
        )


def _has_experts(model: Any) -> bool:
    """Return whether any part of the configuration, as transformers has them, names more than one expert."""
    configurations = {
        id(module.config): module.config
        for module in model.modules()
        if hasattr(module, "config")
    }
    parts: list[Mapping[str, Any]] = [
        one.to_dict() for one in configurations.values() if hasattr(one, "to_dict")
    ]
    while parts:
        for name, value in parts.pop().items():
            if isinstance(value, dict):
                parts.append(value)
            elif str(name).endswith("experts") and isinstance(value, int) and value > 1:
                return True
    return False
