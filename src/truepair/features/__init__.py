"""Turning pictures into region features."""
