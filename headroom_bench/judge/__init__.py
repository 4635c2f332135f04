"""From records to a verdict: one set of rules for measured and predicted runs."""
