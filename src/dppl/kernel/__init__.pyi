from . import lattice as lattice
from . import mechanisms as mechanisms
from . import privacy as privacy
from .measure import Measure as Measure
from .measure import Measurement as Measurement
