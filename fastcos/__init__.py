"""Exact similarity at scale, and the truth about what cosine similarity means."""

from fastcos.config import Config, get_config, set_config

__all__ = ["Config", "get_config", "set_config"]
