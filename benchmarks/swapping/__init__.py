"""Swaps of a served adapter under load: who asked, when, and which version it was that answered."""
