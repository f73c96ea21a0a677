"""Stages run on a tiny project."""

from tests.support.stages import run

__all__ = ["run"]
