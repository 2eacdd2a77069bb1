"""Pairs: reading data as it lies on people's disks, its texts, its noise, and batches of it."""
