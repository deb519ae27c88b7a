from .files import TARGETS as TARGETS
from .files import save as save
from .files import to_hub as to_hub
from .onnx import to_onnx as to_onnx
from .torch import to_torch as to_torch
