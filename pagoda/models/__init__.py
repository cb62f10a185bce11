"""Model families over the operator table."""

from __future__ import annotations

from pagoda.models.base import Model
from pagoda.models.config import ModelConfig
from pagoda.models.loader import load_model, random_model, read_config
from pagoda.models.registry import supported_architectures

__all__ = ["Model", "ModelConfig", "load_model", "random_model", "read_config", "supported_architectures"]
