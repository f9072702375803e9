"""A model of a sensor: whether one is due, its training and review test, and a reviewer's decisions."""
