"""Losses: pure functions over similarity matrices that give one value per pair."""
