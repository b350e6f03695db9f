"""What the check imports; a submission may have a module of this name too."""


def same(got, expected):
    return got == expected
