from .onnx_graph import to_onnx as to_onnx
from .torch_module import to_torch as to_torch
from .write import TARGETS as TARGETS
from .write import save as save
from .write import to_hub as to_hub
