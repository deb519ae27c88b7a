"""DPPL-Public with sets of rows as DPPL-v1 publishes their law."""

from dppl.kernel import Measurement
from dppl.lab.published_topk import PublishedSelection
from dppl.methods.fit_plan import Setting
from dppl.methods.parameters import Count, parameters
from dppl.methods.public import PublicPrototypes


@parameters
class PublishedTopK(PublicPrototypes):
    r"""`PublicPrototypes` with the law of sets that DPPL-v1 publishes, whose ranks cost more than its epsilon.

    The worst member of a set is drawn with weight binom(y, K)·exp(ε·u_y/2Δ), y being
    its rank among all public rows from 1. So the set's weight grows with this rank,
    which one record may change from the last to K. A budget must pay for that first:
    of its epsilon, 2·log(n/K) for n public rows. What is left is half of the published
    ε, which the statement gives.

    Parameters
    ----------
    n_prototypes : int, default=5
        Rows per class (K).

    Notes
    -----
    **Privacy.** Unit: one record. Relation: add or remove one record (or replace one).
    Released: `public_indices_`. Sensitivity: as of `PublicPrototypes`; that ε/2 +
    2·log(n/K) bounds what one record changes in the odds of two sets is proved in
    `dppl.lab.published_topk.PublishedLaw`. In pure DP alone ε/2 + log(n/K) would be
    enough. Public inputs: `classes`, `public`, all parameters, `n_features`. Not
    covered: choice of parameters by private data, timing, a changed label under
    add/remove (two steps).

    References
    ----------
    .. [1] Wahdany, Jagielski, Dziedzic, Boenisch, DPPL-v1 (arXiv:2406.08039), appendix
    C.3, equations (5) and (6). The released code counts ranks from 0, which has no
    finite epsilon.
    """

    n_prototypes: Count = 5

    def measurements(self, setting: Setting) -> dict[str, Measurement]:
        """Declare the selection."""
        public = setting.public.rows
        assert public is not None  # prepare refused that
        selection = PublishedSelection(
            setting.lattice,
            setting.n_classes,
            self.n_prototypes,
            setting.prepared,
            public.shape[0],
        )
        return {"rows": Measurement(selection)}
