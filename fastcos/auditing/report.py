"""The report of an audit: its numbers as a record, a verdict in one sentence, and advice."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fastcos import metrics
from fastcos.auditing.records import (
    BALANCED,
    BALANCED_BY_COUNTS,
    NOISE_BALANCED,
    LabelRecovery,
    RobustnessPoint,
    VariantScores,
    variants_table,
)
from fastcos.metrics.label_permutation import LabelTest
from fastcos.reports import MAX_ROWS, Estimate, Figure, Record, Section, Table, as_table
from fastcos.validation import Floats

# dimensions of the figure: bars that fit a narrow screen
MAX_BARS = 64
# the end of a premise under which D is not free
_NOT_FREE = "these numbers are sensitivity, not arbitrariness."
# forms in which the two sides balance: in words, and which training without decay leaves them
_BALANCED_FORMS = {
    BALANCED: (
        "both sides have the same Gram matrix",
        "gradient descent from a small start and many epochs of stochastic gradient descent",
    ),
    BALANCED_BY_COUNTS: (
        "both sides have the same Gram matrix, weighted by interactions",
        "many epochs of stochastic gradient descent",
    ),
    NOISE_BALANCED: (
        "the gradient noise and the decay of both sides balance",
        "many epochs of stochastic gradient descent",
    ),
}


@as_table
@dataclass(frozen=True)
class Audit(Record):
    """The report of :func:`fastcos.audit`: how far the cosines depend on the parametrisation.

    Attributes
    ----------
    n_items, n_dimensions, k : int
    condition : float
        The condition of the verdict.
    n_zero : int
        Items that are zero rows: they have no direction and are left out.
    n_duplicates : int
        Items whose row is a duplicate of an earlier one. They are kept: ties go to the lower index.
    n_sampled, n_listed : int
        Items whose edges were certified and attacked under rescalings, and items whose lists of
        neighbours were compared.
    trained_on : {"dot", "cosine", "unknown"}
        As given.
    weight_decay : {"both", "not both", "unknown"}
        As given.
    equal_norms : bool
        Whether all items have the same norm, as after training on the cosine.
    parametrization : str or None
        Name of the one of ``parametrizations`` that the given factors have; None if of no one.
    epochs_to_forget : float or None
        Of the given gradient noise: epochs in which stochastic gradient descent forgets the scale
        of these factors. None without it.
    sensitivity : float
        Sensitivity index, 0 to 1: the mean of :func:`fastcos.auditing.tv_index` over the edges of
        2,000 items. To first order a rescaling of condition κ moves Fisher's z of an edge by at
        most that times ln κ.
    random_basis_sensitivity : float
        The same for sampled edges in random orthogonal bases, mean: the level of an average basis.
    dimension_shares : ndarray (d,)
        Share of each latent dimension in the sensitivity; sums to 1.
    robustness : tuple of RobustnessPoint
        By ascending condition.
    given : VariantScores
        The given embeddings themselves.
    parametrizations : tuple of VariantScores
        The items as other software would parametrise the same predictions.
    invariant_baselines : tuple of VariantScores
        Similarities that no linear map of the model changes.
    label_test : LabelTest or None
        Whether the given cosines recover the labels. None without labels.
    label_recovery : LabelRecovery or None
        None without labels.
    hubness : metrics.Hubness
    popularity : metrics.PopularityBias or None
    mean_cosine, effective_rank : float
    isoscore : float or None
        None for one dimension.
    first_axis_share : float or None
        Share of the variance along the first principal axis. None if all items are equal.
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
    weight_decay: str
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
        """The robustness at the condition of the verdict."""
        return next(point for point in self.robustness if point.condition == self.condition)

    @property
    def worst_parametrization(self) -> VariantScores:
        """The parametrisation that shares the fewest neighbours with the given embeddings."""
        return min(self.parametrizations, key=lambda variant: variant.jaccard)

    @property
    def nearest_parametrization(self) -> VariantScores | None:
        """The parametrisation nearest to the given one, by condition; None without any."""
        others = [form for form in self.parametrizations if form.name != self.parametrization]
        known = [(form.condition, form) for form in others if form.condition is not None]
        return min(known, key=lambda pair: pair[0])[1] if known else None

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        replaced = 1 - self.at_condition.worst_rescaling
        one = f"rescaling with factors between 1 and {self.condition:g}"
        if self.is_free:
            return f"One {one} replaces at least {replaced:.0%} of the {self.k} nearest neighbours."
        if self.trained_on == "cosine":
            chosen = "Training chose the scale of the dimensions: the cosine is what was trained"
        elif self.condition_to_balance is None:
            chosen = (
                "If training has converged, weight decay on both sides chose the scale of the "
                "dimensions: the cosine is then not arbitrary"
            )
        else:
            chosen = (
                "Weight decay on both sides chose the scale of the dimensions, and the factors "
                "show it: the cosine is not arbitrary"
            )
        return f"{chosen}, but one {one} would replace {replaced:.0%} of the neighbours."

    @property
    def condition_to_balance(self) -> float | None:
        """Condition of the map to the nearest form in which both sides balance; None without users.

        Infinite if there is no such map.
        """
        forms = [form for form in self.parametrizations if form.name in _BALANCED_FORMS]
        known = [form.condition for form in forms if form.condition is not None]
        return min(known, default=float("inf")) if forms else None

    @property
    def is_balanced(self) -> bool:
        """Whether both sides balance, as the forms show that decay or long training leaves."""
        return any(form.is_given for form in self.parametrizations if form.name in _BALANCED_FORMS)

    @property
    def _has_form(self) -> bool:
        """Whether the given factors have any of the forms; of one column all forms are the same."""
        return any(form.is_given for form in self.parametrizations)

    @property
    def is_free(self) -> bool:
        """Whether D may be free, by what is known of the training and by what the factors show."""
        if self.trained_on == "cosine":
            return False
        contradicted = self.condition_to_balance is not None and not self.is_balanced
        return self.weight_decay != "both" or contradicted

    @property
    def summary(self) -> str:
        """The size of the data in one phrase."""
        zero = f", {self.n_zero:,} zero rows left out" if self.n_zero else ""
        duplicates = f", {self.n_duplicates:,} duplicates of others" if self.n_duplicates else ""
        return f"{self.n_items:,} items of {self.n_dimensions} dimensions{zero}{duplicates}"

    @property
    def verdict(self) -> str:
        """The premise; what stays under all maps at once, and what one map replaces; other forms.

        Written for readers who know neither D nor condition numbers.
        """
        point = self.at_condition
        low = f"{point.certified:.0%} ± {point.certified_error:.0%}"
        high = f"{point.unbroken:.0%} ± {point.unbroken_error:.0%}"
        shares = f"about {low}" if low == high else f"between {low} and {high}"
        sentences = [
            self._premise(),
            f"Under all rescalings at once with factors between 1 and {self.condition:g}, {shares} "
            f"of the {self.k} nearest neighbours stay.",
            f"The worst single one found replaces {1 - point.worst_rescaling:.0%}.",
            "Under all linear maps of that condition at once, at least "
            f"{point.certified_linear:.0%} stay; the worst single one found replaces "
            f"{1 - point.worst_linear:.0%}.",
        ]
        near, far = self.nearest_parametrization, self.worst_parametrization
        if self.trained_on != "cosine" and near is not None:
            sentences.append(f"Of other forms of the same model, the nearest is {_form(near)}.")
            if far.name != near.name and far.jaccard < near.jaccard:
                sentences.append(f"The one that differs most is {_form(far)}.")
        return " ".join(sentences)

    def table(self) -> Table:
        """The headline, what stays under rescalings, and all else in words, for ``repr``."""
        return super().table()._replace(lead=self.headline, more=self.verdict)

    def _premise(self) -> str:
        """Whether rescalings are free, by what is known of the training and what factors show."""
        if self.trained_on == "cosine":
            return (
                "The model was trained on the cosine, so that its dimensions cannot be rescaled "
                f"freely: {_NOT_FREE}"
            )
        if not self.is_free:
            shown = (
                "Without the users, the audit cannot check that training has converged to it"
                if self.condition_to_balance is None
                else f"Both sides balance to a condition of {self.condition_to_balance:.2f}"
            )
            return (
                "The model was trained with weight decay on both sides, which chooses the scale of "
                f"each dimension. {shown}: {_NOT_FREE}"
            )
        if self.weight_decay == "both":
            return self._contradiction()
        if self.trained_on == "unknown" and self.equal_norms:
            return (
                "All items have the same norm: if the model was trained on the cosine, no "
                f"rescaling is free, and {_NOT_FREE}"
            )
        if self.trained_on == "dot":
            free = (
                "The model was trained on dot products, which no rescaling and no linear map of "
                "both sides changes."
            )
        else:
            free = (
                "If predictions are dot products with vectors of users or contexts, no rescaling "
                "and no linear map of both sides changes one."
            )
        return f"{free} {self._origin()}".rstrip()

    def _contradiction(self) -> str:
        """What it means that decay on both sides is claimed, and the sides do not balance."""
        off = self.condition_to_balance
        distance = (
            "the sides do not even have the same rank"
            if off == float("inf")
            else f"these sides are a linear map of condition {off:.3g} away from that"
        )
        return (
            "Where training converges, weight decay on both sides leaves both with the same Gram "
            f"matrix, but {distance}. So training has not converged, or the decay was weighted by "
            "row, or weak against the noise of the gradients, or acted on other weights than these "
            "vectors. Until that is known, treat the scale of the dimensions as free."
        )

    def _origin(self) -> str:
        """Where the scale of the dimensions may come from, as far as the factors show it."""
        told = self.weight_decay != "unknown"
        sentences = []
        if self.parametrization in _BALANCED_FORMS:
            shown, trainings = _BALANCED_FORMS[self.parametrization]
            if told:
                sentences.append(
                    f"But {shown}, as {trainings} leave them. The algorithm chose this scale, not "
                    "the loss: another start, optimiser or number of epochs may end elsewhere."
                )
            else:
                sentences.append(
                    f"But {shown}, as weight decay on both leaves them. Without decay, {trainings} "
                    "leave nearly the same. The factors do not show which it was. If the loss had "
                    f"weight decay on both sides, {_NOT_FREE}"
                )
        elif self.parametrization == "items_orthonormal":
            sentences.append(
                "The columns of the items are orthonormal, as those of a truncated SVD are, and as "
                "alternating least squares with decay on the users only leaves them in the end."
            )
        elif not told:
            sentences.append(
                "Weight decay on both sides would have fixed the scale of each dimension."
            )
            if self.condition_to_balance is not None and not self.is_balanced:
                sentences.append(
                    "If the loss had it, training has not converged: both sides are a linear map "
                    f"of condition {self.condition_to_balance:.3g} away from balance."
                )
        elif self.condition_to_balance is not None and not self._has_form:
            sentences.append(
                "The factors have none of the forms that this audit knows. So their scale comes "
                "from the start, the optimiser and the number of epochs, in shares that they do "
                "not show."
            )
        if self.epochs_to_forget is not None:
            sentences.append(
                "Stochastic gradient descent with the given noise forgets the scale that they have "
                f"by a factor of e in {self.epochs_to_forget:,.3g} epochs."
            )
        return " ".join(sentences)

    @property
    def advice(self) -> tuple[str, ...]:
        """What to do about it, most important first."""
        free, knows_queries = self.is_free, self._has_query_metric
        cases = [
            (self.equal_norms and self.trained_on == "unknown",
             "Find out what the model was trained on (--trained-on): the items have equal norms, "
             "as after training on the cosine, or after normalising anything else."),
            (self.equal_norms and self.trained_on == "dot",
             "Audit the items before they were normalised: their norms are part of a model that "
             "was trained on dot products."),
            (self.trained_on == "cosine",
             "Keep the cosine, which is what was trained. Its temperature decides how similar "
             "items come out: compare several by labels, if you have some."),
            (self.trained_on != "cosine" and not free,
             "The cosine may stay: decay on both sides chooses it. Compare it with the query "
             "metric (fastcos compare) before you prefer either."),
            (self.trained_on != "cosine" and not free and self.condition_to_balance is None,
             "Add the embeddings of users or queries (--users): they show whether training has "
             "converged to the scale that decay on both sides chooses."),
            (free and self.weight_decay == "both",
             "Train for more iterations and audit again. Or take the balanced form "
             "(canonicalize), which decay on both sides of all rows leads to: it predicts the "
             "same."),
            (free and self.weight_decay == "unknown",
             "Find out whether the loss had weight decay on users and on items (--weight-decay): "
             + ("if on both, training has chosen D." if self.is_balanced else
                "decay on both chooses D where training converges.")),
            (free and knows_queries,
             "Compare items with the query metric (fastcos index export): no rescaling, and no "
             "linear map that keeps the dot products, changes its cosines."),
            (free and not knows_queries,
             "Add the embeddings of users or queries (--users), if the model has them: only the "
             "other side determines the scale of the dimensions."),
            (free,
             "Before you show a single neighbour as a fact, look whether certified_neighbors "
             "certifies it, or check it against labels or interactions."),
            (self.label_test is not None and not self.label_test.shown,
             "Do not count on the labels: recovery is not shown, which is no proof that there is "
             "none. More labelled items could show it."),
        ]  # fmt: skip
        advice = [text for applies, text in cases if applies]
        recovery = self.label_recovery
        if recovery is not None and recovery.high - recovery.low > 0.1:
            advice.append(
                "Fix the rescaling with outside information: it alone moves the AUC of the "
                f"labels from {recovery.low:.2f} to {recovery.high:.2f}."
            )
        return tuple(advice)

    @property
    def _has_query_metric(self) -> bool:
        """Whether the users were given."""
        return any(row.name == "query_metric" for row in self.invariant_baselines)

    def statistics(self) -> dict[str, float | None]:
        """Numbers of the embeddings as given, by description; None or NaN if undefined."""
        statistics = {
            "mean cosine of all pairs": self.mean_cosine,
            f"effective rank, of {self.n_dimensions}": self.effective_rank,
            "IsoScore (1 is isotropic)": self.isoscore,
            "variance along the first principal axis": self.first_axis_share,
            "hubness (skewness of N_k)": self.hubness.skewness,
            "share of items in no list": self.hubness.antihub_share,
        }
        if self.popularity is not None:
            statistics |= {
                "popularity and norm, correlation": self.popularity.norm_correlation,
                "popularity and hubness, correlation": self.popularity.hubness_correlation,
                "popularity and mean cosine, correlation": self.popularity.cosine_correlation,
                "popularity of neighbours over that of items": self.popularity.lift,
            }
        return statistics

    def sections(self) -> tuple[Section, ...]:
        """Robustness, dimensions, parametrisations, invariant baselines, labels, shape, method."""
        recovery = self.label_recovery
        return (
            self._robustness(),
            self._dimensions(),
            *self._variants(),
            *(() if self.label_test is None else self.label_test.sections()),
            *(() if recovery is None else recovery.sections()),
            Section(
                "Shape",
                ("Statistics of the embeddings as given; a rescaling changes each of them.",),
                facts=self.statistics(),
                verdict=f"Effective rank {self.effective_rank:.3g} of {self.n_dimensions}, mean "
                f"cosine {self.mean_cosine:.2g}.",
            ),
            Section(
                "How to read this",
                (
                    "The loss of a model judges what it predicts. Many losses do not determine the "
                    "scale of the latent dimensions: any D on one side and its inverse on the "
                    "other predict the same (Steck, Ekanadham, Kallus 2024, arXiv:2403.05440). The "
                    "scale is then that of the start, the optimiser and the number of epochs.",
                    "Condition 1 is no change. The two special cases of that paper are 5 apart on "
                    "its own simulation.",
                    "A certificate is a proof; an attack is a D that was found; between the two "
                    f"nothing is known. Both use {self.n_sampled} sampled items, comparisons "
                    f"{self.n_listed:,}, all else all items unless it says otherwise.",
                ),
            ),
        )

    def _robustness(self) -> Section:
        label = "Share of neighbours that survive every rescaling, by condition: " + "; ".join(
            f"at {p.condition:g} between {p.certified:.0%} and {p.unbroken:.0%}, under the worst "
            f"single one {p.worst_rescaling:.0%}"
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
        title = f"Audit of {self.summary}: share of the {self.k} nearest that stay"
        return Section(
            "How much rescaling do the neighbours survive?",
            (
                "The share of neighbours that no rescaling D removes is in the shaded band; one D "
                "for all items removes fewer. The vertical line is condition "
                f"{self.condition:g}.",
                "D multiplies the latent dimensions of the users and divides those of the items: "
                "no dot product changes, and cosines do. Its condition is its largest factor over "
                "the smallest.",
                "Neighbours below the band are certified; each of those above it is removed by "
                "some D that was found. The true worst single D is at or below its curve.",
                f"Rescalings: {self.n_sampled} sampled items, ± one standard error; linear maps: "
                "all items.",
            ),
            [Table(title, header, rows)],
            figures=[Figure("robustness", self, 360, label)],
            verdict=f"Under all D of condition {self.condition:g} at once "
            f"{self.at_condition.certified:.0%} to {self.at_condition.unbroken:.0%} stay, under "
            f"the worst one found {self.at_condition.worst_rescaling:.0%}.",
        )

    def _dimensions(self) -> Section:
        order = np.argsort(-self.dimension_shares, kind="stable")[:MAX_ROWS].tolist()
        rows = [(str(number), Estimate(float(self.dimension_shares[number]))) for number in order]
        label = (
            f"Share of each latent dimension in the sensitivity index: the largest is {rows[0][1]},"
            f" of dimension {rows[0][0]}; an equal share would be {1 / self.n_dimensions:.3f}"
        )
        n_hidden = self.n_dimensions - MAX_BARS
        hidden = f"; {n_hidden} smaller ones are not drawn" if n_hidden > 0 else ""
        drawn, largest = self.dimension_shares.any(), self.dimension_shares[order[0]]
        return Section(
            "Which dimensions does it come from?",
            (
                "Each bar is the share of one latent dimension in the sensitivity index, counted "
                f"from 0{hidden}. The dashed line is an equal share.",
                "The index is from 0 to 1: a rescaling of condition κ moves Fisher's z of a "
                "neighbour by up to about the index times ln κ.",
            ),
            [Table("Share of a dimension in the sensitivity", ("dimension", "share"), rows)],
            {
                "sensitivity index (mean total variation)": self.sensitivity,
                "sensitivity index in a random basis": self.random_basis_sensitivity,
            },
            [Figure("dimension_shares", self, 260, label)] if drawn else (),
            verdict=f"Dimension {rows[0][0]} has the largest share, {largest:.1%}; an equal share "
            f"is {1 / self.n_dimensions:.1%}.",
        )

    def _variants(self) -> tuple[Section, Section]:
        forms, baselines = self.parametrizations, self.invariant_baselines
        known = [one.meaning for one in forms if one.name == self.parametrization]
        shared = ", ".join(f"{row.name.replace('_', ' ')} {row.jaccard:.2f}" for row in baselines)
        one_more = "" if self._has_query_metric else " One more needs the embeddings of the users."
        explanation = (
            f"Jaccard index of the {self.k} nearest neighbours of {self.n_listed:,} items with the "
            "given ones, ± one standard error; overlap weights the first ranks more. RSA: "
            "correlation of all their cosines. Hubness: skewness of how often an item is listed. "
            "Condition: of the linear map from the given items."
        )
        return (
            Section(
                "The same model under other parametrisations",
                (
                    (
                        "Other software would write the same dot products of users and items in "
                        "these forms. If neighbours differ, only the parametrisation differs."
                        if self.is_free
                        else "The given form is not free. The others show how sensitive it is."
                    )
                    + "".join(f" The given factors: {meaning}." for meaning in known),
                    explanation,
                ),
                [variants_table("Parametrisations of the same model", (self.given, *forms))],
                verdict=f"Of {len(forms)} forms, {_form(self.worst_parametrization)} differs most.",
            ),
            Section(
                "What no rescaling changes",
                (
                    "Cosines of these baselines are the same for every rescaling, and for every "
                    "linear map, of the model. Where they differ from the given embeddings, "
                    "neither is wrong." + one_more,
                ),
                [variants_table("Invariant baselines", baselines)],
                verdict=f"Jaccard index with the given neighbours: {shared}.",
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain Python values, with the verdict and the advice."""
        return {"verdict": self.verdict, "advice": list(self.advice), **super().to_dict()}


def _form(variant: VariantScores) -> str:
    """A parametrisation in words, with its agreement."""
    factors = "" if variant.condition is None else f"factors up to {variant.condition:.2g}, "
    return (
        f"{variant.name.replace('_', ' ')} ({factors}Jaccard index of "
        f"{variant.jaccard:.2f} ± {variant.jaccard_error:.2f})"
    )
