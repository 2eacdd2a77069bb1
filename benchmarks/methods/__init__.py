"""Every method on one data set at several noise ratios: the tables of docs/results.md."""
