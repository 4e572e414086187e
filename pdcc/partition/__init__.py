"""Partitions of items by K-means, plain and with a price on broken answers; nothing here is trained."""
