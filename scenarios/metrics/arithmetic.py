"""Metrics of a binary classifier by plain arithmetic; a positive logit says yes."""


def counts(logits, targets):
    """Number of right yes, wrong yes, wrong no, right no."""
    said, true = logits > 0, targets == 1
    pairs = (said & true, said & ~true, ~said & true, ~said & ~true)
    return [int(pair.sum()) for pair in pairs]


def accuracy_precision_recall(right_yes, wrong_yes, wrong_no, right_no):
    total = right_yes + wrong_yes + wrong_no + right_no
    return (right_yes + right_no) / total, right_yes / (right_yes + wrong_yes), right_yes / (right_yes + wrong_no)


def area_under_curve(logits, targets):
    """ROC AUC: how often a positive's logit is above a negative's, over all pairs; a tie is half."""
    difference = logits[targets == 1][:, None] - logits[targets == 0][None, :]
    return ((difference > 0).double() + (difference == 0).double() / 2).mean().item()
