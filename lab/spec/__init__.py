"""Scenarios as frozen data, which `lab.spec.load` validates when it reads them."""
