"""`dppl pretrain`: public training of a network on public images, for `dppl finetune` and comparisons."""

from pathlib import Path

from dppl._utils.progress import progress
from dppl.cli._output import console
from dppl.cli._request import argument, flag, option, request
from dppl.errors import ParameterError


@request()
class Pretrain:
    r"""Train a public network on public images, and write its weights; nothing of it is private.

    By default the recipe is that of Luo et al. (CVPR 2021): 200 epochs of SGD in
    batches of 128, with momentum 0.9, weight decay 0.0001 and a rate that falls
    from 0.1 as a cosine. The network should have group normalisation
    (dppl.finetune.to_group_norm), as dppl.lab.resnet:for_cifar does, and one
    output for each class. Needs torch.

    After an interruption the same command goes on with the epoch that was
    interrupted, from FILE.work, and ends with the same weights.

    For example:

      dppl pretrain photos/ --out net.safetensors \
        --network "python:net.py:make?size=32"
    """

    images: Path = argument(
        "IMAGES",
        "Folder with a subfolder of images for each class, or digits: those of scikit-learn.",
    )
    network: str = option(
        "URI",
        "python:MODULE:FUNCTION?size=32&mean=0.5,0.5,0.5&std=0.5,0.5,0.5, as of dppl finetune, without weights.",
    )
    out: Path = option("PATH", "A .safetensors file for the weights.")
    epochs: int = option("N", "Passes over the images.", 200, min=1)
    batch_size: int = option("N", "Images in a step.", 128, min=1)
    learning_rate: float = option("X", "Rate of the first steps.", 0.1)
    augment: bool = flag("Flip images, and move them by up to an eighth of their side.")
    seed: int = option("N", "Of the first weights and of the order.", 0, min=0)
    overwrite: bool = flag("Replace PATH if it exists.")

    def run(self) -> None:
        """Read the images, and train."""
        import numpy as np

        from dppl.lab.experiments.image_sets import read_folder
        from dppl.lab.pretraining import PublicRecipe, pretrain

        if self.out.exists() and not self.overwrite:
            raise FileExistsError(f"{self.out} exists; --overwrite replaces it.")
        if not self.out.absolute().parent.is_dir():
            raise ParameterError("must be in an existing folder.", parameter="out")
        recipe = PublicRecipe(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            augment=self.augment,
            seed=self.seed,
        )
        images, labels = read_folder(self.images, self.network)
        classes, codes = np.unique(labels, return_inverse=True)
        with progress("training", self.epochs) as advance:
            pretrain(self.network, images, codes, recipe, self.out, lambda _: advance())
        console().print(
            f"{len(images)} images of {len(classes)} classes, {self.epochs} epochs. Weights: {self.out}",
            soft_wrap=True,
        )
