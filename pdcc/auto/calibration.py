"""Every constant that decides something in "auto", and what it was set on.

Set while looking at accuracies on simulated answers about wine, iris, satellite, digits and labelme (half A of the bank, docs/benchmark.md), and at
single runs of labelme and cifar10n with human answers: results on those are not independent of them. Of half B, LEADING was set looking at single
runs of cifar10n and dna, and what is compared ("none" beside "pooled") after seeing vowel lose to it; breast cancer, vowel and dna were looked at otherwise
only to see that two rates train, and how the starts' folds and tie-break (a mean over five data sets, two of them of half B) do there. How clusters are
cut and joined (``moves.py``) was set looking at ten made-up tables of restaurants, one set of answers about digits, and satellite. No label is used
when they are applied.
"""

# Preprocessing.
WIDE = 50  # from so many columns on, rows may be embeddings: unit rows are compared with standardised columns
LEADING = 200  # leading components that are kept of unit rows
CLEARLY = 2.0  # standard errors by which a scaling must be behind another not to be trained at all

# The start.
TRIAL_ITEMS = 4000  # K-means is tried on at most this many items (drawn at random) while settings are compared
START_ANSWERS = 100_000  # starts are made from, and compared by, at most this many answers (drawn at random): a difference in nats is then known to about .001
CONSTRAINED_ITEMS = 20_000  # K-means that pays for broken answers is run on at most about this many items
COMPONENTS = 4  # principal components of the discriminant embedding, as a multiple of K
PARTS = 4  # parts that K-means makes for each cluster, before answers group them
CUT = 3  # clusters, those that answers contradict most, that are cut in turn before the best cut is taken
BLEND = 0.5  # share of the discriminant coordinates in the embedding
FOLDS = 3  # of the answers, to compare partitions by
SHRINK = 100.0  # answers by which the rate between two clusters is shrunk to the pooled rate
DIVIDED = 0.05  # a cluster is said to hold two classes below this p-value, adjusted for the number of clusters (at 2.4 standard errors, unadjusted, on made-up tables: 1 % of right clusters, three in four merged ones)
COUNT_FOLDS = 5  # of the answers, to count clusters by; in 20 draws three folds were off by 3 and 2 once each (cifar10n, satellite), five by 2 twice (cifar10n)
LARGEST_K = 20  # most clusters that n_clusters="auto" compares

# The choice by answers about new items.
# (MOST_WRONG, the premise that at most a quarter of the items are taken for others, stands in pdcc/fitted.py; how long items are learned by heart in
# pdcc/training.py: both set looking at glass and wine.)
NEW_FOLDS = 3
FEWEST_NEW = 20  # fewer answers between two new items choose nothing
AUTO_VOLUME = 1e-2  # the volume that goes with a pooled or an annotator's own confusion
UNSTEADY = 0.05  # restarts of a value may agree less than those of the steadiest one by this adjusted Rand index
