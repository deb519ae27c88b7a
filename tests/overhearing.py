"""What Gaussian mechanisms release: all that a fit lets out of its records, before any post-processing."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from dppl.kernel.mechanisms import RoundedGaussian, SymmetricRoundedGaussian


@contextmanager
def overheard() -> Iterator[list]:
    """Collect what is released inside the block, each with its mechanism.

    A search makes many fits of which it publishes one: what is heard of it must stay
    secret.
    """
    heard = []

    def keeping(release):
        def kept(self, exact, source):
            heard.append((self, release(self, exact, source)))
            return heard[-1][1]

        return kept

    with ExitStack() as stack:
        for kind in (RoundedGaussian, SymmetricRoundedGaussian):
            stack.enter_context(patch.object(kind, "release", keeping(kind.release)))
        yield heard
