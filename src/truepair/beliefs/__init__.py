"""What we believe about every pair: the ledger, mixtures, the re-pairing null, the linear witness."""
