from .coordinator import Federation as Federation
from .coordinator import InProcess as InProcess
from .merging import merge as merge
from .party import Party as Party
