"""The report of an audit, which contains numbers, a headline, a verdict and advice."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import metrics
from fastcos.auditing.audit_records import (
    BALANCED,
    BALANCED_BY_COUNTS,
    CENTERED,
    NOISE_BALANCED,
    RANKING,
    LabelRecovery,
    RobustnessPoint,
    VariantScores,
    variants_table,
)
from fastcos.metrics.label_permutation import LabelTest
from fastcos.reports import MAX_ROWS, Estimate, Figure, Record, Section, Table, as_table
from fastcos.validation import Floats

# The bar chart of the dimensions shows at most MAX_BARS bars, so that it fits a narrow screen.
MAX_BARS = 64
# If training has determined the rescaling D, a sentence of the verdict ends with this clause.
_NOT_FREE = (
    "the report shows only how sensitive the neighbours are to the scale of the dimensions; it "
    "does not show that the neighbours are arbitrary."
)
# Each key is the name of a form in which users and items have the same Gram matrix. Each value
# contains two texts. The first text describes the form. The second text names kinds of training
# that lead close to this form even without weight decay.
_BALANCED_FORMS = {
    BALANCED: (
        "users and items have the same Gram matrix",
        "both gradient descent from small initial factors and stochastic gradient descent over "
        "many epochs",
    ),
    BALANCED_BY_COUNTS: (
        "users and items have the same weighted Gram matrix; the weight of a row is its number of "
        "interactions",
        "many epochs of stochastic gradient descent",
    ),
    NOISE_BALANCED: (
        "users and items have the same weighted Gram matrix; the weight of a row is computed from "
        "its gradient noise and its weight decay",
        "many epochs of stochastic gradient descent",
    ),
}


@as_table
@dataclass(frozen=True)
class Audit(Record):
    """The report of :func:`fastcos.audit`: how much the cosines depend on the parametrisation.

    Attributes
    ----------
    n_items, n_dimensions, k : int
        Number of items, number of latent dimensions, and number of neighbours per item.
    condition : float
        The verdict refers to the rescalings D up to this condition number.
    n_zero : int
        Number of items whose row is zero. A zero row has no direction, so it is left out.
    n_duplicates : int
        Number of items whose row equals the row of an earlier item. Duplicates are not left out of
        the neighbour lists. If the cosines of duplicates are equal, a neighbour list contains them
        in ascending order of their indices.
    n_sampled : int
        Number of sampled items for which certificates and attacks under rescalings were computed.
    n_listed : int
        Number of sampled items for which the neighbour list in the audited embeddings was compared
        with the lists in other parametrisations.
    trained_on : {"dot", "ranking", "cosine", "unknown"}
        The argument ``trained_on`` of :func:`fastcos.audit`.
    weight_decay_on : {"both", "not both", "unknown"}
        The argument ``weight_decay_on`` of :func:`fastcos.audit`.
    equal_norms : bool
        Whether all items have the same norm, as after training on the cosine.
    parametrization : str or None
        Name of the entry of ``parametrizations`` that has nearly the same cosines as the audited
        factors. The attribute is None if there is no such entry, or if there is only one dimension.
    epochs_to_forget : float or None
        Predicted number of further epochs of stochastic gradient descent. After this number of
        epochs, the distance between the factors and the converged factors will be 1/e of the
        current distance. ``epochs_to_forget`` is None unless ``gradient_noise`` was passed to the
        audit. The distance is the logarithm of the condition number of the map from the audited
        factors to the converged factors.
    sensitivity : float
        Sensitivity index, from 0 to 1. Each sampled item forms a pair with each of its neighbours,
        and the index is the mean of :func:`fastcos.auditing.tv_index` over these pairs. Let z =
        artanh(cosine) be Fisher's z of a pair. To first order, a rescaling with the condition
        number κ changes z by at most ln κ times the ``tv_index`` of the pair.
    random_basis_sensitivity : float
        Sensitivity index after the sampled items have been rotated to a random orthogonal basis, as
        a mean over several such bases. Compare ``sensitivity`` with this value.
    dimension_shares : ndarray (d,)
        Contribution of each latent dimension to the sensitivity index, as a share; the shares sum
        to 1.
    robustness : tuple of RobustnessPoint
        One point per condition number, in ascending order. Each point contains bounds on the share
        of neighbours that stay among the k nearest under rescalings and under linear maps.
    given : VariantScores
        Statistics of the audited embeddings themselves.
    parametrizations : tuple of VariantScores
        Each entry compares the audited embeddings with the items of one other parametrisation of
        the model. All parametrisations of a model make the same predictions. If ``trained_on`` is
        "ranking", the last entry of ``parametrizations`` is "centered". The entry "centered"
        compares the audited items with the centred items, from which the mean of all items has been
        subtracted. Subtracting the mean of all items does not change a ranking loss.
    invariant_baselines : tuple of VariantScores
        Comparisons of the audited embeddings with similarities that do not depend on the
        parametrisation of the model.
    label_test : LabelTest or None
        Test of whether the audited cosines recover the labels; None if no labels were passed.
    label_recovery : LabelRecovery or None
        Range of the AUC under rescalings, which shows how well cosines recover the labels; None if
        no labels were passed.
    hubness : metrics.Hubness
        Statistics of the number of neighbour lists that contain each item.
    popularity : metrics.PopularityBias or None
        Correlations of popularity with norms, cosines and neighbour lists; None if no popularity
        was passed.
    mean_cosine, effective_rank : float
        Mean cosine of all pairs of items, and effective rank of the items.
    isoscore : float or None
        IsoScore of the items, which is 1 if they are isotropic; None if there is only one
        dimension.
    first_axis_share : float or None
        Share of the variance along the first principal axis; None if all items are equal.
    """

    n_items: int
    n_dimensions: int
    k: int
    condition: float
    n_zero: int
    n_duplicates: int
    n_sampled: int
    n_listed: int
    trained_on: str
    weight_decay_on: str
    equal_norms: bool
    parametrization: str | None
    epochs_to_forget: float | None
    sensitivity: float
    random_basis_sensitivity: float
    dimension_shares: Floats
    robustness: tuple[RobustnessPoint, ...]
    given: VariantScores
    parametrizations: tuple[VariantScores, ...]
    invariant_baselines: tuple[VariantScores, ...]
    label_test: LabelTest | None
    label_recovery: LabelRecovery | None
    hubness: metrics.Hubness
    popularity: metrics.PopularityBias | None
    mean_cosine: float
    effective_rank: float
    isoscore: float | None
    first_axis_share: float | None

    @property
    def at_condition(self) -> RobustnessPoint:
        """The entry of ``robustness`` at ``condition``, the condition number of the verdict."""
        return next(point for point in self.robustness if point.condition == self.condition)

    @property
    def worst_parametrization(self) -> VariantScores:
        """The parametrisation whose neighbours agree least with those of the audited embeddings."""
        return min(self.parametrizations, key=lambda variant: variant.jaccard)

    @property
    def nearest_parametrization(self) -> VariantScores | None:
        """The parametrisation nearest to that of the audited embeddings, or None.

        The audit computes the linear maps from the audited embeddings to the other
        parametrisations. The nearest parametrisation is the one whose map has the lowest condition
        number. If none of the maps is invertible, the property is None.
        """
        by_condition = [
            (form.condition, form)
            for form in self.parametrizations
            if form.name != self.parametrization and form.condition is not None
        ]
        return min(by_condition, key=lambda pair: pair[0])[1] if by_condition else None

    @property
    def centered(self) -> VariantScores | None:
        """The entry "centered" of ``parametrizations``; None unless the loss is a ranking loss."""
        forms = [form for form in self.parametrizations if form.name == CENTERED]
        return forms[0] if forms else None

    @property
    def headline(self) -> str:
        """The result of the audit, in one sentence."""
        replaced = 1 - self.at_condition.worst_rescaling
        rescaling = f"rescaling with factors between 1 and {self.condition:g}"
        if self.is_free:
            return (
                f"A {rescaling} replaces {replaced:.0%} of the {self.k} nearest neighbours, and "
                "a rescaling that was not tried may replace more."
            )
        if self.trained_on == "cosine":
            premise = "The cosine is not arbitrary, because the model was trained on the cosine"
        elif self.condition_to_balance is None:
            premise = (
                "If training has converged, the cosine is not arbitrary, because weight decay on "
                "users and items chose the scale of the dimensions"
            )
        else:
            premise = (
                "The cosine is not arbitrary, because weight decay on users and items chose the "
                "scale of the dimensions, as the Gram matrices of users and items confirm"
            )
        return f"{premise}; still, one {rescaling} would replace {replaced:.0%} of the neighbours."

    @property
    def condition_to_balance(self) -> float | None:
        """The lowest condition number of a map that balances users and items; None without users.

        Users and items are balanced if their Gram matrices are equal. The rows in the Gram matrices
        may be unweighted, weighted by numbers of interactions, or weighted by gradient noise. The
        condition number is infinite if no invertible map balances users and items.
        """
        forms = [form for form in self.parametrizations if form.name in _BALANCED_FORMS]
        conditions = [form.condition for form in forms if form.condition is not None]
        return min(conditions, default=float("inf")) if forms else None

    @property
    def is_balanced(self) -> bool:
        """Whether the Gram matrices of users and items, weighted or unweighted, are equal."""
        return any(form.is_given for form in self.parametrizations if form.name in _BALANCED_FORMS)

    @property
    def _has_form(self) -> bool:
        """Whether the cosines of an entry of ``parametrizations`` nearly equal the audited ones."""
        return any(form.is_given for form in self.parametrizations)

    @property
    def is_free(self) -> bool:
        """Whether the rescaling D may be arbitrary because training has not determined it.

        The value depends on ``trained_on``, on ``weight_decay_on`` and on the factors themselves.
        """
        if self.trained_on == "cosine":
            return False
        contradicted = self.condition_to_balance is not None and not self.is_balanced
        return self.weight_decay_on != "both" or contradicted

    @property
    def summary(self) -> str:
        """The numbers of items and dimensions in one phrase."""
        zero = f", {self.n_zero:,} zero rows left out" if self.n_zero else ""
        duplicates = f", {self.n_duplicates:,} duplicate rows" if self.n_duplicates else ""
        return f"{self.n_items:,} items of {self.n_dimensions} dimensions{zero}{duplicates}"

    @property
    def verdict(self) -> str:
        """The verdict of the audit in a few sentences.

        The verdict states whether training has determined the scale of the dimensions, and which
        share of the neighbours survives rescalings. The verdict also states how much the neighbours
        differ in other parametrisations.

        The verdict is for readers who do not know the meaning of D or of condition numbers.
        """
        point = self.at_condition
        low = f"{point.certified:.0%} ± {point.certified_error:.0%}"
        high = f"{point.unbroken:.0%} ± {point.unbroken_error:.0%}"
        shares = f"about {low}" if low == high else f"between {low} and {high}"
        sentences = [
            self._premise(),
            f"Of the {self.k} nearest neighbours, {shares} remain neighbours under every rescaling "
            f"with factors between 1 and {self.condition:g}.",
            "The worst single rescaling that the search found replaces "
            f"{1 - point.worst_rescaling:.0%} of the neighbours.",
            f"At least {point.certified_linear:.0%} of the neighbours remain neighbours under "
            f"every linear map of condition {self.condition:g}. The worst linear map that the "
            f"search found replaces {1 - point.worst_linear:.0%} of the neighbours.",
        ]
        nearest, most_different = self.nearest_parametrization, self.worst_parametrization
        if self.centered is not None:
            sentences.append(
                "After the mean of the items is subtracted, "
                f"{self.centered.neighbors_kept:.0%} of the neighbours remain."
            )
        if self.trained_on != "cosine" and nearest is not None:
            sentences.append(
                f"The nearest other form of the same model is {_describe_form(nearest)}"
            )
            if most_different.name != nearest.name and most_different.jaccard < nearest.jaccard:
                sentences.append(
                    "The form whose neighbours differ most from those of the audited embeddings is "
                    f"{_describe_form(most_different)}"
                )
        return " ".join(sentences)

    def table(self) -> Table:
        """Return the headline, the table of robustness, and the verdict, for ``repr``."""
        return super().table()._replace(lead=self.headline, more=self.verdict)

    def _premise(self) -> str:
        """Return the sentences that say whether training has determined D or left D arbitrary."""
        if self.trained_on == "cosine":
            return (
                "The model was trained on the cosine, so its dimensions cannot be rescaled "
                f"freely. Therefore, {_NOT_FREE}"
            )
        if not self.is_free:
            evidence = (
                "Without the users, the audit cannot check whether the scale of the dimensions has "
                "converged."
                if self.condition_to_balance is None
                else "The audited factors confirm that weight decay chose the scale, because the "
                "Gram matrices of users and items are nearly equal. A linear map of condition "
                f"{self.condition_to_balance:.2f} is enough to make them equal."
            )
            return (
                "The model was trained with weight decay on users and items, which chooses the "
                f"scale of each dimension. Therefore, {_NOT_FREE} {evidence}"
            )
        if self.weight_decay_on == "both":
            return self._contradiction()
        if self.trained_on == "unknown" and self.equal_norms:
            return (
                "All items have the same norm. If the model was trained on the cosine, training "
                f"has chosen the scale of the dimensions. In this case, {_NOT_FREE}"
            )
        if self.trained_on == "dot":
            premise = (
                "The model was trained on dot products of users and items. The dot products do not "
                "change if the items are multiplied by an invertible matrix, and the users by the "
                "transposed inverse of this matrix. A rescaling is an example of such a change."
            )
        elif self.trained_on == RANKING:
            premise = (
                "The model was trained on differences between the dot products of a user and two "
                "items. The differences do not change if the items are multiplied by an invertible "
                "matrix, and the users by the transposed inverse of this matrix. A rescaling is an "
                "example of such a change. The differences also stay the same if the same "
                "vector is added to every item."
            )
        else:
            premise = (
                "Suppose that the predictions are dot products of items with users or contexts. "
                "The predictions do not change if the items are multiplied by an invertible "
                "matrix, and if the users or contexts are multiplied by the transposed inverse of "
                "this matrix. A rescaling is an example of such a change."
            )
        return f"{premise} {self._origin()}".rstrip()

    def _contradiction(self) -> str:
        """Return sentences that explain why the Gram matrices differ despite weight decay.

        After converged training with weight decay on users and items, the Gram matrices of users
        and items are equal.
        """
        return (
            "After converged training with weight decay on users and items, the Gram matrices of "
            f"users and items are equal. {self._difference()} The unequal Gram matrices have four "
            "possible explanations. (1) Training has not converged. (2) The weight decay was "
            "weighted by row. (3) The weight decay was weak compared with the noise of the "
            "gradients. (4) The weight decay acted on weights other than the audited vectors. "
            "Until you know which explanation is true, treat the scale of the dimensions as "
            "arbitrary."
        )

    def _difference(self) -> str:
        """Return sentences about how far the Gram matrix of the users is from that of the items."""
        if self.condition_to_balance == float("inf"):
            return (
                "The audited users and items do not have the same rank, so no linear map makes "
                "their Gram matrices equal."
            )
        return (
            "The Gram matrices of the audited users and items differ. A linear map of condition "
            f"{self.condition_to_balance:.3g} is needed to make them equal."
        )

    def _origin(self) -> str:
        """Return sentences about what may have determined the scale of the dimensions."""
        decay_is_known = self.weight_decay_on != "unknown"
        sentences = []
        if self.parametrization in _BALANCED_FORMS:
            form, trainings = _BALANCED_FORMS[self.parametrization]
            if decay_is_known:
                sentences.append(
                    f"However, {form}. Without weight decay, {trainings} lead to nearly the same "
                    "form. The algorithm, not the loss, chose this scale of the dimensions. "
                    "Another initialisation, another optimiser or another number of epochs may "
                    "therefore lead to another scale."
                )
            else:
                sentences.append(
                    f"However, {form}. Training with weight decay on users and items leads to this "
                    f"form. Without weight decay, {trainings} lead to nearly the same form. The "
                    "factors therefore do not show whether the loss had weight decay. If the loss "
                    f"had weight decay on users and items, {_NOT_FREE}"
                )
        elif self.parametrization == "items_orthonormal":
            sentences.append(
                "The columns of the items are orthonormal. Two methods lead to orthonormal "
                "columns: a truncated SVD, and alternating least squares over all entries with "
                "weight decay on the users only."
            )
        elif not decay_is_known:
            sentences.append(
                "Weight decay on both users and items would have determined the scale of each "
                "dimension."
            )
            if self.condition_to_balance is not None and not self.is_balanced:
                sentences.append(
                    f"{self._difference()} If the loss had weight decay on users and items, the "
                    "difference has three possible explanations. (1) Training has not converged. "
                    "(2) The weight decay was weighted by row. (3) The weight decay was weak "
                    "compared with the noise of the gradients."
                )
        elif self.condition_to_balance is not None and not self._has_form:
            sentences.append(
                "The factors have none of the forms that this audit recognises. The scale of "
                "their dimensions therefore depends on the initialisation, the optimiser and the "
                "number of epochs. The factors do not show how much each of these three causes "
                "contributed."
            )
        if self.epochs_to_forget is not None:
            sentences.append(
                "The gradient noise of this training slowly moves the dimensions to a particular "
                "scale; stochastic gradient descent converges to factors with this scale. After "
                f"{self.epochs_to_forget:,.3g} more epochs, the distance between the factors and "
                "the converged factors is predicted to be only 1/e (37 %) of what it is now. This "
                "distance is the logarithm of the condition of the linear map that converts the "
                "factors to the converged factors."
            )
        return " ".join(sentences)

    @property
    def advice(self) -> tuple[str, ...]:
        """Recommended next steps, most important first."""
        is_free, has_query_metric = self.is_free, self._has_query_metric
        cases = [
            (self.equal_norms and self.trained_on == "unknown",
             "Find out whether the model was trained on the cosine, and pass the answer with "
             "--trained-on. All items have the same norm. Either the model was trained on the "
             "cosine, or the vectors were normalised after training."),
            (self.equal_norms and self.trained_on in ("dot", RANKING),
             "Audit the items as they were before they were normalised. The norms of the items are "
             "part of a model that was trained on dot products."),
            (self.trained_on == "cosine",
             "Continue to use the cosine, because the model was trained on the cosine. The "
             "temperature of the training decides how similar items become. If you have labels, "
             "compare several temperatures."),
            (self.trained_on != "cosine" and not is_free,
             "You may continue to use the cosine, because weight decay on users and items has "
             "chosen the scale of the dimensions. Before you prefer the cosine or the query "
             "metric, compare the two with fastcos compare."),
            (self.trained_on != "cosine" and not is_free and self.condition_to_balance is None,
             "Add the embeddings of users or queries (--users). Weight decay on users and items "
             "chooses a scale of the dimensions; the embeddings of users show whether training has "
             "converged to this scale."),
            (is_free and self.weight_decay_on == "both",
             "Train for more iterations and audit again, or use the balanced form, which the "
             "function canonicalize returns. The balanced form makes the same predictions as the "
             "audited factors. Training with equal weight decay on all rows of users and items "
             "converges to the balanced form."),
            (is_free and self.weight_decay_on == "unknown",
             "Find out whether the loss had weight decay on users and on items, and pass the "
             "answer with --weight-decay-on. If the loss had weight decay on both, "
             + ("training has chosen the rescaling D." if self.is_balanced else
                "training chooses the rescaling D when it converges.")),
            (is_free and self.trained_on == RANKING,
             "Before you compare items, subtract the mean of the items; the measure "
             "centered_cosine does this. Adding one vector to all items does not change the loss, "
             "but changes the cosines and the query metric."),
            (is_free and has_query_metric,
             "Compare items with the query metric, which fastcos index export writes. The query "
             "metric stays the same under every rescaling, and under every linear map that "
             "preserves the dot products."),
            (is_free and not has_query_metric,
             "Add the embeddings of users or queries (--users), if the model has such embeddings. "
             "The items alone do not determine the scale of the dimensions."),
            (is_free,
             "Before you show a single neighbour as a fact, check it in one of two ways: with the "
             "function certified_neighbors, or against labels or interactions."),
            (self.label_test is not None and not self.label_test.shown,
             "Do not rely on the labels: the test does not show that the cosines recover the "
             "labels. A test with more labelled items could still show that the cosines recover "
             "the labels."),
        ]  # fmt: skip
        advice = [text for applies, text in cases if applies]
        recovery = self.label_recovery
        if recovery is not None and recovery.high - recovery.low > 0.1:
            advice.append(
                "Use outside information to choose the rescaling D. Depending on D, the cosines "
                f"recover the labels with an AUC between {recovery.low:.2f} and "
                f"{recovery.high:.2f}."
            )
        return tuple(advice)

    @property
    def _has_query_metric(self) -> bool:
        """Whether the audit computed the query metric, which depends on the users."""
        return any(row.name == "query_metric" for row in self.invariant_baselines)

    def statistics(self) -> dict[str, float | None]:
        """Return statistics of the audited embeddings; an undefined statistic is None or NaN."""
        statistics = {
            "mean cosine of all pairs": self.mean_cosine,
            f"effective rank, of {self.n_dimensions}": self.effective_rank,
            "IsoScore (1 is isotropic)": self.isoscore,
            "variance along the first principal axis": self.first_axis_share,
            "hubness (skewness of the number of lists per item)": self.hubness.skewness,
            "share of items that are in no neighbour list": self.hubness.antihub_share,
        }
        if self.popularity is not None:
            statistics |= {
                "correlation of popularity and norm": self.popularity.norm_correlation,
                "correlation of popularity and hubness": self.popularity.hubness_correlation,
                "correlation of popularity and mean cosine": self.popularity.cosine_correlation,
                "popularity of neighbours divided by popularity of items": self.popularity.lift,
            }
        return statistics

    def sections(self) -> tuple[Section, ...]:
        """Return the sections of the report, from the robustness to the explanation of terms."""
        recovery = self.label_recovery
        return (
            self._robustness(),
            self._dimensions(),
            *self._variants(),
            *(() if self.label_test is None else self.label_test.sections()),
            *(() if recovery is None else recovery.sections()),
            Section(
                "Shape of the embeddings",
                ("A rescaling of the audited embeddings changes every statistic of this section.",),
                facts=self.statistics(),
                verdict=f"The effective rank is {self.effective_rank:.3g} of at most "
                f"{self.n_dimensions}, and the mean cosine is {self.mean_cosine:.2g}.",
            ),
            Section(
                "How to read this",
                (
                    "A loss judges only the predictions of a model. Many losses do not determine "
                    "the scale of the latent dimensions (Steck, Ekanadham, Kallus 2024, "
                    "arXiv:2403.05440). If the users are multiplied by an invertible diagonal "
                    "matrix D, and the items by the inverse of D, every prediction stays the same. "
                    "If the loss does not determine the scale, then the initial factors, the "
                    "optimiser and the number of epochs determine the scale.",
                    "The condition of D is its largest factor divided by its smallest factor. A "
                    "rescaling of condition 1 changes no cosine. In the simulation of the paper, a "
                    "rescaling of condition 5 converts one of the two special cases of D to the "
                    "other.",
                    "A certificate proves that a neighbour survives every rescaling D up to a "
                    "given condition. An attack is a rescaling D that removes a neighbour. If a "
                    "neighbour has no certificate and no attack removes the neighbour, it is "
                    "unknown whether the neighbour survives. The audit looked for certificates "
                    f"and attacks for the neighbours of {self.n_sampled} sampled items, and "
                    f"compared the neighbour lists of {self.n_listed:,} items. All other numbers "
                    "were computed from all items, unless the report says otherwise.",
                ),
            ),
        )

    def _robustness(self) -> Section:
        label = "Share of neighbours that survive rescalings. " + " ".join(
            f"At condition {p.condition:g}, between {p.certified:.0%} and {p.unbroken:.0%} of the "
            "neighbours survive every rescaling. Under the worst single rescaling that the search "
            f"found, {p.worst_rescaling:.0%} of the neighbours survive."
            for p in self.robustness
        )
        header = (
            "condition", "all linear, at least", "all rescalings, at least",
            "all rescalings, at most", "worst linear found", "worst rescaling found",
            "random",
        )  # fmt: skip
        rows = [
            (f"{p.condition:g}", Estimate(p.certified_linear),
             Estimate(p.certified, p.certified_error), Estimate(p.unbroken, p.unbroken_error),
             Estimate(p.worst_linear), Estimate(p.worst_rescaling), Estimate(p.random_rescaling))
            for p in self.robustness
        ]  # fmt: skip
        title = f"Audit of {self.summary}: surviving share of the {self.k} nearest neighbours"
        return Section(
            "How much rescaling do the neighbours survive?",
            (
                "The share of neighbours that survive every rescaling D lies within the shaded "
                "band. To draw the band, the worst D was chosen separately for each neighbour. "
                "Together, these D remove at least as many neighbours as any single D removes. "
                f"The vertical line marks condition {self.condition:g}.",
                "A rescaling D multiplies each latent dimension of the users by a number, and "
                "divides the same dimension of the items by this number. Dot products of users and "
                "items stay the same, but cosines change. The condition of D is its largest factor "
                "divided by its smallest factor.",
                "Below the shaded band lies the share of neighbours that are certified to survive. "
                "Above the shaded band lies the share of neighbours that were removed by attacks; "
                "each attack may have used a different D. The curve of the worst single D shows "
                "which share of the neighbours survives the worst D that the search found. The "
                "search may have missed a D that removes more neighbours, so the curve is only an "
                "upper bound on the share that survives the worst D.",
                f"The shares for rescalings were computed from {self.n_sampled} sampled items, and "
                "the number after ± is one standard error. The shares for linear maps were "
                "computed from all items.",
            ),
            [Table(title, header, rows)],
            figures=[Figure("robustness", self, 360, label)],
            verdict=f"Between {self.at_condition.certified:.0%} and "
            f"{self.at_condition.unbroken:.0%} of the neighbours survive every rescaling D of "
            f"condition {self.condition:g}. Under the worst single D that the search found, "
            f"{self.at_condition.worst_rescaling:.0%} of the neighbours survive.",
        )

    def _dimensions(self) -> Section:
        order = np.argsort(-self.dimension_shares, kind="stable")[:MAX_ROWS].tolist()
        rows = [(str(number), Estimate(float(self.dimension_shares[number]))) for number in order]
        label = (
            "Share of each latent dimension in the sensitivity index. Dimension "
            f"{rows[0][0]} has the largest share, {rows[0][1]}. If all shares were equal, each "
            f"share would be {1 / self.n_dimensions:.3f}."
        )
        n_hidden = self.n_dimensions - MAX_BARS
        hidden = f" The {n_hidden} smallest shares are not drawn." if n_hidden > 0 else ""
        has_shares, largest_share = self.dimension_shares.any(), self.dimension_shares[order[0]]
        return Section(
            "Which dimensions make the cosines sensitive?",
            (
                "Each bar shows the share of one latent dimension in the sensitivity index. "
                f"Dimensions are counted from 0.{hidden} If all shares were equal, every bar would "
                "end at the dashed line.",
                "The sensitivity index lies between 0 and 1. The higher the index, the more a "
                "rescaling can change the cosine of an item and its neighbour. The change is "
                "measured in Fisher's z, the inverse hyperbolic tangent of the cosine. Suppose "
                "that the condition κ of a rescaling is close to 1. Then ln κ times the "
                "sensitivity index is an approximate upper bound on the mean change of z over all "
                "neighbours.",
            ),
            [
                Table(
                    "Share of each dimension in the sensitivity index", ("dimension", "share"), rows
                )
            ],
            {
                "sensitivity index (mean total variation)": self.sensitivity,
                "sensitivity index in a random basis": self.random_basis_sensitivity,
            },
            [Figure("dimension_shares", self, 260, label)] if has_shares else (),
            verdict=f"Dimension {rows[0][0]} has the largest share of the sensitivity index, "
            f"{largest_share:.1%}. If all shares were equal, each share would be "
            f"{1 / self.n_dimensions:.1%}.",
        )

    def _variants(self) -> tuple[Section, Section]:
        forms, baselines = self.parametrizations, self.invariant_baselines
        meanings = [form.meaning for form in forms if form.name == self.parametrization]
        agreement = ", ".join(
            f"{row.name.replace('_', ' ')} {row.jaccard:.2f}" for row in baselines
        )
        hint = (
            ""
            if self._has_query_metric
            else " The table lacks the query metric, which needs the embeddings of the users."
        )
        explanation = (
            "Each row compares one form with the audited embeddings. The column "
            f'"Jaccard" shows how similar the lists of the {self.k} nearest neighbours are. A '
            "Jaccard index of 1 means that both lists contain the same neighbours. The Jaccard "
            f"index is the mean over {self.n_listed:,} items, and the number after ± is one "
            'standard error. The column "overlap" shows the rank-biased overlap of the neighbour '
            'lists, which gives more weight to the first ranks. The column "RSA" shows how '
            "strongly the cosines of the form are correlated with the cosines of the audited "
            "embeddings. For each item, the number of neighbour lists that contain the item was "
            'counted; the column "hubness" shows the skewness of these counts. A linear map '
            'converts the audited items to the form; the column "condition" shows the condition of '
            "this map."
        )
        return (
            Section(
                "The same model under other parametrisations",
                (
                    (
                        "The table lists several forms in which other software may return the same "
                        "model. The dot products of users and items are equal in all forms. If the "
                        "neighbours differ between two forms, the only reason for this difference "
                        "is the choice of the form."
                        if self.is_free
                        else "Training has chosen the form of the audited embeddings. The other "
                        "forms show how sensitive the neighbours are to the choice of the form."
                    )
                    + "".join(f" The audited factors have this form: {m}." for m in meanings),
                    explanation,
                ),
                [variants_table("Forms of the same model", (self.given, *forms))],
                verdict=f"Of {len(forms)} forms, the one that differs most from the audited "
                f"embeddings is {_describe_form(self.worst_parametrization)}",
            ),
            Section(
                "Similarities that no rescaling changes",
                (
                    "No rescaling and no linear map of the model changes the cosines of the "
                    "baselines in the table. If a baseline and the audited embeddings list "
                    "different neighbours, neither list is wrong." + hint,
                ),
                [variants_table("Similarities that no rescaling changes", baselines)],
                verdict="The neighbours of each baseline were compared with the neighbours in the "
                f"audited embeddings. The Jaccard indices are: {agreement}.",
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain Python values, with the verdict and the advice."""
        return {"verdict": self.verdict, "advice": list(self.advice), **super().to_dict()}


def _describe_form(variant: VariantScores) -> str:
    """Return the name of a variant, which ends the caller's sentence, and then its statistics."""
    distance = (
        ""
        if variant.condition is None
        else f"A linear map of condition {variant.condition:.2g} converts the audited items to "
        "this form. "
    )
    return (
        f'"{variant.name.replace("_", " ")}". {distance}The Jaccard index between the neighbours '
        "in this form and in the audited embeddings is "
        f"{variant.jaccard:.2f} ± {variant.jaccard_error:.2f}."
    )
