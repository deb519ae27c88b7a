"""``timm:NAME[@CHECKPOINT]``: image models of timm (PyTorch Image Models), the features before the classifier.

The weights belong to the tag in NAME from the cache of the Hugging Face hub, or to
CHECKPOINT: a file, or the name of one in the folder where torch.hub keeps its
downloads. A checkpoint must fill every parameter of the model; what it has beyond that
(a classifier) is skipped. Checkpoints of torchvision's vision transformers are
understood too.

Options ``size``, ``crop_pct``, ``crop_mode``, ``interpolation``, ``mean`` and ``std``
replace those that timm has for NAME; ``size`` also builds a model with a fixed input
for that size.
"""

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dppl._utils.optional import optional
from dppl.encoders.frozen import load_torch
from dppl.encoders.load import EncoderUri
from dppl.encoders.pixels import OPTIONS, ImageAdapter, ImageModel, Preprocessing
from dppl.errors import InputError, ParameterError

# Names of a vision transformer's parameters in torchvision, and in timm.
_TORCHVISION = (
    (r"^class_token$", "cls_token"),
    (r"^conv_proj\.", "patch_embed.proj."),
    (r"^encoder\.pos_embedding$", "pos_embed"),
    (r"^encoder\.ln\.", "norm."),
    (r"^encoder\.layers\.encoder_layer_(\d+)\.", r"blocks.\1."),
    (r"\.ln_([12])\.", r".norm\1."),
    (r"\.self_attention\.in_proj_", ".attn.qkv."),
    (r"\.self_attention\.out_proj\.", ".attn.proj."),
    (r"\.mlp\.(?:linear_1|0)\.", ".mlp.fc1."),
    (r"\.mlp\.(?:linear_2|3)\.", ".mlp.fc2."),
)


def load(source: EncoderUri, device: str, precision: str) -> ImageAdapter:
    """Load a model without its classifier."""
    model = build(source)
    return model.adapter(
        f"timm's for {model.description.partition(' ')[0]}", device, precision
    )


def build(source: EncoderUri) -> ImageModel:
    """Return a model without its classifier."""
    source.check(OPTIONS)
    torch = load_torch("vision")
    timm = optional("timm", "timm", "vision")
    name, _, checkpoint = source.name.partition("@")
    if not timm.is_model(name.partition(".")[0]):
        raise ParameterError(
            f"timm has no model {name!r}; timm.list_models() names those it has."
        )
    config = timm.get_pretrained_cfg(name).to_dict()
    if checkpoint:
        weights = _file(torch, checkpoint)
    else:
        weights = _cached(config, name)
    usual_side = config["input_size"][-1]
    side = source.number("size", usual_side)
    if config["fixed_input_size"] and side != usual_side:
        size = {"img_size": side}
    else:
        size = {}
    model = timm.create_model(name, pretrained=False, num_classes=0, **size)
    _fill(timm, model, weights)
    usual = {option: config[option] for option in OPTIONS if option in config}
    preprocessing = Preprocessing.of({**usual, **source.options, "size": side})
    versions = f"timm {timm.__version__}, torch {torch.__version__}"
    return ImageModel(
        "timm", versions, model, f"{name.partition('.')[0]} {size}", preprocessing
    )


def _file(torch: Any, checkpoint: str) -> Path:
    downloads = Path(torch.hub.get_dir()) / "checkpoints"
    for path in (Path(checkpoint), downloads / checkpoint):
        if path.is_file():
            return path
    raise InputError(
        f"there is no file {checkpoint}, neither here nor in {downloads}; download it and put it there."
    )


def _cached(config: Mapping[str, Any], name: str) -> Path:
    hub = optional("huggingface_hub", "huggingface-hub", "vision")
    repository = config.get("hf_hub_id")
    if not repository:
        raise InputError(
            f"timm has no weights for {name}; name a file of weights: timm:{name}@CHECKPOINT."
        )
    for file in (
        config.get("hf_hub_filename"),
        "model.safetensors",
        "pytorch_model.bin",
    ):
        if file and isinstance(
            path := hub.try_to_load_from_cache(repository, file), str
        ):
            return Path(path)
    raise InputError(
        f"the weights of timm:{name} are not on this machine, and dppl downloads nothing. `hf download {repository}` "
        f"puts them into {hub.constants.HF_HUB_CACHE} (HF_HOME names another place); or name a file of weights: "
        f"timm:{name}@CHECKPOINT."
    )


def _fill(timm: Any, model: Any, path: Path) -> None:
    """Load a checkpoint and see that no parameter was left at its random start."""
    try:
        state = timm.models.load_state_dict(
            str(path), weights_only=True
        )  # a pickle runs no code
        if "conv_proj.weight" in state:
            for pattern, replacement in _TORCHVISION:
                state = {
                    re.sub(pattern, replacement, key): value
                    for key, value in state.items()
                }
        convert = getattr(
            sys.modules[type(model).__module__], "checkpoint_filter_fn", None
        )
        missing = model.load_state_dict(
            convert(state, model) if convert else state, strict=False
        ).missing_keys
    except Exception as error:  # pickle, safetensors and torch have their own errors for something else
        raise InputError(
            f"{path} holds no weights for this model: {str(error).splitlines()[0]}"
        ) from None
    if missing:
        raise InputError(
            f"{path} holds no weights for this model: {missing[0]} and {len(missing) - 1} more miss."
        )
