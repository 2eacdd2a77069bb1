"""Matchers: from batches of images and texts to codes, from codes to similarities."""
