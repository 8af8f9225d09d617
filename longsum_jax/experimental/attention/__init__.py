"""Attentions of the comparison in Hepos' paper, and of Unlimiformer."""
