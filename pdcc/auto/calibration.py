"""Every constant that decides something in "auto", and what it was set on.

All were set while looking at accuracies on cifar10n, labelme, DWUG and digits (docs/results.md): they use no labels when they
are applied, but results on those data are not independent of them.
"""

# The start.
TRIAL_ITEMS = 4000  # K-means is tried on at most this many items (drawn at random) while settings are compared
FOLDS = 5
BLEND = 0.5  # share of the discriminant coordinates in the embedding
COMPONENTS = 4  # principal components of the discriminant embedding, as a multiple of K
NEGLIGIBLE = 1e-6  # components with less than this share of the largest deviation are rounding
SHRINK = 10.0  # answers by which the rate between two clusters is shrunk to the pooled rate
STABLE = 0.75  # plain K-means is stable if runs on random halves agree to this adjusted Rand index on average
BURDEN = 3.0  # a stable partition is left only for one that predicts better by this many standard errors
EQUAL_SCALES = 2.0  # standard errors: the least of six noisy scores flatters itself
RELEVANT = 0.5  # share of what guided clusters explain of the answers that plain ones must explain to count

# Transitive answers.
FEWEST_TRIANGLES = 30
MOST_BROKEN = 0.02

# k-NN label agreement.
NEIGHBOURS = 5
MOST_NEIGHBOURHOODS = 5000  # items, drawn at random, whose neighbours are looked at
AGREEMENT_ERRORS = (
    2.0  # labels may agree with their neighbours less than the stable partition's by this many standard errors
)

# The choice of a specification.
AUTO_VOLUME = 3e-3  # between the synthetic study's best, 1e-3, and 1e-2
AUTO_PARTITION_WEIGHT = 1.0  # as much say as all answers together
PARTITION_WEIGHTS = (
    0.3,
    1.0,
)  # tried one after the other where the k-NN label agreement falls behind the stable partition's
FEWEST_HELD_OUT = 50  # fewer held-out answers cannot tell settings apart
UNSTEADY = 0.05  # restarts of a value may agree less than those of the steadiest one by this adjusted Rand index
