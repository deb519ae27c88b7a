"""What scikit-learn asks of an estimator. It is imported when it asks: its import takes longer than a small fit."""

import inspect
import reprlib
from functools import cache
from typing import Any, Self

from dppl.errors import InputError
from dppl.methods.parameters import same_value

_VALUES = reprlib.Repr()
_VALUES.maxother = _VALUES.maxstring = _VALUES.maxlong = 200


class ScikitEstimator:
    """A classifier for scikit-learn's tools: its parameters are what its constructor takes."""

    _estimator_type = "classifier"

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted(inspect.signature(cls).parameters)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; with `deep` also what a nested estimator takes, as ``name__other``."""
        given = {name: getattr(self, name) for name in self._get_param_names()}
        found = dict(given)
        for name, value in given.items():
            if deep and hasattr(value, "get_params"):
                for key, one in value.get_params().items():
                    found.setdefault(f"{name}__{key}", one)
        return found

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name."""
        known = self._get_param_names()
        for name, value in params.items():
            owner, _, inner = name.partition("__")
            if owner not in known:
                raise ValueError(
                    f"Invalid parameter {owner!r} for {type(self).__name__}. Valid are: {known}."
                )
            if inner:
                getattr(self, owner).set_params(**{inner: value})
            else:
                setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        usual = inspect.signature(type(self)).parameters
        given = {name: getattr(self, name) for name in usual}
        changed = {
            name: value
            for name, value in given.items()
            if not same_value(value, usual[name].default)
        }
        return f"{type(self).__name__}({', '.join(f'{name}={_VALUES.repr(one)}' for name, one in changed.items())})"

    def _repr_html_(self) -> str | None:
        from sklearn import get_config
        from sklearn.utils import estimator_html_repr

        if get_config()["display"] == "diagram":
            return str(estimator_html_repr(self))
        return None

    def __sklearn_tags__(self) -> Any:
        from sklearn.base import BaseEstimator, ClassifierMixin

        return type("", (ClassifierMixin, BaseEstimator), {})().__sklearn_tags__()

    def __getattr__(self, name: str) -> Any:
        """Look up the methods by which scikit-learn routes arguments to fits, such as `set_fit_request`."""
        if "metadata" in name or name.endswith("_request"):
            own: Any = type(self)
            kind = _inheriting(own)
            return inspect.getattr_static(kind, name).__get__(self, kind)
        raise AttributeError(
            f"{type(self).__name__!r} object has no attribute {name!r}",
            name=name,
            obj=self,
        )


@cache
def _inheriting(kind: type) -> Any:
    """Return a class that inherits from scikit-learn's as well."""
    from sklearn.base import BaseEstimator

    return type(kind.__name__, (kind, BaseEstimator), {})


def check_fitted(model: Any, name: str) -> None:
    """Raise scikit-learn's error unless a model has what a fit sets."""
    if not hasattr(model, name):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(
            f"This {type(model).__name__} instance is not fitted yet. Call 'fit' with appropriate arguments before "
            "using this estimator."
        )


def names_of_features(X: Any) -> dict[str, Any]:
    """Return the attributes that a fit on a frame has, which hold the names of its columns."""
    if not _is_frame(X):
        return {}
    from sklearn.base import BaseEstimator
    from sklearn.utils.validation import validate_data

    described = BaseEstimator()
    validate_data(described, X, skip_check_array=True, ensure_2d=False)
    return dict(vars(described))


def check_features(model: Any, X: Any, n_features: int) -> None:
    """Raise scikit-learn's words, or warn, if rows differ in width, or names of columns, from the rows of the fit."""
    if (
        n_features != model.n_features_in_
        or _is_frame(X)
        or hasattr(model, "feature_names_in_")
    ):
        from sklearn.utils.validation import validate_data

        try:
            validate_data(model, X, reset=False, skip_check_array=True)
        except ValueError as error:  # which says widths and names of columns
            raise InputError(str(error)) from None


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns") or hasattr(X, "__dataframe__")
