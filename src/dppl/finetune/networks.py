"""Public networks by name, with the preprocessing of images that goes with them.

``timm:NAME[@CHECKPOINT]`` is an image model of timm, loaded as by `dppl.encoders`, with
a new classifier. ``python:MODULE:FUNCTION@WEIGHTS`` is a network of public code
(`dppl.encoders.python`), whole.

Options follow as in ``timm:NAME?size=224``: ``size``, ``crop_pct``, ``crop_mode``,
``interpolation``, ``mean`` and ``std``. A network of Python code needs ``size``.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dppl._utils.fingerprint import Fingerprint
from dppl._utils.optional import optional
from dppl.encoders import python, timm
from dppl.encoders.fixed import check_batch
from dppl.encoders.frozen import device_of, tensors_digest
from dppl.encoders.load import Device, chosen_device, parse, without_folders
from dppl.encoders.pixels import Preprocessing
from dppl.errors import ParameterError
from dppl.finetune.weights import head_of


@dataclass(slots=True, eq=False)
class Network:
    """A public network for images.

    As an encoder it returns what the network takes: the prepared pixels of each image,
    in one row.
    """

    module: Any  # in evaluation mode, on its device
    head: str  # name of its last linear layer
    preprocessing: Preprocessing
    fingerprint: Fingerprint
    uri: str  # with the folders of a local path

    modality: str = "image"
    dimension: int = field(init=False)
    batch_rows: int = 64
    window: int = 64

    def __post_init__(self) -> None:
        self.dimension = math.prod(self.shape)

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle holds no weights.
        return _reloaded, (self.uri, self.fingerprint.device)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Shape of one input."""
        return 3, self.preprocessing.size, self.preprocessing.size

    def prepare(self, item: Any) -> NDArray[np.float32]:
        """Return the input for an RGB image of Pillow, flattened."""
        return self.preprocessing(item).reshape(-1)

    def encode_prepared(
        self, batch: Sequence[Any], progress: Callable[[int], object] | None = None
    ) -> NDArray[np.float32]:
        """Return what `prepare` returned."""
        if progress is not None:
            progress(len(batch))
        return np.stack(batch)

    def encode(self, batch: Sequence[Any]) -> NDArray[np.float32]:
        """Return the inputs for images, flattened."""
        check_batch(batch)
        return self.encode_prepared([self.prepare(item) for item in batch])

    def inputs(self, rows: Any) -> NDArray[Any]:
        """Return rows of pixels as inputs of the network."""
        return np.asarray(rows).reshape(-1, *self.shape)


def load_network(uri: str, *, device: Device = "auto") -> Network:
    """Load a public network from this machine; nothing is downloaded. ``python:`` runs the code that it names."""
    device = chosen_device(device)
    forms = "timm:NAME[@CHECKPOINT] or python:MODULE:FUNCTION@WEIGHTS, with options as ?size=224"
    source = parse(str(uri), ("timm", "python"), forms, "network")
    torch = optional("torch", "torch", "torch")
    model = (timm if source.scheme == "timm" else python).build(source)
    if source.scheme == "timm":
        head = _without_classifier(torch, model.module)
    else:
        head = head_of(model.module)
    module = (
        model.module.float().eval().requires_grad_(False).to(device_of(torch, device))
    )
    fingerprint = Fingerprint(
        uri=without_folders(uri),
        library=model.library,
        weights=tensors_digest(model.description, module.state_dict().items()),
        preprocessing=str(model.preprocessing),
        pooling=f"the input of {head}",
        dtype="float32",
        device=str(next(module.parameters()).device.type),
        batch="none",
        versions=model.versions,
        row_independent=True,
    )
    return Network(module, head, model.preprocessing, fingerprint, str(uri))


def _reloaded(uri: str, device: Device) -> Network:
    return load_network(uri, device=device)


def _without_classifier(torch: Any, module: Any) -> str:
    """Replace the classifier of a model of timm by zeros, which have one digest; return its name."""
    module.reset_classifier(1)
    found = module.get_classifier()
    names: list[str] = [
        name for name, layer in module.named_modules() if layer is found
    ]
    if not names or not isinstance(found, torch.nn.Linear):
        raise ParameterError(
            "must have one linear layer as its classifier.", parameter="network"
        )
    for parameter in found.parameters():
        parameter.data.zero_()
    return names[0]
