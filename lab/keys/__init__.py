"""How the keys of a file are declared, what their values may be, and how what is wrong with one is said. Pure."""
