"""Audit: which pairs are wrong, how many, what they should be matched with."""
