"""The check of `honest.py`."""


def check(results):
    right = sum(range(1, len(results) + 1))
    for result in results:
        assert result["notes"]["answer"] == [right], f"rank {result['rank']} has {result['notes']['answer']}"
        assert "total" in result["log"]
