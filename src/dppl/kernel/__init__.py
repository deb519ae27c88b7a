"""Where classifiers touch private values: queries, measurements, and `Measure`, which answers them.

A *query* is an exact integer function of the records, with a bound on its sensitivity.
A *measurement* is a query, its share of the budget and how often it may be asked. A
method declares its measurements from public values and learns by asking `Measure`,
which answers with noise; it never sees a record.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
