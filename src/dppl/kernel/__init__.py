"""Where classifiers touch private values: queries, measurements, and the counter at which a method asks.

A *query* is an exact integer function of the records, with the distance by which one record moves it. A
*measurement* is a query, its share of the budget and how often it may be asked. A method declares its measurements from
public values and learns by asking `Measure`, which answers with noise; it never sees a record.
"""

from typing import TYPE_CHECKING

from dppl._lazy import lazy

if TYPE_CHECKING:
    from dppl.kernel.measure import Measure, Measurement

__all__ = ["Measure", "Measurement"]

# Its floors import each other through this package, and a budget needs no array.
__getattr__, __dir__ = lazy(
    __name__, dict.fromkeys(__all__, "dppl.kernel.measure"), ("lattice", "mechanisms", "privacy")
)
