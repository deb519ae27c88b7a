"""A model of real embeddings, and each format in turn."""

import pytest

import dppl
from dppl import PublicData
from dppl.io import load_sample
from unit.export.readers import READERS


@pytest.fixture(scope="session")
def sample():
    """Return embeddings of real images."""
    return load_sample()


@pytest.fixture(scope="session")
def model(sample):
    """Return a model of them."""
    made = dppl.SoftmaxPrototypes(dppl.GaussianDP(1.0), classes=sample.classes)
    return made.set_params(public=PublicData(sample.X_public)).fit(sample.X, sample.y)


@pytest.fixture(params=READERS)
def reader(request):
    """Return what makes a predictor of a model, of one format after the other."""
    return READERS[request.param]
