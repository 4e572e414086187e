"""Posterior draws of memberships and confusion."""
