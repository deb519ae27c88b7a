from .coordinator import Federation as Federation
from .coordinator import InProcess as InProcess
from .holder import Holder as Holder
from .merging import merge as merge
