"""Kinds of runs by name: what `anytime train` is told for each, and whose first stages are the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anytime.autoencoders.layout import Layout
from anytime.autoencoders.losses import Reduction
from anytime.recipes.modify import PriorKind


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The recipe, and what is changed in it."""

    recipe: Literal["paper", "best", "original", "vae", "pixels", "pca"] = "paper"
    truncation: str | None = None
    layout: Layout | None = None
    prior: PriorKind | None = None
    fraction: float | None = None
    """Of the recipe's number of codes, for models that are made for fewer."""
    examples: int | None = None
    """Training pictures, where not all of them."""
    reduction: Reduction | None = None
    """Of the autoencoder's loss, where it is not the recipe's."""
    select_by: Literal["total", "reconstruction"] | None = None
    """The validation loss that selects the autoencoder's epoch, where it is not the recipe's."""
    share: str | None = None
    """The kind whose first stages are taken over."""
    called: str | None = None
    """In the names of runs, behind the recipe's, where it is not the kind's own name."""

    @property
    def codes(self) -> bool:
        """Whether all of the shared autoencoder is taken over: a prior on the same codes."""
        return self.share is not None and self.prior is not None


SHORTER = (0.2, 0.4, 0.6, 0.8)
FEWER = (25_000, 10_000, 5_000)


def tailored(fraction: float) -> str:
    """The kind that is made for a part of the codes; for all of them it is the unordered model.

    >>> tailored(0.2), tailored(1.0)
    ('tailored-0.2', 'unordered')
    """
    return "unordered" if fraction == 1 else f"tailored-{fraction:g}"


def with_fewer(kind: str, examples: int | None) -> str:
    """The kind with so many training pictures, None for all.

    >>> with_fewer("ordered", 5000), with_fewer("ordered", None)
    ('ordered-5k', 'ordered')
    """
    return kind if examples is None else f"{kind}-{examples // 1000}k"


KINDS = {
    "ordered": Kind(),
    "unordered": Kind(truncation="full", share="ordered"),
    "spatial": Kind(layout="spatial"),
    "original": Kind(recipe="original"),
    "best": Kind(recipe="best", called="ordered"),
    "best-unordered": Kind(recipe="best", truncation="full", share="best", called="unordered"),
    "lstm": Kind(prior="lstm", share="ordered"),
    "pixelcnn": Kind(prior="pixelcnn", share="ordered"),
    "geometric-0.03": Kind(truncation="geometric:0.03", share="ordered"),
    "geometric-0.1": Kind(truncation="geometric:0.1", share="ordered"),
    **{tailored(fraction): Kind(truncation="full", fraction=fraction) for fraction in SHORTER},
    **{with_fewer("ordered", count): Kind(examples=count) for count in FEWER},
    **{
        with_fewer("unordered", count): Kind(truncation="full", examples=count, share=with_fewer("ordered", count))
        for count in FEWER
    },
    "ordered-vae": Kind(recipe="vae"),
    "standard-vae": Kind(recipe="vae", truncation="full", share="ordered-vae"),
    "sums": Kind(reduction="sum"),
    "sums-by-reconstruction": Kind(reduction="sum", select_by="reconstruction"),
    "means-by-reconstruction": Kind(select_by="reconstruction"),
    "pixels": Kind(recipe="pixels"),
    "pca": Kind(recipe="pca"),
}
