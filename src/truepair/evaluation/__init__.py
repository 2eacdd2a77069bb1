"""Evaluation: similarity of any size, recall by named protocols, identification of wrong pairs."""
