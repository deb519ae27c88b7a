"""ResNet-18 with group normalisation (He et al. 2015; Luo et al. 2021, section 5.4), for 100 public classes."""

from typing import Any

from dppl._utils.optional import optional
from dppl.finetune.layers import to_group_norm

_WIDTHS = (64, 64, 64, 128, 128, 256, 256, 512, 512)


def for_cifar() -> Any:
    """Return it for images of 32 x 32: the first convolution keeps their size."""
    nn = optional("torch.nn", "torch", "torch")
    return _resnet18(nn, _convolution(nn, 3, 64, 3))


def for_photos() -> Any:
    """Return it for larger images, such as the 84 x 84 of miniImageNet."""
    nn = optional("torch.nn", "torch", "torch")
    first = _convolution(nn, 3, 64, 7, stride=2)
    first.append(nn.MaxPool2d(3, 2, padding=1))
    return _resnet18(nn, first)


def _convolution(nn: Any, inputs: int, outputs: int, size: int, stride: int = 1) -> Any:
    margin = size // 2
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, margin, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def _resnet18(nn: Any, first: Any) -> Any:
    class Residual(nn.Module):  # type: ignore[misc]
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            stride = outputs // inputs
            last = _convolution(nn, outputs, outputs, 3)[:-1]
            self.long = _convolution(nn, inputs, outputs, 3, stride)
            self.long.append(last)
            self.short = nn.Identity()
            if stride > 1:
                self.short = _convolution(nn, inputs, outputs, 1, stride)[:-1]
            self.last = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.last(self.long(x) + self.short(x))

    module = nn.Sequential(
        first,
        *map(Residual, _WIDTHS, _WIDTHS[1:]),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(_WIDTHS[-1], 100),
    )
    return to_group_norm(module)
