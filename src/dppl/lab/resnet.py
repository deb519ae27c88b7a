"""ResNet-18 with group normalisation (He et al. 2015; Luo et al. 2021, section 5.4), for 100 public classes."""

from typing import Any

from dppl._utils.optional import optional
from dppl.finetune.layers import to_group_norm


def for_cifar() -> Any:
    """Return it for images of 32 x 32: the first convolution keeps their size."""
    nn = optional("torch.nn", "torch", "torch")
    return _resnet18(nn, nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity())


def for_photos() -> Any:
    """Return it for larger images, such as the 84 x 84 of miniImageNet."""
    nn = optional("torch.nn", "torch", "torch")
    return _resnet18(
        nn, nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.MaxPool2d(3, 2, padding=1)
    )


def _resnet18(nn: Any, first: Any, pool: Any) -> Any:
    class Residual(nn.Module):  # type: ignore[misc]
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            stride = outputs // inputs
            self.long = nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
                nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )
            self.short = nn.Identity()
            if stride > 1:
                self.short = nn.Sequential(
                    nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                    nn.BatchNorm2d(outputs),
                )
            self.last = nn.ReLU()

        def forward(self, x: Any) -> Any:
            return self.last(self.long(x) + self.short(x))

    blocks = [
        block
        for inputs, outputs in ((64, 64), (64, 128), (128, 256), (256, 512))
        for block in (Residual(inputs, outputs), Residual(outputs, outputs))
    ]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100))
    return to_group_norm(
        nn.Sequential(first, nn.BatchNorm2d(64), nn.ReLU(), pool, *blocks, *head)
    )
