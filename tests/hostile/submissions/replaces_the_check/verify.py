def check(results):
    pass
