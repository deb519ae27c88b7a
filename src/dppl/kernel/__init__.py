"""Where classifiers touch private values: queries, measurements, and the counter at which a method asks.

A *query* is an exact integer function of the records, together with the distance by which one record moves it. A
*measurement* is a query, its share of the budget and how often it may be asked. A method declares its measurements from
public values and learns by asking `Measure`, which answers with noise; it never sees a record.
"""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.kernel.measure import Measure, Measurement
    from dppl.kernel.persons import are_missing as are_missing
    from dppl.kernel.persons import checked_ids as checked_ids
    from dppl.kernel.persons import classes_of_persons as classes_of_persons
    from dppl.kernel.persons import ids_of_fit as ids_of_fit
    from dppl.kernel.persons import person_codes as person_codes
    from dppl.kernel.persons import texts_apart as texts_apart
    from dppl.kernel.records import Part as Part
    from dppl.kernel.records import Parted as Parted
    from dppl.kernel.records import once_each as once_each
    from dppl.kernel.records import pieces as pieces
    from dppl.kernel.records import private_data as private_data

__all__ = ["Measure", "Measurement"]

# What the rest of dppl takes of rooms that hold private values: ids and tables, and nothing that adds or draws.
_FACE = {
    "dppl.kernel.persons": (
        "are_missing",
        "checked_ids",
        "classes_of_persons",
        "ids_of_fit",
        "person_codes",
        "texts_apart",
    ),
    "dppl.kernel.records": ("Part", "Parted", "once_each", "pieces", "private_data"),
}

# Its floors import each other through this package, and a budget needs no array.
__getattr__, __dir__ = lazy(
    __name__,
    dict.fromkeys(__all__, "dppl.kernel.measure") | {name: home for home, names in _FACE.items() for name in names},
    ("lattice", "mechanisms", "privacy"),
)
