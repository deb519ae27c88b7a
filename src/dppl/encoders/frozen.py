"""Models of torch: frozen, hashed, one thread a batch.

Two kinds of models of transformers need more than batches of fixed shapes. One with a mixture of experts multiplies
the tokens that a whole batch sends to an expert, so company decides the shape of that product; it gets one row a
batch. One whose rotary embedding adapts to the length of what it has seen remembers other records, and is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._optional import optional
from dppl.errors import MissingExtra, ParameterError


def load_torch(extra: str) -> Any:
    """Import torch, and see that other libraries can import the torchvision beside it, if there is one."""
    torch = optional("torch", "torch", extra)
    if find_spec("torchvision") is not None:
        try:
            import_module("torchvision")
        except (ImportError, OSError, RuntimeError) as error:
            raise MissingExtra(
                f"torchvision cannot be imported beside torch {torch.__version__}, so timm and transformers cannot be "
                "either. Install both from one index, for a CPU: pip install --force-reinstall torch torchvision "
                "--index-url https://download.pytorch.org/whl/cpu. Only timm needs it; for other encoders "
                "pip uninstall torchvision is enough."
            ) from error
    return torch


class FrozenModel:
    """A module of torch in evaluation mode on its device, without gradients.

    Weights are float32; `call` takes the model and tensors by name to embeddings. A mixture of experts takes one row at
    a time (`only_rows`). Statistics of the batch, and rotary embeddings that change with what was seen, are refused.
    """

    def __init__(
        self, torch: Any, model: Any, call: Callable[[Any, dict[str, Any]], Any], device: str, precision: str
    ) -> None:
        self.device = device_of(torch, device)
        self.dtype = {"auto": "float16" if self.device == "cuda" else "float32"}.get(precision, precision)
        if self.dtype == "float16" and self.device == "cpu":
            raise ParameterError("precision='float16' is for a GPU; on a CPU it must be 'float32'.")
        self._torch, self._call = torch, call
        self._model = model.float().eval().requires_grad_(False).to(self.device)
        _refuse_batch_statistics(torch, self._model)
        _refuse_changing_positions(self._model)
        self.only_rows = 1 if _has_experts(self._model) else None

    @property
    def fields(self) -> dict[str, Any]:
        """What a `Network` of this model takes from it."""
        own = {name: getattr(self, name) for name in ("dtype", "device", "only_rows", "pool", "state")}
        return {**own, "compute": self}

    def batch_rows(self, on_cpu: int) -> int:
        """Return the number of rows of a batch to try first."""
        return on_cpu if self.device == "cpu" else 256

    def weights(self, description: str, counts: Callable[[str], bool] = bool) -> str:
        """Return the SHA-256 of a description and of all parameters that count, by their names."""
        state = self._model.state_dict().items()
        return tensors_digest(description, ((name, tensor) for name, tensor in state if counts(name)))

    def state(self) -> str:
        """Return the SHA-256 of all buffers, those included that no file holds."""
        return tensors_digest("", self._model.named_buffers())

    def __call__(self, arrays: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Embed a batch."""
        torch = self._torch
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode())
            if self.device == "cuda":
                # The same kernels in every run, and no TensorFloat-32 behind the name of float32.
                stack.enter_context(torch.backends.cudnn.flags(benchmark=False, deterministic=True, allow_tf32=False))
                half = self.dtype == "float16"
                stack.enter_context(torch.autocast("cuda", torch.float16, enabled=half, cache_enabled=False))
            tensors = {name: torch.from_numpy(array).to(self.device) for name, array in arrays.items()}
            embeddings: NDArray[np.float32] = self._call(self._model, tensors).float().cpu().numpy()
        return embeddings

    @contextmanager
    def pool(self, workers: int) -> Iterator[ThreadPoolExecutor]:
        """Start threads in each of which torch computes with that one thread only, whatever it is set to outside."""
        torch = self._torch
        before = torch.get_num_threads()
        pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,))
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(before)  # threads that others start later take over what was set last


def tensors_digest(description: str, tensors: Iterable[tuple[str, Any]]) -> str:
    """Return the SHA-256 of a description and of tensors with their names, in the order of these."""
    digest = hashlib.sha256(description.encode())
    for name, tensor in sorted(tensors, key=lambda item: item[0]):
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(import_module("torch").uint8).numpy())
    return digest.hexdigest()


def device_of(torch: Any, device: str) -> str:
    """Return the device that "auto" is here, or the one that was named."""
    available = torch.cuda.is_available()
    if device == "cuda" and not available:
        raise ParameterError("device='cuda' needs a GPU that torch can use; it finds none.")
    return ("cuda" if available else "cpu") if device == "auto" else device


def _refuse_batch_statistics(torch: Any, model: Any) -> None:
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.modules.batchnorm._BatchNorm) and (
            module.training or module.running_mean is None
        ):
            raise ParameterError(
                f"layer {name!r} normalises with statistics of the batch, so that one record would change the "
                "embeddings of others; dppl refuses such a model."
            )


def _refuse_changing_positions(model: Any) -> None:
    """Refuse rotary embeddings that transformers adapts to the longest text so far, or to the batch computed last."""
    for name, module in model.named_modules():
        kind = getattr(module, "rope_type", None)  # one, or one for each type of layer
        kinds = list(kind.values()) if isinstance(kind, dict) else [kind]
        if any("dynamic" in str(one) or one == "longrope" for one in kinds):
            raise ParameterError(
                f"layer {name!r} has a rotary embedding of the type 'dynamic' or 'longrope', which changes with the "
                "lengths of the texts seen before, so that one record would change the embeddings of others; dppl "
                "refuses such a model."
            )


def _has_experts(model: Any) -> bool:
    """Return whether the configuration of any part, as transformers has them, tells of more than one expert."""

    def tells(config: Mapping[str, Any]) -> bool:
        return any(
            tells(value)
            if isinstance(value, dict)
            else str(name).endswith("experts") and isinstance(value, int) and value > 1
            for name, value in config.items()
        )

    configurations = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
    return any(tells(one.to_dict()) for one in configurations.values() if hasattr(one, "to_dict"))
