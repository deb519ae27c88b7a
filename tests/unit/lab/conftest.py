"""The network and the images of the tests of training, for ensembles of networks."""

from unit.finetune.conftest import images, net

__all__ = ["images", "net"]
