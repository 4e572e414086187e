"""Every number of ``select`` that decides something, and what set it.

Rules were set while looking at people's answers (birds5, dogs3, LabelMe) and at digits; docs/results.md says how each
study of people's answers fares. Tolerances of iterations stand beside the loops they end. No label is used when a rule
is applied.
"""

# Views of the features.
WIDE = 50  # from so many columns on, rows may be embeddings: as they are and as centred rows of one length, not standardised
LEADING = 200  # components that are kept of centred rows; the last of hundreds are noise to a few answers per item
COMPONENTS = 4  # components that partitions are made in, as a multiple of K
MOST_COMPONENTS = 100  # and at most so many: a mixture inverts matrices of this size

# Samples: what choosing looks at where there is more.
SAMPLE = 20_000  # items, with the answers among them
GRAPH_ITEMS = 5_000  # items of a graph, and of a mixture: where there are more, nets begin at K-means

# Candidates.
NEIGHBOURS = 10
GUIDED_RUNS = 10  # runs of K-means in the directions that answers point out
SPLIT = 3  # clusters, those that answers contradict most, that are split in turn before the best move is taken
FOLDS = 4  # of the items, and of the answers
VOLUMES = (1e-2, 1e-3)  # of a net, in the order of preference; nets too wide to be trained side by side take the first
EVERY_K = 20  # n_clusters="auto" compares every number up to here, and
STEP_OF_K = 1.2  # beyond it each number this many times the one before
CONTRADICTED = 0.5  # share of the contradictions of independent answers that unnamed annotators must reach for items' own answers to decide

# The rule.
INFORMED = 2.5  # standard errors by which the best of some twenty candidates must beat one rate for all pairs
ERRORS = 1.0  # settings of one partition within so many standard errors of the best are equal: the simplest is taken
OVERRULED = 4.0  # standard errors by which answers may prefer another partition and be overruled by features
SURE = 0.91  # share of what there is to know about an item's cluster that its neighbours must tell for that, and of
# the labels that a net must leave where they are
SAME = 0.01  # nats of support that make no difference
