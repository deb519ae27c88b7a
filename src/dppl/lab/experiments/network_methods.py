"""Methods of a comparison that train a public network, and are given images where others are given embeddings."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from dppl import lab
from dppl._utils.optional import optional
from dppl.encoders import python
from dppl.encoders.load import parse, without_folders
from dppl.encoders.pixels import Preprocessing
from dppl.errors import ParameterError
from dppl.finetune import Recipe
from dppl.finetune.networks import load_network
from dppl.kernel.privacy import ApproxDP, Budget, GaussianDP
from dppl.kernel.privacy.budgets import USUAL_DELTA
from dppl.lab.experiments.cells import NO_NOISE
from dppl.lab.experiments.method_kinds import ComparedMethod
from dppl.methods.public_data import PublicData

FORMS = "python:MODULE:FUNCTION@WEIGHTS?size=N"
_RECIPE = {one.name for one in fields(Recipe)} - {"batch_size"}
# What a runner or the network itself gives.
_LOOSE = 100.0
_GIVEN = {"module", "budget", "classes", "head", "options", "random_state"}


@dataclass(frozen=True, slots=True)
class NetworkMethod(ComparedMethod):
    """One that trains weights of a public network, which its parameter `network` names as `dppl finetune` does."""

    of_images = True
    pure = False

    @property
    def private(self) -> bool:
        """Whether it spends a budget; references give no guarantee."""
        return not self.estimator.startswith("NonPrivate")

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters that a configuration may set, those of the recipe among them."""
        own = set(self._load()._get_param_names()) - _GIVEN - self.fixed.keys()
        return sorted(own - {"recipe"} | _RECIPE | {"network", "sampling_rate"})

    def build(
        self,
        budget: Budget | None,
        classes: Any,
        random_state: int,
        parameters: Mapping[str, Any],
        public: PublicData | None = None,
    ) -> Any:
        """Return the unfitted classifier of images, whose batch size `sized` sets."""
        if "network" not in parameters:
            raise ParameterError(
                "network must name a public network, as for dppl finetune."
            )
        rest = {name: one for name, one in parameters.items() if name not in _RECIPE}
        recipe = {name: parameters[name] for name in _RECIPE & parameters.keys()}
        module, head = on_pixels(rest.pop("network"))
        options = {
            "head": head,
            "sampling_rate": rest.pop("sampling_rate", 1.0),
            "recipe": Recipe(**recipe),
        }
        kind = self._load()
        if budget is None:
            budget = GaussianDP(NO_NOISE)
        of_samples = (
            issubclass(kind, lab.ControlFinetuner) and options["sampling_rate"] < 1
        )
        if of_samples and budget == GaussianDP(NO_NOISE):
            # Samples are accounted in (epsilon, delta), and not without noise.
            budget = ApproxDP(_LOOSE, USUAL_DELTA, allow_weak=True)
            if self.private:
                kind = lab.NonPrivateFinetuner
        if "options" in kind._get_param_names():
            options = {"options": options}
        given = {"random_state": random_state, **self.fixed, **options, **rest}
        return kind(module, budget, classes, **given)

    def sized(self, model: Any, n_records: float) -> Any:
        """Divide sums of gradients by what a batch holds; the size of evaluation data is public."""
        parameters: dict[str, Any] = model.get_params(deep=False)
        # Of an ensemble, those of each task.
        options = parameters.get("options", parameters)
        batch_size = options["sampling_rate"] * n_records
        recipe = replace(options["recipe"], batch_size=batch_size)
        if options is parameters:
            return model.set_params(recipe=recipe)
        return model.set_params(options={**options, "recipe": recipe})

    def public_rows(self, parameters: Mapping[str, Any]) -> str:
        """Return that no public rows are read: the network is what is public."""
        return "unused"

    def _load(self) -> Any:
        return getattr(lab, self.estimator)


def network_digest(uri: str) -> str:
    """Return a hash of a network's name, options and files: the same path may hold other weights tomorrow."""
    digest = sha256(without_folders(uri).encode())
    for part in re.split("[:@]", uri.partition("?")[0]):
        if Path(part).is_file():
            digest.update(Path(part).read_bytes())
    return digest.hexdigest()[:16]


def weights_of_uri(uri: str) -> Path:
    """Return the file of a network's weights."""
    return Path(uri.partition("?")[0].rpartition("@")[2])


def on_pixels(uri: str) -> tuple[Any, str]:
    """Return a network that takes images of shape (height, width, 3) in whole numbers, and the name of its head."""
    return _loaded(uri, network_digest(uri))


@cache
def _loaded(uri: str, digest: str) -> tuple[Any, str]:
    network = load_network(uri)
    module = _pixels(network.module, network.preprocessing)
    return module.eval(), f"network.{network.head}"


def new_on_pixels(uri: str) -> Any:
    """Return a network of code that takes such images, before its weights are loaded."""
    source = parse(uri, ("python",), FORMS, "network")
    model = python.made(source.name.rpartition("@")[0], source)
    return _pixels(model.module, model.preprocessing)


def _pixels(module: Any, prepared: Preprocessing) -> Any:
    torch = optional("torch", "torch", "torch")

    class Pixels(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.network = module
            self.size = prepared.size
            device = next(module.parameters()).device
            for name in ("mean", "std"):
                colours = torch.tensor(getattr(prepared, name), device=device)
                self.register_buffer(name, colours[:, None, None])

        def forward(self, images: Any) -> Any:
            # Images stay small on disk, and are as large as the network takes them only
            # while it sees them. Convolutions of torch 2.13 crash going backward where
            # colours are not apart in memory.
            rows = images.movedim(-1, -3).contiguous().to(self.mean) / 255
            size = (self.size, self.size)
            if rows.shape[-2:] != size:
                rows = torch.nn.functional.interpolate(
                    rows, size, mode="bicubic", antialias=True
                )
            return self.network((rows - self.mean) / self.std)

    return Pixels()
