"""When training the weights of a network beats a classifier on its features: a rule of public numbers."""

from dppl.kernel.privacy import Budget

# Records of a class times mu from which training weights of a network of images gained
# (docs/finetune.md).
WORTH_TRAINING = 100


def is_worth_training(budget: Budget, n_classes: int, n_records: float) -> bool:
    """Whether weights of a network of images are worth training, by what docs/finetune.md measured.

    Where they are not, `SoftmaxPrototypes` on features of the public network is better.

    Parameters
    ----------
    budget : GaussianDP, ZCDP or ApproxDP
        What the training may spend.
    n_classes : int
        Number of classes.
    n_records : float
        A guess of the number of records.

    Notes
    -----
    **Privacy.** Unit: none. Relation: none. Released: nothing. Sensitivity: none, as no
    private record is read. Public inputs: all. Not covered: a number that was counted
    in private records; guess it.
    """
    strength = n_records / n_classes * budget.gaussian_allowance().mu
    return strength >= WORTH_TRAINING
