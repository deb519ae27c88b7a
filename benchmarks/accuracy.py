"""Balanced test accuracy of the prototypes on a folder of evaluation embeddings, over budgets and seeds.

    python benchmarks/accuracy.py FOLDER [--public FILE.npy] [--ir 1] [--seeds 5] [--e 0.1,0.25,1]

FOLDER holds train_x.npy, train_y.npy, test_x.npy and test_y.npy. e is sqrt(2·rho), the x-axis of the DPPL papers.
"""

import argparse
from functools import partial
from pathlib import Path

import numpy as np

from dppl import ZCDP, MeanPrototypes, PublicPrototypes
from dppl.data import long_tailed
from dppl.experiments.metrics import balanced_accuracy

METHODS = {
    "mean, add-remove": MeanPrototypes,
    "mean, replace-one (published)": partial(MeanPrototypes, adjacency="replace-one"),
    "coinpress (published)": partial(MeanPrototypes, adjacency="replace-one", mechanism="coinpress"),
    "public": PublicPrototypes,
    "public top-5": partial(PublicPrototypes, n_prototypes=5),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--public", type=Path, help="public embeddings; without them PublicPrototypes is left out")
    parser.add_argument("--ir", type=float, help="imbalance ratio; default: class sizes as they are")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--e", default="0.05,0.1,0.25,1,8")
    options = parser.parse_args()
    X, y, X_test, y_test = (np.load(options.folder / f"{n}.npy") for n in ("train_x", "train_y", "test_x", "test_y"))
    public = None if options.public is None else np.load(options.public, mmap_mode="r")
    classes = np.unique(y_test)
    print(f"{'e':32}", *(f"{e:>13}" for e in options.e.split(",")))
    for name, build in METHODS.items():
        if public is None and name.startswith("public"):
            continue
        cells = []
        for e in map(float, options.e.split(",")):
            scores = []
            for seed in range(options.seeds):
                rows = np.arange(len(y)) if options.ir is None else long_tailed(y, options.ir, seed)
                model = build(ZCDP.from_paper_epsilon(e), classes=classes, random_state=seed)
                model.fit(X[rows], y[rows], X_public=public)
                scores.append(balanced_accuracy(y_test, model.predict(X_test), classes))
            cells.append(f"{np.mean(scores):.3f} ±{np.std(scores):.3f}")
        print(f"{name:32}", *(f"{cell:>13}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
