"""The encoders of the DPPL papers (arXiv:2406.08039, section 4 and appendix B) by name.

The papers name architectures and the works that trained them, but neither files nor input sizes; what is chosen here,
and why, stands beside each, and in docs/encoders.md.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Preset:
    """A name for a URI."""

    uri: str
    place: str  # where the weights come from: an address, or a name on the Hugging Face hub
    licence: str  # of the weights
    dimension: int

    @property
    def weights(self) -> str:
        """Where the weights come from and under which licence, in a sentence."""
        place = self.place if "://" in self.place else f"https://huggingface.co/{self.place}"
        return f"The weights are at {place} ({self.licence})."


_USUAL = "interpolation=bicubic&mean=0.485,0.456,0.406&std=0.229,0.224,0.225"

PRESETS = {
    # SWAG (Singh et al., arXiv:2201.08371), trained on hashtags and fine-tuned end to end on ImageNet-1K, which the
    # papers say their encoders were trained on; at the input sizes of that fine-tuning, 384 and 518 pixels.
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
    # DINOv2 (Oquab et al., arXiv:2304.07193), trained on LVD-142M. The papers write ViT-L-16, but DINOv2 was only
    # released with patches of 14 pixels, so this is a ViT-L/14, at 224 pixels.
    "vit-l-16": Preset("hf:facebook/dinov2-large?pooling=cls", "facebook/dinov2-large", "Apache-2.0", 1024),
    # DINO (Caron et al., arXiv:2104.14294), trained on ImageNet-1K without labels, at 224 pixels.
    "resnet-50": Preset(
        f"timm:resnet50@dino_resnet50_pretrain.pth?size=224&crop_pct=0.875&{_USUAL}",
        "https://dl.fbaipublicfiles.com/dino/dino_resnet50_pretrain/dino_resnet50_pretrain.pth",
        "Apache-2.0",
        2048,
    ),
}
