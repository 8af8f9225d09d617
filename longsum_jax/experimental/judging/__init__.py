"""Judgements of summaries by people and chat models."""
