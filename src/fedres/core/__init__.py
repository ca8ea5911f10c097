"""The algorithms of the paper as objects, one line an equation."""
