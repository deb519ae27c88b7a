from .discriminant import ContinualDiscriminant as ContinualDiscriminant
from .ensemble import ContinualEnsemble as ContinualEnsemble
from .prototypes import ContinualPrototypes as ContinualPrototypes
from .prototypes import recover as recover
