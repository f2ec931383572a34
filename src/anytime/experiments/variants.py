"""Kinds of runs by name: what `anytime train` is told for each, and whose first stages are the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anytime.autoencoders.layout import Layout
from anytime.autoencoders.losses import Reduction
from anytime.recipes.modify import PriorType


@dataclass(frozen=True, kw_only=True)
class Variant:
    """The recipe, and what is changed in it."""

    recipe: Literal["paper", "best", "original", "vae", "pixels", "pca"] = "paper"
    truncation: str | None = None
    layout: Layout | None = None
    prior: PriorType | None = None
    fraction: float | None = None
    """Of the recipe's number of codes, for models that are made for fewer."""
    examples: int | None = None
    """Training pictures, where not all of them."""
    reduction: Reduction | None = None
    """Of the autoencoder's loss, where it is not the recipe's."""
    select_by: Literal["total", "reconstruction"] | None = None
    """The validation loss that selects the autoencoder's epoch, where it is not the recipe's."""
    reuse: str | None = None
    """The kind whose first stages are taken over."""
    run_suffix: str | None = None
    """In the names of runs, behind the recipe's, where it is not the kind's own name."""

    @property
    def codes(self) -> bool:
        """Whether all of the shared autoencoder is taken over: a prior on the same codes."""
        return self.reuse is not None and self.prior is not None


TAILORED_FRACTIONS = (0.2, 0.4, 0.6, 0.8)
TRAIN_SIZES = (25_000, 10_000, 5_000)


def tailored(fraction: float) -> str:
    """The kind that is made for a part of the codes; for all of them it is the unordered model.

    >>> tailored(0.2), tailored(1.0)
    ('tailored-0.2', 'unordered')
    """
    return "unordered" if fraction == 1 else f"tailored-{fraction:g}"


def with_examples(variant: str, examples: int | None) -> str:
    """The kind with so many training pictures, None for all.

    >>> with_examples("ordered", 5000), with_examples("ordered", None)
    ('ordered-5k', 'ordered')
    """
    return variant if examples is None else f"{variant}-{examples // 1000}k"


VARIANTS = {
    "ordered": Variant(),
    "unordered": Variant(truncation="full", reuse="ordered"),
    "spatial": Variant(layout="spatial"),
    "original": Variant(recipe="original"),
    "best": Variant(recipe="best", run_suffix="ordered"),
    "best-unordered": Variant(recipe="best", truncation="full", reuse="best", run_suffix="unordered"),
    "lstm": Variant(prior="lstm", reuse="ordered"),
    "pixelcnn": Variant(prior="pixelcnn", reuse="ordered"),
    "geometric-0.03": Variant(truncation="geometric:0.03", reuse="ordered"),
    "geometric-0.1": Variant(truncation="geometric:0.1", reuse="ordered"),
    **{tailored(fraction): Variant(truncation="full", fraction=fraction) for fraction in TAILORED_FRACTIONS},
    **{with_examples("ordered", count): Variant(examples=count) for count in TRAIN_SIZES},
    **{
        with_examples("unordered", count): Variant(truncation="full", examples=count, reuse=with_examples("ordered", count))
        for count in TRAIN_SIZES
    },
    "ordered-vae": Variant(recipe="vae"),
    "standard-vae": Variant(recipe="vae", truncation="full", reuse="ordered-vae"),
    "sums": Variant(reduction="sum"),
    "sums-by-reconstruction": Variant(reduction="sum", select_by="reconstruction"),
    "means-by-reconstruction": Variant(select_by="reconstruction"),
    "pixels": Variant(recipe="pixels"),
    "pca": Variant(recipe="pca"),
}
