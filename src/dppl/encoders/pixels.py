"""Images to arrays, with Pillow and NumPy only, and batches of them. `pixels` is an encoder of nothing else."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dppl._utils import validate
from dppl._utils.optional import optional
from dppl._utils.types import Array, Float32
from dppl.encoders.fixed import Adapter
from dppl.encoders.frozen import FrozenModel, tensors_digest
from dppl.encoders.load import EncoderUri
from dppl.errors import ParameterError

_MOST_ASPECT = 8  # beyond, the middle is cut out first: a thread of one pixel would be enlarged to gigabytes
_FORMS = (
    (16, 128),
    (128, 16),
    (96, 64),
    (64, 1),
)  # width and height of patterns that are not square


@dataclass(frozen=True, slots=True)
class Preprocessing:
    """Resize, cut out the centre, normalise: what torchvision's transforms of that name do to an image of Pillow."""

    size: int  # side of the square that the model sees, in pixels
    crop_pct: float = 1.0  # that side as a part of the resized image's shorter side
    crop_mode: str = "center"  # whether to keep the aspect ratio
    interpolation: str = "bicubic"  # a resampling filter of Pillow, such as ``"bicubic"``; always with antialiasing
    mean: tuple[float, ...] = (
        0.0,
        0.0,
        0.0,
    )  # mean, std: of the three colours, which are in [0, 1]
    std: tuple[float, ...] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        filters = [
            one.name.lower()
            for one in optional("PIL.Image", "pillow", "images").Resampling
        ]
        validate.one_of(filters, interpolation=self.interpolation)
        validate.one_of(("center", "squash"), crop_mode=self.crop_mode)
        validate.positive_integer(size=self.size)
        validate.positive(crop_pct=self.crop_pct)
        if not self.crop_pct <= 1 or not len(self.mean) == len(self.std) == 3:
            raise ParameterError(
                "crop_pct must be at most 1, and mean and std hold three numbers each."
            )

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Preprocessing:
        """Read it from a mapping whose values are numbers, sequences, or text as in a URI."""
        try:
            return cls(
                **{
                    name: read(values[name])
                    for name, read in _READERS.items()
                    if name in values
                }
            )
        except (TypeError, KeyError, ValueError) as error:
            raise ParameterError(
                f"this is not a preprocessing of images: {error}"
            ) from None

    def __call__(self, image: Any) -> Float32:
        """Return the input for one RGB image of Pillow, shape (3, size, size)."""
        side = self._side
        shorter = min(image.size)
        if max(image.size) > _MOST_ASPECT * shorter:
            image = _centre(
                image,
                tuple(min(length, _MOST_ASPECT * shorter) for length in image.size),
            )
        width, height = (
            (side * length // shorter) if self.crop_mode == "center" else side
            for length in image.size
        )
        resample = optional("PIL.Image", "pillow", "images").Resampling[
            self.interpolation.upper()
        ]
        image = _centre(image.resize((width, height), resample), (self.size, self.size))
        pixels = np.asarray(image, np.float32).transpose(2, 0, 1) / np.float32(255)
        mean, std = (
            np.array(values, np.float32)[:, None, None]
            for values in (self.mean, self.std)
        )
        normalised: Float32 = (pixels - mean) / std
        return normalised

    def __str__(self) -> str:
        return (
            f"{self.interpolation}, {self.crop_mode} crop {self.size} of {self._side}, "
            f"mean {','.join(map(str, self.mean))}, std {','.join(map(str, self.std))}"
        )

    @property
    def _side(self) -> int:
        return int(self.size / self.crop_pct)


def _centre(image: Any, size: tuple[int, ...]) -> Any:
    left, top = (
        round((length - kept) / 2)
        for length, kept in zip(image.size, size, strict=True)
    )
    return image.crop((left, top, left + size[0], top + size[1]))


def _numbers(values: Any) -> tuple[float, ...]:
    return tuple(
        float(value)
        for value in (values.split(",") if isinstance(values, str) else values)
    )


_READERS: dict[str, Callable[[Any], Any]] = {
    "size": int,
    "crop_pct": float,
    "crop_mode": str,
    "interpolation": str,
    "mean": _numbers,
    "std": _numbers,
}
OPTIONS = tuple(_READERS)


@dataclass(kw_only=True)
class ImageAdapter(Adapter):
    """Batches of images, which all become inputs of one shape."""

    modality: ClassVar[str] = "image"
    _form: tuple[Any, ...] = field(init=False)

    def __post_init__(self) -> None:
        prepare = self.prepare
        self._form = _form(prepare(pattern(0)))
        forms = {self._form}
        for size in _FORMS:
            with suppress(
                Exception
            ):  # an image that cannot be prepared is skipped, whatever its form
                forms.add(_form(prepare(pattern(0, *size))))
        if len(forms) > 1:
            raise ParameterError(
                "the preprocessing makes inputs of different shapes of images that are not square; set do_center_crop "
                "and a crop_size, or a size of height and width, in preprocessor_config.json."
            )

        def checked(image: Any) -> Any:
            prepared = prepare(image)
            if _form(prepared) != self._form:
                raise ValueError(
                    "the image becomes an input of another shape than others."
                )
            return prepared

        self.prepare = checked

    def shape_of(self, prepared: Any) -> Hashable:
        """Return the shape of an input."""
        return tuple(prepared.shape)

    def shapes(self) -> Sequence[Hashable]:
        """Return the one shape."""
        return [self._form[0]]

    def synthetic(self, shape: Any, count: int) -> list[Any]:
        """Return inputs made of patterns, in the middle one that is almost black."""
        return [self.prepare(pattern(place - count // 2)) for place in range(count)]

    def forward(self, inputs: Sequence[Any], shape: Any) -> Float32:
        """Embed a full batch."""
        return self.compute({"pixel_values": np.stack(inputs)})


def _form(prepared: Array) -> tuple[Any, ...]:
    return prepared.shape, prepared.dtype


def pattern(seed: int, width: int = 64, height: int = 64) -> Any:
    """Return a synthetic RGB image."""
    x, y, colour = np.ogrid[:height, :width, :3]
    values = (
        x * (3 + seed % 11)
        + y * (5 + seed % 7)
        + (x * y * (colour + 1)) // 7
        + 31 * seed
    )
    values = values % 256 // (1 + seed % 4)  # bright and dark ones
    if seed % 4 == 0:  # and ones that are almost black, or almost white
        if seed % 8 == 0:
            values = values // 16
        else:
            values = 255 - values // 16
    return optional("PIL.Image", "pillow", "images").fromarray(values.astype(np.uint8))


class ImageModel(NamedTuple):
    """A public module of torch for images, as timm and Python code make them."""

    library: str  # this and `versions` are as in `Fingerprint`
    versions: str
    module: Any
    description: str  # of the architecture
    preprocessing: Preprocessing

    def adapter(self, pooling: str, device: str, precision: str) -> ImageAdapter:
        """Freeze the module, whose output is the embedding."""
        torch = optional("torch", "torch", "torch")
        frozen = FrozenModel(
            torch, self.module, lambda own, x: own(x["pixel_values"]), device, precision
        )
        return ImageAdapter(
            library=self.library,
            weights=tensors_digest(self.description, frozen.model.state_dict().items()),
            preprocessing=str(self.preprocessing),
            pooling=pooling,
            versions=self.versions,
            prepare=self.preprocessing,
            **frozen.arguments(on_cpu=8),
        )


def load(source: EncoderUri, device: str, precision: str) -> ImageAdapter:
    """Return `pixels`, for the sample and for tests; it computes on the CPU in float32 whatever is asked for.

    It gives the grey values of a 16 x 16 thumbnail and the colours of a 4 x 4 one,
    moved to be around 0: 304 numbers.
    """
    source.check(())
    box = optional("PIL.Image", "pillow", "images").Resampling.BOX

    def thumbnails(image: Any) -> Float32:
        parts = (image.convert("L").resize((16, 16), box), image.resize((4, 4), box))
        pixels = np.concatenate(
            [np.asarray(part, np.float32).reshape(-1) for part in parts]
        )
        return np.asarray(pixels / 255 - 0.5, np.float32)

    return ImageAdapter(
        library="pillow",
        weights="none",
        preprocessing="grey box 16 x 16, RGB box 4 x 4, value / 255 - 0.5",
        pooling="none",
        versions=f"pillow {optional('PIL', 'pillow', 'images').__version__}",
        prepare=thumbnails,
        compute=lambda arrays: arrays["pixel_values"],
        batch_rows=64,
    )
