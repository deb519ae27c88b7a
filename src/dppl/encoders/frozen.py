"""Models of torch: frozen, hashed, one thread a batch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._optional import optional
from dppl.errors import ParameterError

__all__ = ["FrozenModel", "load_torch"]


def load_torch(extra: str) -> Any:
    """Import torch, and see that torchvision, if there is one, does not keep other libraries from being imported."""
    torch = optional("torch", "torch", extra)
    _mend_torchvision()
    return torch


@cache
def _mend_torchvision() -> Any:
    """Declare two operators that torchvision expects from its compiled part.

    The package index has torchvision for CUDA only. Beside a torch without CUDA its compiled part does not load, and
    then neither it nor timm nor transformers can be imported, though none of them needs these operators for an encoder.
    """
    if find_spec("torchvision") is None:
        return None
    try:
        import_module("torchvision")
    except RuntimeError:
        library = import_module("torch.library").Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import_module("torchvision")
        return library  # which must live as long as its operators
    return None


class FrozenModel:
    """A module of torch in evaluation mode on its device, without gradients.

    Parameters
    ----------
    torch : module
    model : torch.nn.Module
        With weights in float32.
    call : callable
        The model and tensors by name to a tensor of embeddings.
    device : {"auto", "cpu", "cuda"}
    precision : {"auto", "float32", "float16"}

    Raises
    ------
    ParameterError
        If there is no such device, it has no such precision, or the model uses statistics of the batch.
    """

    def __init__(
        self, torch: Any, model: Any, call: Callable[[Any, dict[str, Any]], Any], device: str, precision: str
    ) -> None:
        self.device = _device(torch, device)
        self.dtype = {"auto": "float16" if self.device == "cuda" else "float32"}.get(precision, precision)
        if self.dtype == "float16" and self.device == "cpu":
            raise ParameterError("precision='float16' is for a GPU; on a CPU it must be 'float32'.")
        self._torch, self._call = torch, call
        self._model = model.float().eval().requires_grad_(False).to(self.device)
        _refuse_batch_statistics(torch, self._model)

    def weights(self, description: str, *, with_pooler: bool = False) -> str:
        """Return the SHA-256 of a description and of all parameters.

        A module called "pooler" is left out unless `with_pooler`. Libraries add one with random weights where the file
        has none, and only projections of models of images and texts use it.
        """
        digest = hashlib.sha256(description.encode())
        for name, tensor in sorted(self._model.state_dict().items()):
            if with_pooler or "pooler" not in name.split("."):
                digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
                digest.update(tensor.cpu().contiguous().reshape(-1).view(self._torch.uint8).numpy())
        return digest.hexdigest()

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


def _device(torch: Any, device: str) -> str:
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
