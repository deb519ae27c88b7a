"""The commands of the lab, each a module."""
