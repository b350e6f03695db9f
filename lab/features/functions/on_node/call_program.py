"""What a rank that is called runs in the place of a script."""

from __future__ import annotations

import importlib

if __name__ == "__main__":
    importlib.import_module("labnode.features.functions.on_node.calls").serve()
