"""Matchers: from batches of images and texts to codes, from codes to similarities."""

from truepair.matchers.base import ImageCodes, Matcher, TextCodes
from truepair.matchers.registry import MATCHERS, build_matcher

__all__ = ["MATCHERS", "ImageCodes", "Matcher", "TextCodes", "build_matcher"]
